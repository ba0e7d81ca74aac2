"""Phrases for calendars: the rule of a schedule, and weekly hours."""

from __future__ import annotations

import pytest

from timewright.core.calendars import CalendarRule, WeeklyHours
from timewright.core.input.decode import decode
from timewright.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("except holidays", CalendarRule(except_=("holidays",))),
        ("without holidays", CalendarRule(except_=("holidays",))),
        ("Only office, late shift", CalendarRule(only=("office", "late shift"))),
    ],
)
def test_a_calendar_rule_can_be_a_phrase(text: str, rule: CalendarRule) -> None:
    assert decode(text, CalendarRule) == rule


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("mon-fri 09:00-17:00", WeeklyHours(days=(0, 1, 2, 3, 4), start="09:00", end="17:00")),
        ("weekdays 9:00 to 17:00", WeeklyHours(days=(0, 1, 2, 3, 4), start="09:00", end="17:00")),
        ("sat, sun", WeeklyHours(days=(5, 6))),
        ("fri - mon 22:00-24:00", WeeklyHours(days=(0, 4, 5, 6), start="22:00", end="24:00")),
        ("daily 00:00-07:00", WeeklyHours(days=(0, 1, 2, 3, 4, 5, 6), end="07:00")),
        ("Wednesday", WeeklyHours(days=(2,))),
    ],
)
def test_weekly_hours_can_be_a_phrase(text: str, hours: WeeklyHours) -> None:
    assert decode(text, WeeklyHours) == hours


@pytest.mark.parametrize(
    ("text", "into"),
    [
        ("holidays", CalendarRule),
        ("except", CalendarRule),
        ("", CalendarRule),
        ("", WeeklyHours),
        ("someday 09:00-17:00", WeeklyHours),
        ("mon 09:00", WeeklyHours),
        ("mon 09:00-25:00", WeeklyHours),
        ("daily 22:00-07:00", WeeklyHours),
        ("mon" * 400, WeeklyHours),
    ],
)
def test_an_invalid_phrase_is_refused_with_a_valid_one(text: str, into: type) -> None:
    with pytest.raises(InvalidInput) as refusal:
        decode(text, into, field="calendar")
    assert refusal.value.fix
