"""Wishes that expire, each at its own end, and none may ask for more than a wish may."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import NOON, TICK
from timewright.core.hints import (
    LONGEST_TTL,
    NO_HINTS,
    SHORTEST_INTERVAL,
    Analysed,
    Hints,
    IntervalHint,
    OneShotHint,
    PauseHint,
    check_hint,
    deserves_a_look,
)
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant

HINTS = Hints(
    interval=IntervalHint(interval=MINUTE, expires_at=NOON + HOUR),
    one_shot=OneShotHint(at=NOON + 5 * MINUTE, expires_at=NOON + 30 * MINUTE),
    pause=PauseHint(until=NOON + 10 * MINUTE),
)


def test_each_hint_ends_at_its_own_time_and_at_that_instant_it_is_over() -> None:
    assert HINTS.fresh(now=NOON) == HINTS
    assert HINTS.fresh(now=NOON + 10 * MINUTE).pause is None
    assert HINTS.fresh(now=NOON + 30 * MINUTE - TICK).one_shot is not None
    assert HINTS.fresh(now=NOON + 30 * MINUTE) == Hints(interval=HINTS.interval)
    assert HINTS.fresh(now=NOON + HOUR) == NO_HINTS


def test_a_one_shot_is_used_up_when_its_instant_has_come() -> None:
    assert HINTS.consumed(now=NOON + 5 * MINUTE - TICK).one_shot is not None
    left = HINTS.consumed(now=NOON + 5 * MINUTE)
    assert left.one_shot is None
    assert left.interval == HINTS.interval


@given(minutes=st.integers(0, 100), later=st.integers(0, 100))
def test_what_is_over_stays_over(minutes: int, later: int) -> None:
    first, second = NOON + minutes * MINUTE, NOON + (minutes + later) * MINUTE
    assert HINTS.fresh(now=first).fresh(now=second) == HINTS.fresh(now=second)


@pytest.mark.parametrize(
    ("ttl", "interval", "at", "field"),
    [
        (timedelta(0), None, None, "hint.ttl"),
        (-SECOND, None, None, "hint.ttl"),
        (LONGEST_TTL + SECOND, None, None, "hint.ttl"),
        (HOUR, SHORTEST_INTERVAL - SECOND, None, "hint.interval"),
        (HOUR, None, NOON - SECOND, "hint.at"),
    ],
)
def test_a_hint_that_asks_for_too_much_is_refused(
    ttl: timedelta, interval: timedelta | None, at: datetime | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_hint(now=NOON, ttl=ttl, interval=interval, at=at)
    assert refusal.value.field == field
    assert refusal.value.value in ("0s", "1d1s", "9s", "2026-03-10T11:59:59Z")
    assert refusal.value.rule
    assert refusal.value.fix


def test_a_modest_hint_is_welcome() -> None:
    check_hint(now=NOON, ttl=LONGEST_TTL, interval=SHORTEST_INTERVAL, at=NOON)


def test_a_hint_far_from_now_or_without_an_offset_is_refused() -> None:
    for at in (datetime(2026, 3, 10), datetime.fromisoformat("9999-01-01T00:00:00+00:00")):
        with pytest.raises(InvalidInstant):
            check_hint(now=NOON, ttl=HOUR, at=at)
    with pytest.raises(InvalidDuration):
        IntervalHint(interval=-SECOND, expires_at=NOON)


def test_a_schedule_deserves_a_look_when_it_was_never_seen_when_asked_and_when_it_fails_more() -> None:
    waits = Analysed(NOON + DAY, failures=1)
    assert deserves_a_look(None, failures=0, now=NOON)
    assert deserves_a_look(Analysed(None), failures=0, now=NOON)
    assert deserves_a_look(waits, failures=1, now=NOON + DAY)
    assert deserves_a_look(waits, failures=2, now=NOON)
    assert not deserves_a_look(waits, failures=1, now=NOON)
    assert not deserves_a_look(waits, failures=0, now=NOON)
