"""Describes a recurrence rule in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product

from timewright.core.recurrence.rrule.grammar import RecurrenceRule, Weekday

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_MAX_TIMES = 6


def describe_rule(rule: RecurrenceRule, *, anchor: datetime | None) -> str:
    """Return a rule in words; values taken from the anchor are included if the anchor is known."""
    parts = [_every(rule), _days(rule, anchor), _months(rule, anchor), _times(rule, anchor), _end(rule)]
    return " ".join(part for part in parts if part)


def _every(rule: RecurrenceRule) -> str:
    unit = _UNITS[rule.frequency]
    return f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"


def _days(rule: RecurrenceRule, anchor: datetime | None) -> str:
    days = [_weekday(one) for one in rule.weekdays]
    if not days and rule.frequency == "WEEKLY" and anchor is not None:
        days = [WEEKDAYS[anchor.weekday()]]
    words = f"on {_listed(days)}" if days else ""
    numbers: Sequence[int] = rule.month_days
    if not numbers and not rule.weekdays and rule.frequency in ("MONTHLY", "YEARLY") and anchor is not None:
        numbers = (anchor.day,)
    if numbers:
        joined = " that is" if days else "on"
        shorter = " or the last day" if rule.clamped and max(numbers) > 28 else ""
        words = f"{words}{joined} {_listed([_month_day(day) for day in numbers])}{shorter}".strip()
    if rule.positions:
        positions = _listed([_position_word(at) for at in rule.positions])
        words = f"{words}, only the {positions} of these"
    return words


def _months(rule: RecurrenceRule, anchor: datetime | None) -> str:
    months: Sequence[int] = rule.months
    bare = not (rule.months or rule.month_days or rule.weekdays)
    if bare and rule.frequency == "YEARLY" and anchor is not None:
        months = (anchor.month,)
    return f"in {_listed([MONTHS[month - 1] for month in months])}" if months else ""


def _times(rule: RecurrenceRule, anchor: datetime | None) -> str:
    if anchor is None and not (rule.hours and rule.minutes):
        return ""
    at = anchor or datetime(2000, 1, 1)  # noqa: DTZ001 - only the time of day is used
    hours, minutes = rule.hours or (at.hour,), rule.minutes or (at.minute,)
    seconds = rule.seconds or (at.second,)
    times = [
        f"{h:02}:{m:02}" + (f":{s:02}" if seconds != (0,) else "")
        for h, m, s in product(hours, minutes, seconds)
    ]
    if len(times) > _MAX_TIMES:
        return f"{len(times)} times a day from {times[0]} to {times[-1]}"
    return f"at {_listed(times)}"


def _end(rule: RecurrenceRule) -> str:
    if rule.count is not None:
        return "once" if rule.count == 1 else f"{rule.count} times"
    if rule.until is not None:
        return f"until {rule.until.reading:%Y-%m-%d %H:%M:%S}{' UTC' if rule.until.utc else ''}"
    return ""


def _weekday(one: Weekday) -> str:
    return f"the {_position_word(one.nth)} {WEEKDAYS[one.day]}" if one.nth else WEEKDAYS[one.day]


def _position_word(nth: int) -> str:
    if nth == -1:
        return "last"
    if nth < 0:
        return f"{_position_word(-nth)} to last"
    return _NTH[nth] if nth < len(_NTH) else f"{nth}th"


def _month_day(day: int) -> str:
    return f"day {day}" if day > 0 else "the last day" if day == -1 else f"the {_position_word(day)} day"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
