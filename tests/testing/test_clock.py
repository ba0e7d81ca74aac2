"""The manual clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from timewright.core.moments import HOUR, MINUTE
from timewright.errors import InvalidDuration, InvalidInstant
from timewright.testing.clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(NOON)
    assert clock.now() == clock.now() == NOON
    assert clock.monotonic() == clock.monotonic() == 0.0


def test_time_passes_on_both_clocks() -> None:
    clock = ManualClock(NOON, monotonic=100.0)
    assert clock.advance(HOUR) == NOON + HOUR
    assert clock.advance(hours=1, minutes=2, seconds=3) == NOON + 2 * HOUR + 2 * MINUTE + timedelta(seconds=3)
    assert clock.advance(days=1) == clock.now()
    assert clock.monotonic() == 100.0 + 3600 + 3723 + 86_400


def test_time_that_passes_is_never_negative() -> None:
    clock = ManualClock(NOON)
    with pytest.raises(InvalidDuration, match="-1h"):
        clock.advance(-HOUR)
    assert clock.now() == NOON


def test_a_step_moves_the_wall_clock_alone_back_and_forth() -> None:
    clock = ManualClock(NOON)
    assert clock.step(-HOUR) == NOON - HOUR
    assert clock.step(datetime(2999, 1, 1, tzinfo=UTC)) == datetime(2999, 1, 1, tzinfo=UTC)
    assert clock.monotonic() == 0.0


def test_a_clock_shows_utc_whatever_it_was_set_with() -> None:
    clock = ManualClock(NOON.astimezone(timezone(timedelta(hours=5))))
    assert clock.now() == NOON
    assert clock.now().utcoffset() == timedelta(0)


def test_a_clock_is_not_set_without_an_offset() -> None:
    with pytest.raises(InvalidInstant):
        ManualClock(datetime(2026, 3, 10, 12))
    with pytest.raises(InvalidInstant):
        ManualClock(NOON).step(datetime(2026, 3, 10, 12))
