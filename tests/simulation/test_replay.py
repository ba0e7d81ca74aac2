"""One seed replays everything, and what was broken can be seen again with one command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import conftest as first
from tests.simulation import summary
from timewright.testing import simulate
from timewright.testing.world.bases import MemoryBase
from timewright.testing.world.chance import Chance
from timewright.testing.world.mutants import BY_NAME
from timewright.testing.world.mutating import switched_on
from timewright.testing.world.verdict import live
from timewright.testing.world.workload import scenario


def replayed(seed: int, *, hash_seed: str) -> str:
    code = (
        "from timewright.testing.world.bases import MemoryBase\n"
        "from timewright.testing.world.verdict import live\n"
        "from timewright.testing.world.workload import scenario\n"
        f"print(live(scenario({seed}, hours=2, size='dense'), MemoryBase()).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_history_whatever_the_order_of_sets() -> None:
    assert replayed(9, hash_seed="1") == replayed(9, hash_seed="2")


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    first, second = (live(scenario(4, hours=2, size="dense"), MemoryBase()) for _ in range(2))
    assert first.digest == second.digest
    assert first.counts == second.counts


def test_another_seed_gives_another_history() -> None:
    first, second = (live(scenario(seed, hours=1), MemoryBase()) for seed in (4, 6))
    assert first.digest != second.digest


def test_a_stream_does_not_notice_what_is_drawn_from_another() -> None:
    quiet, busy = Chance(7), Chance(7)
    [busy.fork("faults").random() for _ in range(100)]
    [busy.random() for _ in range(100)]
    assert quiet.fork("workload").random() == busy.fork("workload").random()


def test_the_command_prints_the_pace_the_counters_and_the_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seed", "4", "--hours", "1"]) == 0
    said = capsys.readouterr().out
    assert "simulated days per second of one core" in said
    assert "crashes" in next(line for line in said.splitlines() if line.startswith("a drawn day: "))
    assert live(scenario(4, hours=1), MemoryBase()).digest in said


def test_a_failure_prints_the_promise_the_facts_and_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with switched_on(BY_NAME["no charge on expiry"]):
        assert simulate.main(["--seeds", "4", "--hours", "2", "--size", "dense"]) == 1
    said = capsys.readouterr().out
    assert "I18" in said
    assert "RunLeased" in said
    assert "replay: python3 dev.py simulate --seed" in said


def test_what_the_worlds_saw_is_told_by_whoever_hands_out_the_work() -> None:
    """It loads the first `conftest` and no other: what is elsewhere is printed for one folder alone."""
    assert first.pytest_terminal_summary is summary.pytest_terminal_summary
