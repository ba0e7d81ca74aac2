"""Whatever the weather, the promises hold: fresh seeds, saved seeds, and every kind of store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from timewright.testing.postgres import fresh_database
from timewright.testing.world.bases import FileBase, MemoryBase, PostgresBase
from timewright.testing.world.verdict import live
from timewright.testing.world.workload import scenario

# Another base gives other worlds: TIMEWRIGHT_SEEDS=20260310 python3 dev.py test tests/simulation
BASE = int(os.environ.get("TIMEWRIGHT_SEEDS", "10000"))
FRESH = 200
AT_ONCE = 5
HOURS = 12.0

# Seeds that found something, and what.
SAVED = {
    5: "a key of a run by hand that outlived the row of its run",
    10: "an instance that was stopped in the middle of a tick",
    17: "an edit after a pause that lost every instant up to the old next time",
    43: "a lease that lived through a step of the clock",
    47: "a renewal that made a lease shorter",
    10016: "an edit after the last run that was allowed, which the checker took for a hole",
    10029: "an archived schedule with a pruned instant ahead, which the checker took for one that is due",
    10035: "a promise that broke while the simulation was built, and was mended with the others",
    10037: "an edit of a schedule whose start was still ahead, which moved its cursor back",
    10066: "a wished instant after a wished interval, which the checker took for a broken rule",
    10084: "a short wait that was drawn out by the pause of another, and looked like a long lease",
    10187: "a pause with jitter to both sides, before whose end everyone woke again and again",
}
# The same for dense worlds of two hours.
SAVED_DENSE = {
    4: "a wish that the checker took for too late, because it did not know what had been left out",
    17: "a lease that was dated before a pause, which the checker took for two at the same time",
    18: "a clock that stood, under which the checker took many passes for one",
}

# The same for those in which schedules stand in relation to each other.
SAVED_RELATED = {
    10001: "a pause that was over and still written down, which the checker took for one that someone ended",
}


def command(seed: int, **options: object) -> str:
    said = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"python3 dev.py simulate --seed {seed} {said}"


@pytest.mark.parametrize("first", range(BASE, BASE + FRESH, AT_ONCE))
def test_the_promises_hold_for_fresh_seeds(first: int, witness: Any) -> None:
    for seed in range(first, first + AT_ONCE):
        witness(live(scenario(seed, hours=HOURS), MemoryBase()), replay=command(seed, hours=HOURS))


@pytest.mark.parametrize("seed", SAVED)
def test_the_promises_hold_where_they_once_did_not(seed: int, witness: Any) -> None:
    world = scenario(seed, hours=HOURS, relations=False)
    witness(live(world, MemoryBase()), replay=f"{command(seed, hours=HOURS)} --alone")


@pytest.mark.parametrize("seed", SAVED_DENSE)
def test_the_promises_hold_where_they_once_did_not_in_little_time(seed: int, witness: Any) -> None:
    result = live(scenario(seed, hours=2, size="dense", relations=False), MemoryBase())
    witness(result, replay=f"{command(seed, hours=2, size='dense')} --alone")


@pytest.mark.parametrize("seed", SAVED_RELATED)
def test_the_promises_hold_where_they_once_did_not_between_schedules(seed: int, witness: Any) -> None:
    result = live(scenario(seed, hours=2, size="dense"), MemoryBase())
    witness(result, replay=command(seed, hours=2, size="dense"))


@pytest.mark.parametrize("first", range(BASE, BASE + 20, 2))
def test_the_promises_hold_on_postgresql(first: int, postgres_url: str, witness: Any) -> None:
    for seed in (first, first + 1):
        with fresh_database(postgres_url) as url:
            result = live(scenario(seed, hours=1), PostgresBase(url))
        witness(result, replay=command(seed, hours=1, store="postgres"))


@pytest.mark.parametrize("seed", range(BASE + 1, BASE + 5))
def test_the_promises_hold_in_a_file_that_many_processes_share(
    seed: int, tmp_path: Path, witness: Any
) -> None:
    result = live(scenario(seed, hours=2, size="dense"), FileBase(tmp_path))
    witness(result, replay=command(seed, hours=2, size="dense", store="file"))
