"""The store's clock is read once per tick, and its steps are reported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from tests.conformance.conftest import postgres_url
from timewright.core.facts import ClockStepped
from timewright.engine.store_clock import CLOCK_STEP_THRESHOLD, StoreClock
from timewright.ids import TimedIds
from timewright.ledger.pauses import clock_pauses
from timewright.stores.clock_guard import ClockGuard
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.wiring import open_store

__all__ = ["postgres_url"]

NOON = "2026-03-10T12:00:00Z"


class QuietStore:
    """A store without pauses."""

    def __init__(self, clock: ManualClock) -> None:
        self.now = clock.now

    def read(self, work: Any) -> list[Any]:
        return []


def test_the_store_clock_is_read_once_per_tick() -> None:
    bench = Bench()
    read: list[datetime] = []
    now = bench.store.now

    def recording() -> datetime:
        read.append(now())
        return read[-1]

    bench.store.now = recording  # type: ignore[method-assign]
    for ticks in (1, 2, 3):
        bench.loop.step()
        assert len(read) == ticks


def test_only_a_large_step_of_the_clock_is_reported() -> None:
    clock = ManualClock(NOON)
    store_clock = StoreClock(cast("Any", QuietStore(clock)), clock, ids=TimedIds())
    store_clock.read()
    clock.step(CLOCK_STEP_THRESHOLD / 2)
    assert store_clock.read()[2] == []
    clock.step(CLOCK_STEP_THRESHOLD)
    (step,) = store_clock.read()[2]
    assert isinstance(step, ClockStepped)
    assert step.by_seconds == CLOCK_STEP_THRESHOLD.total_seconds()


@pytest.fixture(params=("sqlite", "postgres"))
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[ManualClock, Any, Any]]:
    """A clock, and two stores of two processes that read it."""
    clock = ManualClock(NOON)
    mine, theirs = open_again(request, clock), open_again(request, clock)
    for store in (mine, theirs):
        store.write(lambda tx: tx.put_meta("seen", "1"))
        store.now()
    yield clock, mine, theirs
    mine.close()
    theirs.close()


def open_again(request: pytest.FixtureRequest, clock: ManualClock) -> Any:
    """The store of one more process."""
    is_file = "sqlite" in request.node.callspec.id
    return open_store(request.getfixturevalue("file" if is_file else "database"), clock=clock)


@pytest.mark.parametrize("step", ["+2d", "-2d", "+40d", "2999-01-01T00:00:00Z"])
def test_a_process_that_starts_while_another_doubts_the_clock_doubts_it_too(
    stores: tuple[ManualClock, Any, Any], step: str, request: pytest.FixtureRequest
) -> None:
    clock, mine, _ = stores
    right = clock.now()
    clock.step(step)
    StoreClock(mine, clock, ids=TimedIds()).read()

    started = open_again(request, clock)
    StoreClock(started, clock, ids=TimedIds()).read()

    assert started.now() - right < timedelta(minutes=1)
    assert started.read(clock_pauses), "a new process does not end the pause"
    started.close()


@pytest.mark.parametrize(("days", "is_used"), [(89, True), (91, False)])
def test_a_process_that_starts_takes_up_to_90_days_for_downtime(
    stores: tuple[ManualClock, Any, Any], days: int, is_used: bool, request: pytest.FixtureRequest
) -> None:
    clock, _, _ = stores
    later = ManualClock(clock.now() + timedelta(days=days))

    started = open_again(request, later)

    assert (started.now() == later.now()) is is_used
    assert (started.clock_doubt is None) is is_used
    started.close()


@pytest.mark.parametrize("step", ["+2d", "-2d", "+40d", "-40d", "2999-01-01T00:00:00Z"])
def test_a_step_of_more_than_a_day_is_not_used(stores: tuple[ManualClock, Any, Any], step: str) -> None:
    clock, mine, _ = stores
    right = clock.now()
    clock.step(step)
    clock.advance(seconds=3)
    assert mine.now() == right + timedelta(seconds=3)
    assert mine.read(lambda tx: tx.now()) == right + timedelta(seconds=3)
    assert mine.clock_doubt is not None
    assert mine.clock_doubt.reading.date() == clock.now().date()
    clock.step(right + timedelta(seconds=3))
    assert mine.now() == clock.now()
    assert mine.clock_doubt is None


@pytest.mark.parametrize("step", ["+3s", "+1h"])
def test_a_small_step_forward_is_used_at_once(stores: tuple[ManualClock, Any, Any], step: str) -> None:
    clock, mine, _ = stores
    clock.step(step)
    assert mine.now() == clock.now()
    assert mine.clock_doubt is None


@pytest.mark.parametrize("step", ["+40d", "-40d", "2999-01-01T00:00:00Z"])
def test_a_reading_that_a_person_accepts_is_used_by_every_process(
    stores: tuple[ManualClock, Any, Any], step: str
) -> None:
    clock, mine, theirs = stores
    clock.step(step)
    assert mine.now() != clock.now()
    assert theirs.now() != clock.now()
    theirs.accept_clock()
    clock.advance(seconds=1)
    mine.now()
    assert mine.now() == theirs.now() == clock.now()


def test_a_reading_is_used_when_it_has_lasted_an_hour_unless_it_is_too_far_ahead() -> None:
    for step, is_used in (
        (timedelta(days=40), True),
        (timedelta(days=-40), True),
        (timedelta(days=91), False),
    ):
        clock = ManualClock(NOON)
        guard = ClockGuard(clock.monotonic)
        guard.check(clock.now())
        clock.step(step)
        guard.check(clock.now())
        clock.advance(minutes=59)
        assert guard.check(clock.now()) != clock.now()
        clock.advance(minutes=2)
        assert (guard.check(clock.now()) == clock.now()) is is_used


def test_a_time_that_agrees_with_the_one_before_a_lasting_step_is_used_at_once() -> None:
    clock = ManualClock(NOON)
    guard = ClockGuard(clock.monotonic)
    right = clock.now()
    guard.check(right)
    clock.step("+40d")
    guard.check(clock.now())
    clock.advance(hours=2)
    assert guard.check(clock.now()) == clock.now()
    clock.step(right + timedelta(hours=2))
    assert guard.check(clock.now()) == clock.now()
    assert guard.doubt is None
