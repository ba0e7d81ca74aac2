"""The clock of the store is counted on for a moment where there is no time to ask, and is never ahead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from timewright.engine.reading import COUNTED_ON, Reading
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock

NOON = "2026-03-10T12:00:00Z"
JOURNEY = timedelta(seconds=0.25)


def read() -> tuple[Reading, ManualClock, datetime]:
    """A reading that took a while: the store looked at its clock in the middle of it."""
    clock = ManualClock(NOON)
    reading = Reading(cast("Any", clock), clock)
    began = clock.monotonic()
    shown = clock.advance(JOURNEY / 2)
    clock.advance(JOURNEY / 2)
    reading.take(shown, began=began)
    return reading, clock, shown


@pytest.mark.parametrize("passed", [0.0, 0.03, 0.099])
def test_a_clock_is_counted_on_by_what_has_passed(passed: float) -> None:
    reading, clock, shown = read()
    clock.advance(seconds=passed)
    counted = reading.count_on()
    assert counted is not None
    now, moment = counted
    assert now == shown + timedelta(seconds=passed) == reading.at
    assert now <= clock.now(), "never ahead of the store"
    assert moment == pytest.approx(passed)
    assert moment <= clock.monotonic() - (clock.now() - now).total_seconds(), "a lease counts from before it"


def test_counting_on_and_on_is_the_same_as_once() -> None:
    reading, clock, shown = read()
    for _ in range(9):
        clock.advance(milliseconds=10)
        assert reading.count_on() is not None
    assert reading.at == shown + timedelta(milliseconds=90)


def test_what_was_read_too_long_ago_is_asked_for_again_however_often_it_was_counted() -> None:
    reading, clock, _ = read()
    for passed in (0.6, 0.3):
        clock.advance(seconds=passed * COUNTED_ON)
        assert reading.count_on() is not None
    clock.advance(seconds=0.2 * COUNTED_ON)
    assert reading.count_on() is None


def test_what_was_never_read_is_not_counted_on() -> None:
    clock = ManualClock(NOON)
    assert Reading(cast("Any", clock), clock).count_on() is None


def test_only_a_pass_that_goes_on_at_once_counts() -> None:
    bench = Bench()
    asked: list[datetime] = []
    now = bench.store.now

    def noted() -> datetime:
        asked.append(now())
        return asked[-1]

    bench.store.now = noted  # type: ignore[method-assign]
    bench.loop.step()
    bench.loop.step()
    assert len(asked) == 2
    bench.loop._goes_on = True
    bench.loop.step()
    assert len(asked) == 2
