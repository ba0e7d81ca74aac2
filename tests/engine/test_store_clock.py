"""The store's clock is read once per tick, and estimated in between without asking the store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from timewright.core.facts import ClockStepped
from timewright.engine.store_clock import CLOCK_STEP_THRESHOLD, StoreClock
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock

NOON = "2026-03-10T12:00:00Z"


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


def test_between_ticks_the_clock_is_estimated_from_the_last_read() -> None:
    clock = ManualClock(NOON)
    store_clock = StoreClock(cast("Any", clock), clock)
    now, asked_at, facts = store_clock.read()
    assert (now, asked_at, facts) == (clock.now(), clock.monotonic(), [])
    clock.advance(seconds=3)
    assert store_clock.estimate_now() == now + timedelta(seconds=3)
    assert store_clock.last_now == now


def test_only_a_large_step_of_the_clock_is_reported() -> None:
    clock = ManualClock(NOON)
    store_clock = StoreClock(cast("Any", clock), clock)
    store_clock.read()
    clock.step(CLOCK_STEP_THRESHOLD / 2)
    assert store_clock.read()[2] == []
    clock.step(CLOCK_STEP_THRESHOLD)
    (step,) = store_clock.read()[2]
    assert isinstance(step, ClockStepped)
    assert step.by_seconds == CLOCK_STEP_THRESHOLD.total_seconds()
