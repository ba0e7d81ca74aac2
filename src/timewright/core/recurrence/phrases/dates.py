"""Days of the calendar: written dates, and days counted within a month."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date

from timewright.core.recurrence.phrases.instant_parts import NthDate, WrittenDate
from timewright.core.recurrence.phrases.tokens import MONTH_NAMES, PhraseProblem, TwoReadings


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


def nth_in_month(year: int, month: int, part: NthDate) -> date | None:
    try:
        length = monthrange(year, month)[1]
    except (ValueError, OverflowError):
        return None
    wanted = part.days
    days = [date(year, month, day) for day in range(1, length + 1)]
    if wanted.working:
        days = [day for day in days if day.weekday() < 5]
    elif wanted.weekday is not None:
        days = [day for day in days if day.weekday() == wanted.weekday]
    place = wanted.positions[0]
    if len(wanted.positions) > 1:
        raise PhraseProblem("has several days", rule="one point in time", fix="only one of them")
    at = place - 1 if place > 0 else len(days) + place
    return days[at] if 0 <= at < len(days) else None
