"""Calendars compared with an independent scan: each instant of a trigger is checked one by one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from timewright.core.calendars import (
    Calendar,
    CalendarRule,
    DateRange,
    Span,
    WeeklyHours,
    allowed_after,
    occurrence_after,
)
from timewright.core.moments import DAY, HOUR, to_micros
from timewright.core.recurrence.triggers import AnyTrigger, Cron, Every, Rrule
from timewright.verification.oracle.calendars import is_open

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
AHEAD = NOON + 60 * DAY

DAYS = st.dates(date(2026, 3, 1), date(2026, 5, 20))
HOURS = st.integers(0, 23).map(lambda hour: f"{hour:02}:00")
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe"])
TRIGGERS: list[AnyTrigger] = [
    Cron("30 2 * * *", "Europe/Berlin"),
    Cron("0 */5 * * 1-5"),
    Every(7 * HOUR, NOON),
    Rrule("FREQ=DAILY;INTERVAL=2;BYHOUR=0,12;BYMINUTE=0;BYSECOND=0", "America/New_York", anchor=NOON),
    Rrule("FREQ=MONTHLY;BYMONTHDAY=31;SKIP=BACKWARD", anchor=NOON),
]


@st.composite
def calendars(draw: st.DrawFn, name: str) -> Calendar:
    hours = [
        WeeklyHours(days=tuple(days), start=start, end="24:00")
        for days, start in draw(
            st.lists(st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=3), HOURS), max_size=2)
        )
    ]
    ranges = [
        DateRange(first=first, last=first + length * DAY)
        for first, length in draw(st.lists(st.tuples(DAYS, st.integers(0, 9)), max_size=2))
    ]
    spans = [
        Span(start=NOON + start * HOUR, end=NOON + (start + length) * HOUR, name="closed")
        for start, length in draw(st.lists(st.tuples(st.integers(-50, 900), st.integers(1, 60)), max_size=3))
    ]
    dates = tuple(draw(st.lists(DAYS, max_size=4)))
    return Calendar(
        name=name,
        zone=draw(ZONES),
        dates=dates,
        yearly=tuple(f"{day:%m-%d}" for day in draw(st.lists(DAYS, max_size=2))),
        ranges=tuple(ranges),
        weekly=tuple(hours),
        spans=tuple(spans),
        names={str(day): "a day" for day in dates},
    )


@given(st.sampled_from(TRIGGERS), calendars("one"), calendars("two"), st.booleans())
@settings(max_examples=120, deadline=None)
def test_calendars_allow_the_same_instants_as_a_scan(
    trigger: AnyTrigger, one: Calendar, two: Calendar, both_ways: bool
) -> None:
    rule = (
        CalendarRule(only=("one",), except_=("two",)) if both_ways else CalendarRule(except_=("one", "two"))
    )
    calendars = {"one": one, "two": two}
    plain = {name: msgspec.to_builtins(calendar) for name, calendar in calendars.items()}
    bare = msgspec.to_builtins(rule)
    every = trigger.between(NOON, AHEAD)
    expected = [at for at in every if is_open(bare, plain, to_micros(at))]
    found: list[datetime] = []
    at = NOON
    while (
        ahead := allowed_after(trigger, at, rule=rule, calendars=calendars)
    ) is not None and ahead.at <= AHEAD:
        found.append(ahead.at)
        at = ahead.at
    assert found == expected
    marked = occurrence_after(trigger, NOON, rule=rule, calendars=calendars)
    if every:
        assert marked is not None
        assert bool(marked.excluded) is (every[0] not in expected)


@given(calendars("one"), st.integers(0, 60 * 24))
@settings(max_examples=100, deadline=None)
def test_an_instant_with_a_name_is_covered(calendar: Calendar, hours: int) -> None:
    at = NOON + timedelta(hours=hours)
    called = calendar.name_at(at)
    assert calendar.covers(at) or not called
    assert called in ("", "a day", "closed")
