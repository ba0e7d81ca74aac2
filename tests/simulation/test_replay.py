"""A seed reproduces a whole simulation, and a failure prints its replay command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import conftest as first
from tests.simulation import command
from tests.simulation.model.backends import MemoryBackend
from tests.simulation.model.seeded_random import SeededRandom
from tests.simulation.mutants.catalog import BY_NAME
from tests.simulation.mutants.mutation import applied
from tests.simulation.verdict import simulate
from tests.simulation.workload.scenarios import draw_scenario


def replayed(seed: int, *, hash_seed: str) -> str:
    code = (
        "from tests.simulation.model.backends import MemoryBackend\n"
        "from tests.simulation.verdict import simulate\n"
        "from tests.simulation.workload.scenarios import draw_scenario\n"
        f"print(simulate(draw_scenario({seed}, hours=2, size='dense'), MemoryBackend()).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_history_for_any_hash_seed() -> None:
    assert replayed(9, hash_seed="1") == replayed(9, hash_seed="2")


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    first, second = (simulate(draw_scenario(4, hours=2, size="dense"), MemoryBackend()) for _ in range(2))
    assert first.digest == second.digest
    assert first.counts == second.counts


def test_another_seed_gives_another_history() -> None:
    first, second = (simulate(draw_scenario(seed, hours=1), MemoryBackend()) for seed in (4, 6))
    assert first.digest != second.digest


def test_draws_from_one_stream_do_not_change_another() -> None:
    quiet, busy = SeededRandom(7), SeededRandom(7)
    [busy.fork("faults").random() for _ in range(100)]
    [busy.random() for _ in range(100)]
    assert quiet.fork("workload").random() == busy.fork("workload").random()


def test_the_command_prints_the_speed_the_counters_and_the_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "4", "--hours", "1"]) == 0
    said = capsys.readouterr().out
    assert "simulated days per second of one core" in said
    assert "crashes" in next(line for line in said.splitlines() if line.startswith("a drawn day: "))
    assert simulate(draw_scenario(4, hours=1), MemoryBackend()).digest in said


def test_a_failure_prints_the_invariant_the_facts_and_the_replay_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with applied(BY_NAME["no charge on expiry"]):
        assert command.main(["--first", "1", "--seeds", "1", "--hours", "2", "--size", "dense"]) == 1
    said = capsys.readouterr().out
    assert "I18" in said
    assert "RunLeased" in said
    assert "replay: python3 dev.py simulate --seed" in said


def test_the_first_conftest_prints_the_summary() -> None:
    """The pytest-xdist controller loads only this `conftest`."""
    assert callable(first.pytest_terminal_summary)
