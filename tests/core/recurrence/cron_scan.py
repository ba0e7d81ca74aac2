"""A second opinion on cron: looks at every minute or second, one by one, and shares no code with it.

What an expression means is read here a second time, by the most obvious means: sets of numbers, a
`datetime` in the zone, its `fold`, and the calendar module.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from timewright.core.recurrence import Trigger

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class ParsedCron(NamedTuple):
    """An expression as sets, with the two day fields kept as text."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    day: str
    months: frozenset[int]
    weekday: str
    years: frozenset[int]
    cadence: bool

    def on(self, day: date) -> bool:
        """Whether a day matches."""
        if day.month not in self.months or day.year not in self.years:
            return False
        weekday = self.weekday.removeprefix("+")
        day_set, weekday_set = self.day not in ("*", "?"), weekday not in ("*", "?")
        in_month = any(day.day in month_days(item, day.year, day.month) for item in self.day.split(","))
        in_week = any(day.day in week_days(item, day.year, day.month) for item in weekday.split(","))
        if day_set and weekday_set:
            return (in_month and in_week) if self.weekday.startswith("+") else (in_month or in_week)
        return in_month if day_set else in_week if weekday_set else True

    def at(self, local: datetime) -> bool:
        """Whether a local time matches."""
        in_time = local.second in self.seconds and local.minute in self.minutes and local.hour in self.hours
        return in_time and self.on(local.date())


@cache
def parse_cron(expression: str) -> ParsedCron:
    """Parse an expression that is known to be valid."""
    fields = expression.upper().split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) == 6:
        fields = [*fields, "*"]
    second, minute, hour, day, month, weekday, year = fields
    sets = (numbers(second, 0, 59), numbers(minute, 0, 59), numbers(hour, 0, 23))
    return ParsedCron(
        *sets,
        day=day,
        months=numbers(month, 1, 12, MONTHS),
        weekday=weekday,
        years=numbers(year, 1969 if year == "*" else 1970, 9999),
        cadence=any(
            text.startswith("*") or len(found) == size
            for text, found, size in zip((second, minute, hour), sets, (60, 60, 24), strict=True)
        ),
    )


def numbers(text: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    """Values, ranges and steps."""
    found: set[int] = set()
    for item in text.split(","):
        head, _, step = item.partition("/")
        if head == "*":
            first, last = low, high
        else:
            ends = [names.index(end) + low if names and end in names else int(end) for end in head.split("-")]
            first, last = ends[0], ends[-1]
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


@cache
def month_days(item: str, year: int, month: int) -> frozenset[int]:
    """The days in a month that one item of the day-of-month field matches."""
    length = calendar.monthrange(year, month)[1]
    if item == "LW":
        return frozenset({nearest_working_day(year, month, length)})
    if item.startswith("L"):
        return frozenset({length - int(item[2:] or 0)} - set(range(-31, 1)))
    if item.endswith("W"):
        return frozenset(
            {nearest_working_day(year, month, int(item[:-1]))} if int(item[:-1]) <= length else ()
        )
    return numbers("*" if item == "?" else item, 1, 31)


def nearest_working_day(year: int, month: int, day: int) -> int:
    """The Monday to Friday nearest to a day, in the same month."""
    length = calendar.monthrange(year, month)[1]
    candidates = [d for d in range(1, length + 1) if date(year, month, d).weekday() < 5]
    return min(candidates, key=lambda d: abs(d - day))


@cache
def week_days(item: str, year: int, month: int) -> frozenset[int]:
    """The days in a month that one item of the weekday field matches."""
    length = calendar.monthrange(year, month)[1]
    days = range(1, length + 1)
    name, nth, which = item.partition("#")
    last = item.endswith("L")
    wanted = weekday_numbers(item[:-1] if last else name)
    same = [day for day in days if date(year, month, day).isoweekday() % 7 in wanted]
    if nth:
        return frozenset(same[int(which) - 1 : int(which)])
    return frozenset(same[-1:] if last else same)


def weekday_numbers(text: str) -> set[int]:
    """Weekdays 0 to 6 where Sunday may be 7, and SUN may end a range."""
    if text in ("*", "?"):
        return set(range(7))
    head, slash, step = text.partition("/")
    if head == "*":
        return set(range(0, 7, int(step)))
    first, _, last = head.partition("-")
    low = WEEKDAYS.index(first) if first in WEEKDAYS else int(first)
    high = low if not last else WEEKDAYS.index(last) if last in WEEKDAYS else int(last)
    high = 7 if last == "SUN" and low > 0 else high
    return {day % 7 for day in range(low, high + 1, int(step) if slash else 1)}


class Reading(NamedTuple):
    """The local time at an instant, and the local times that were skipped just before it."""

    instant: datetime
    local: datetime
    again: bool
    lost: tuple[datetime, ...]


def readings(zone: str, start: datetime, end: datetime, step: timedelta = MINUTE) -> Iterator[Reading]:
    """Every local time from `start` up to and including `end`."""
    info = ZoneInfo(zone)
    instant = start
    expected = (instant - SECOND).astimezone(info).replace(tzinfo=None, fold=0) + SECOND
    while instant <= end:
        local = instant.astimezone(info)
        bare = local.replace(tzinfo=None, fold=0)
        lost = tuple(_steps(expected, bare, step)) if bare > expected else ()
        yield Reading(instant, bare, bool(local.fold), lost)
        expected = bare + step
        instant += step


def _steps(first: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    while first < end:
        yield first
        first += step


def is_occurrence(expression: ParsedCron, policy: str, reading: Reading) -> bool:
    """Whether an instant is an occurrence under a policy."""
    matches = expression.at(reading.local)
    if policy == "match" or (policy == "vixie" and expression.cadence):
        return matches
    if matches and not reading.again:
        return True
    if policy == "skip_once" or not reading.lost:
        return False
    long = reading.local - reading.lost[0] >= timedelta(hours=3)
    return not long and any(expression.at(local) for local in reading.lost)


def scan(
    expression: str, zone: str, policy: str, start: datetime, end: datetime, *, step: timedelta = MINUTE
) -> list[datetime]:
    """Every occurrence from `start` up to and including `end`, found by a full scan."""
    meaning = parse_cron(expression)
    return [
        found.instant for found in readings(zone, start, end, step) if is_occurrence(meaning, policy, found)
    ]


def scan_backwards(cron: Trigger, start: datetime, end: datetime) -> list[datetime]:
    """The instants of a trigger from `start` up to and including `end`, found backwards; oldest first."""
    found: list[datetime] = []
    moment = cron.previous_before(end + SECOND)
    while moment is not None and moment >= start:
        found.append(moment)
        moment = cron.previous_before(moment)
    return found[::-1]


def whole_minute(moment: datetime) -> datetime:
    """The minute that contains an instant."""
    return moment.astimezone(UTC).replace(second=0, microsecond=0)


class Change(NamedTuple):
    """A clock change: the first instant after it, and the offset on both sides."""

    at: datetime
    before: timedelta
    after: timedelta


@cache
def changes(zone: str, first_year: int = 2000, last_year: int = 2040) -> tuple[Change, ...]:
    """Every clock change of a zone, found by sampling every third day and bisecting."""
    info = ZoneInfo(zone)
    moment, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    found: list[Change] = []
    before = offset(info, moment)
    while moment < end:
        later = moment + timedelta(days=3)  # no zone changes twice within a week
        after = offset(info, later)
        if after != before:
            found.append(Change(_bisect(info, moment, later), before, after))
        moment, before = later, after
    return tuple(found)


def offset(info: ZoneInfo, moment: datetime) -> timedelta:
    """The UTC offset at an instant."""
    return moment.astimezone(info).utcoffset() or timedelta(0)


def _bisect(info: ZoneInfo, low: datetime, high: datetime) -> datetime:
    before = offset(info, low)
    while high - low > SECOND:
        middle = low + (high - low) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        low, high = (middle, high) if offset(info, middle) == before else (low, middle)
    return high
