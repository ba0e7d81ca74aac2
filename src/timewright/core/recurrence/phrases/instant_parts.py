"""The values of points in time, their builders and their days; `instants` decides what they mean together."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from timewright.core.recurrence.phrases.parts import Days, Length, Months
from timewright.core.recurrence.phrases.tokens import MONTH_NAMES, PhraseProblem, TwoReadings


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


class DateOfYear(NamedTuple):
    """A day in a month (in any month without one), and the year where one is written."""

    day: int
    months: tuple[int, ...]
    year: int | None = None


class NthDate(NamedTuple):
    """A day counted within a month: this one, the next one, or a named one."""

    days: Days
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


def written_date(part: WrittenDate, year_of: Callable[[int, int], date]) -> date:
    value = part.value
    if part.kind == "DATE":
        return make_date(*value)
    first, second, year = (*value, None)[:3]
    if year is not None and year < 100:
        year += 2000
        if date_or_none(year, second, first) and date_or_none(year, first, second) and first != second:
            raise TwoReadings(
                "the order of day, month and year",
                f"{year}-{second:02}-{first:02}",
                f"{year}-{first:02}-{second:02}",
            )
    if part.kind == "SLASHED" and first <= 12 and second <= 12 and first != second:
        shown = "" if year is None else f" {year}"
        raise TwoReadings(
            "day and month can be meant either way",
            f"{first} {MONTH_NAMES[(second - 1) % 12]}{shown}",
            f"{second} {MONTH_NAMES[(first - 1) % 12]}{shown}",
        )
    day, month = (second, first) if part.kind == "SLASHED" and second > 12 else (first, second)
    make_date(2024 if year is None else year, month, day)
    return make_date(year, month, day) if year is not None else year_of(month, day)


def make_date(year: int, month: int, day: int) -> date:
    found = date_or_none(year, month, day)
    if found is None:
        name = MONTH_NAMES[month - 1] if 1 <= month <= 12 else f"month {month}"
        raise PhraseProblem(
            f"has a date that does not exist: {day} {name}",
            rule="the day must exist in that month",
            fix="write the date as 2026-12-25",
        )
    return found


def date_or_none(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def add_months(day: date, months: int) -> date:
    """Return the same day of another month, or its last day where it is shorter."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def nth_in_month(month: date, wanted: Days) -> date | None:
    """Return a counted day of the month that a date is in; None if it has no such day."""
    length = monthrange(month.year, month.month)[1]
    days = [month.replace(day=day) for day in range(1, length + 1)]
    if wanted.working:
        days = [day for day in days if day.weekday() < 5]
    elif wanted.nth:
        days = [day for day in days if day.weekday() == wanted.nth[0][1]]
    place, *others = [*wanted.month_days, *wanted.working, *(place for place, _ in wanted.nth)]
    if others:
        raise PhraseProblem("has several days", rule="one point in time", fix="only one of them")
    at = place - 1 if place > 0 else len(days) + place
    return days[at] if 0 <= at < len(days) else None
