"""The values of points in time, and their builders; `instants` decides what they mean together."""

from __future__ import annotations

from typing import Any, NamedTuple

from timewright.core.recurrence.phrases.parts import DateOfYear, Length, Months, Nth


class FromNow(NamedTuple):
    """A length after now or another day, or before now."""

    length: Length
    ago: bool
    start: RelativeDay | WeekdayRef | None = None


class RelativeDay(NamedTuple):
    """A day by its distance from today."""

    days: int
    part: str = ""


class WeekdayRef(NamedTuple):
    """A weekday near now: `friday`, `next friday`, `this friday`, `last friday`."""

    weekday: int
    which: str = ""


class NextWorkingDay(NamedTuple):
    """The next day from Monday to Friday."""


class UnitRef(NamedTuple):
    """`next week`, `this month`."""

    which: str
    unit: str


class NthDate(NamedTuple):
    """A day counted within a month: this one, the next one, or a named one."""

    days: Nth
    month: int | None
    year: int | None
    next_month: bool


class WrittenDate(NamedTuple):
    """A date in digits; `kind` is the token it came from."""

    kind: str
    value: Any


def build_relative_day(values: list[Any]) -> RelativeDay:
    days = {"today": 0, "tonight": 0, "tomorrow": 1, "tmrw": 1, "yesterday": -1, "after": 2, "before": -2}
    if values[0] not in days:
        return RelativeDay(0, values[0])
    return RelativeDay(days[values[0]], "night" if values[0] == "tonight" else "")


def build_date(values: list[Any]) -> DateOfYear:
    year = values[2] if len(values) > 2 else None
    day, month = (values[1], values[0]) if isinstance(values[0], Months) else (values[0], values[1])
    return DateOfYear(day, month.months, year)


def build_near_weekday(values: list[Any]) -> WeekdayRef:
    """Build a weekday near now."""
    return WeekdayRef(values[-1], values[0] if len(values) > 1 else "")


def build_nth_date(values: list[Any]) -> NthDate:
    """Build a day counted within a month."""
    month = values[1].months[0] if isinstance(values[1], Months) else None
    return NthDate(values[0], month, values[2] if len(values) > 2 else None, next_month=values[1] == "next")
