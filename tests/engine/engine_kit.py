"""Helpers of the engine tests: benches with faults, and questions about runs and facts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.fakes import (
    FaultyStore,
)
from timewright.core.facts import (
    Fact,
)
from timewright.core.policies.policies import LeaseTerms
from timewright.core.recurrence.triggers import every
from timewright.core.run.run import Attempt, Run, RunState
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HALF_MINUTE = LeaseTerms(length=30 * SECOND, time_limit=10 * MINUTE, grace=5 * SECOND)


class FaultyBench(Bench):
    """A bench with a store whose calls can be made to fail."""

    def __init__(self, **options: Any) -> None:
        clock = ManualClock(DEFAULT_START)
        self.faults = FaultyStore(clock)
        super().__init__(store=self.faults, clock=clock, **options)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def faulty() -> FaultyBench:
    return FaultyBench()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread may be left at the end of a test."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")] == []


def the_run(bench: Bench, name: str) -> Run:
    (run,) = bench.runs(name)
    return run


def attempts(bench: Bench, name: str) -> list[Attempt]:
    run = the_run(bench, name)
    return list(bench.store.read(lambda tx: tx.get_run_rows(Attempt, [run.id])).get(run.id, ()))


def start_run(bench: Bench, name: str, *, lease: LeaseTerms = HALF_MINUTE, **policies: Any) -> Run:
    """A due schedule whose run is leased and launched."""
    bench.schedule(name, every("1h"), lease=lease, **policies)
    bench.clock.advance(hours=1)
    bench.loop.step()
    run = the_run(bench, name)
    assert run.state is RunState.LEASED
    return run


def count_facts(bench: Bench, kind: type[Fact]) -> int:
    return sum(isinstance(fact, kind) for fact in bench.facts)
