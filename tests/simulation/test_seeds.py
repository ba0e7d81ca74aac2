"""No invariant is violated: fresh seeds, saved seeds, and every kind of store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.model.backends import FileBackend, MemoryBackend, PostgresBackend
from tests.simulation.verdict import simulate
from tests.simulation.workload.scenarios import draw_scenario
from timewright.testing.postgres import fresh_database

# Use other seeds: TIMEWRIGHT_SEEDS=20260310 python3 dev.py test tests/simulation
BASE = int(os.environ.get("TIMEWRIGHT_SEEDS", "10000"))
FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
FRESH = 200 if FULL else 50
AT_ONCE = 5
FRESH_HOURS = 6.0
# The bugs of the saved seeds have tests of their own, and the draws have moved since.
HOURS = 12.0 if FULL else 4.0
FILE_HOURS = 2.0 if FULL else 1.0

# Seeds that found a bug, in the engine or in the checker.
SAVED = {
    5: "a client key that outlived the row of its run",
    10: "an instance stopped in the middle of a tick",
    17: "an edit after a pause that lost every instant up to the old next time",
    43: "a lease that spanned a step of the clock",
    47: "a renewal that shortened a lease",
    10016: "an edit after max_runs, which the checker took for a missing instant",
    10029: "an archived schedule with a pruned future instant, which the checker took for due",
    10035: "a violation during the development of the simulation",
    10037: "an edit of a schedule before its start, which moved its cursor back",
    10066: "a hinted instant after a hinted interval, which the checker reported wrongly",
    10084: "a short wait prolonged by the suspension of another process, which looked like a long lease",
    10040: "an edit after skips under a clamp, whose gap rows the checker did not count as decided",
    10046: "an interval hint during a pause, which left an instant of the pause without a row",
    10154: "the same under a clamp",
    10187: "a pause with jitter to both sides, before whose end every instance kept waking",
}
# The same for dense scenarios of two hours.
SAVED_DENSE = {
    3: "a streak that ended at the instant of a decision, of which the checker did not know the order",
    4: "a hint that the checker took for late, because it ignored skipped instants",
    11: "an interval hint during two pauses, which left instants of them without rows",
    17: "a lease dated before a pause, which the checker took for two at the same time",
    18: "a frozen clock, under which the checker took many passes for one",
}

# The same for scenarios with dependencies.
SAVED_RELATED = {
    10001: "a pause that had ended but was still recorded, which the checker took for a resume",
}


def command(seed: int, **options: object) -> str:
    flags = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"python3 dev.py simulate --seed {seed} {flags}"


@pytest.mark.parametrize("first", range(BASE, BASE + FRESH, AT_ONCE))
def test_no_invariant_is_violated_for_fresh_seeds(first: int, witness: Any) -> None:
    for seed in range(first, first + AT_ONCE):
        result = simulate(draw_scenario(seed, hours=FRESH_HOURS), MemoryBackend())
        witness(result, replay=command(seed, hours=FRESH_HOURS))


@pytest.mark.parametrize("seed", SAVED)
def test_no_invariant_is_violated_for_saved_seeds(seed: int, witness: Any) -> None:
    scenario = draw_scenario(seed, hours=HOURS, dependencies=False)
    witness(simulate(scenario, MemoryBackend()), replay=f"{command(seed, hours=HOURS)} --no-dependencies")


@pytest.mark.parametrize("seed", SAVED_DENSE)
def test_no_invariant_is_violated_for_saved_dense_seeds(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=2, size="dense", dependencies=False), MemoryBackend())
    witness(result, replay=f"{command(seed, hours=2, size='dense')} --no-dependencies")


@pytest.mark.parametrize("seed", SAVED_RELATED)
def test_no_invariant_is_violated_for_saved_seeds_with_dependencies(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=2, size="dense"), MemoryBackend())
    witness(result, replay=command(seed, hours=2, size="dense"))


@pytest.mark.parametrize("seed", range(200, 204))
def test_no_invariant_is_violated_with_pauses_and_incidents(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=1, size="paused"), MemoryBackend())
    witness(result, replay=command(seed, hours=1, size="paused"))


@pytest.mark.parametrize("first", range(BASE, BASE + 20, 2))
def test_no_invariant_is_violated_on_postgresql(first: int, postgres_url: str, witness: Any) -> None:
    for seed in (first, first + 1):
        with fresh_database(postgres_url) as url:
            result = simulate(draw_scenario(seed, hours=1), PostgresBackend(url))
        witness(result, replay=command(seed, hours=1, store="postgres"))


@pytest.mark.parametrize("seed", range(BASE + 1, BASE + 5))
def test_no_invariant_is_violated_in_a_shared_file(seed: int, tmp_path: Path, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=FILE_HOURS, size="dense"), FileBackend(tmp_path))
    witness(result, replay=command(seed, hours=FILE_HOURS, size="dense", store="file"))


@pytest.mark.parametrize("seed", range(4))
def test_no_invariant_is_violated_in_worlds_with_workflows_that_ask(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=2.0, size="workflow"), MemoryBackend())
    witness(result, replay=command(seed, hours=2.0, size="workflow"))


@pytest.mark.parametrize("seed", range(4))
def test_no_invariant_is_violated_in_worlds_with_limits_by_key_and_rate(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=2.0, size="limits"), MemoryBackend())
    witness(result, replay=command(seed, hours=2.0, size="limits"))


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_invariant_is_violated_in_worlds_whose_workers_give_entries_back(seed: int, witness: Any) -> None:
    result = simulate(draw_scenario(seed, hours=2.0, size="returned"), MemoryBackend())
    witness(result, replay=command(seed, hours=2.0, size="returned"))
