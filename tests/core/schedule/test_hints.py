"""Hints: each expires at its own end, and values out of range are refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.schedule_simulation import NOON, TICK
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.schedule.hints import (
    MAX_TTL,
    MIN_INTERVAL,
    NO_HINTS,
    Hints,
    IntervalHint,
    LastAnalysis,
    OneShotHint,
    PauseHint,
    check_hint,
    needs_analysis,
)
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant

HINTS = Hints(
    interval=IntervalHint(interval=MINUTE, expires_at=NOON + HOUR),
    one_shot=OneShotHint(at=NOON + 5 * MINUTE, expires_at=NOON + 30 * MINUTE),
    pause=PauseHint(until=NOON + 10 * MINUTE),
)


def test_each_hint_expires_exactly_at_its_own_end() -> None:
    assert HINTS.unexpired(now=NOON) == HINTS
    assert HINTS.unexpired(now=NOON + 10 * MINUTE).pause is None
    assert HINTS.unexpired(now=NOON + 30 * MINUTE - TICK).one_shot is not None
    assert HINTS.unexpired(now=NOON + 30 * MINUTE) == Hints(interval=HINTS.interval)
    assert HINTS.unexpired(now=NOON + HOUR) == NO_HINTS


def test_a_one_shot_is_used_up_when_its_instant_has_come() -> None:
    assert HINTS.without_used(until=NOON + 5 * MINUTE - TICK).one_shot is not None
    left = HINTS.without_used(until=NOON + 5 * MINUTE)
    assert left.one_shot is None
    assert left.interval == HINTS.interval


@given(minutes=st.integers(0, 100), later=st.integers(0, 100))
def test_an_expired_hint_stays_expired(minutes: int, later: int) -> None:
    first, second = NOON + minutes * MINUTE, NOON + (minutes + later) * MINUTE
    assert HINTS.unexpired(now=first).unexpired(now=second) == HINTS.unexpired(now=second)


@pytest.mark.parametrize(
    ("ttl", "interval", "at", "field"),
    [
        (timedelta(0), None, None, "hint.ttl"),
        (-SECOND, None, None, "hint.ttl"),
        (MAX_TTL + SECOND, None, None, "hint.ttl"),
        (HOUR, MIN_INTERVAL - SECOND, None, "hint.interval"),
        (HOUR, None, NOON - SECOND, "hint.at"),
    ],
)
def test_a_hint_out_of_range_is_refused(
    ttl: timedelta, interval: timedelta | None, at: datetime | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_hint(now=NOON, ttl=ttl, interval=interval, at=at)
    assert refusal.value.field == field
    assert refusal.value.value in ("0s", "1d1s", "9s", "2026-03-10T11:59:59Z")
    assert refusal.value.rule
    assert refusal.value.fix


def test_a_hint_in_range_is_accepted() -> None:
    check_hint(now=NOON, ttl=MAX_TTL, interval=MIN_INTERVAL, at=NOON)


def test_a_hint_far_from_now_or_without_an_offset_is_refused() -> None:
    for at in (datetime(2026, 3, 10), datetime.fromisoformat("9999-01-01T00:00:00+00:00")):
        with pytest.raises(InvalidInstant):
            check_hint(now=NOON, ttl=HOUR, at=at)
    with pytest.raises(InvalidDuration):
        IntervalHint(interval=-SECOND, expires_at=NOON)


def test_a_schedule_is_analysed_at_first_when_due_and_when_it_fails_more() -> None:
    waits = LastAnalysis(NOON + DAY, failures=1)
    assert needs_analysis(None, failures=0, now=NOON)
    assert needs_analysis(LastAnalysis(None), failures=0, now=NOON)
    assert needs_analysis(waits, failures=1, now=NOON + DAY)
    assert needs_analysis(waits, failures=2, now=NOON)
    assert not needs_analysis(waits, failures=1, now=NOON)
    assert not needs_analysis(waits, failures=0, now=NOON)
