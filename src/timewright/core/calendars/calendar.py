"""A calendar: dates, weekly hours and time spans, and whether they cover an instant.

Importers of public holidays and iCalendar files fill `dates`, `names` and `spans`, and record the origin in
`source`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import isleap
from datetime import UTC, date, datetime, time
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from timewright.core.moments import DAY, EPOCH, SECOND, as_instant, format_instant
from timewright.core.recurrence.offset_periods import offset_periods
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput

MAX_DATES = 10_000
MAX_RANGES = 2_000
MAX_SPANS = 10_000
MAX_WEEKLY = 100
MAX_DAY_NAME_LENGTH = 200

_CLOCK_PATTERN = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?|24:00(?::00)?")
_MONTH_DAY = re.compile(r"([0-9]{2})-([0-9]{2})")
_FULL_DAY = 86_400
_FIRST_DAY, _SPAN_START = attrgetter("first"), attrgetter("start")
_LEAP_YEAR = 2000


class DateRange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole days from the first to the last, both inclusive."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InvalidInput(
                f"the range from {self.first} to {self.last} ends before it starts",
                field="ranges.last",
                value=str(self.last),
                rule="the last day is not before the first",
                fix=f"first: {self.last}, last: {self.first}",
            )


class Span(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time span from `start` (inclusive) to `end` (exclusive)."""

    start: datetime
    end: datetime
    name: Annotated[str, Meta(max_length=MAX_DAY_NAME_LENGTH)] = ""

    def __post_init__(self) -> None:
        force_setattr(self, "start", as_instant(self.start, field="spans.start"))
        force_setattr(self, "end", as_instant(self.end, field="spans.end"))
        if self.end <= self.start:
            raise InvalidInput(
                f"a span from {format_instant(self.start)} to {format_instant(self.end)} is empty",
                field="spans.end",
                value=format_instant(self.end),
                rule="the end is after the start",
                fix="swap them, or move the end",
            )


class WeeklyHours(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours on some weekdays (0 is Monday), from `start` (inclusive) to `end` (exclusive, up to 24:00)."""

    days: tuple[Annotated[int, Meta(ge=0, le=6)], ...]
    start: str = "00:00"
    end: str = "24:00"

    def __post_init__(self) -> None:
        force_setattr(self, "days", _sorted_days(self.days))
        opens, closes = (
            _parse_clock(self.start, field="weekly.start"),
            _parse_clock(self.end, field="weekly.end"),
        )
        if closes <= opens:
            raise InvalidInput(
                f"weekly hours from {self.start} to {self.end} end before they start",
                field="weekly.end",
                value=self.end,
                rule="hours stay within one day; the end is after the start",
                fix=f"two entries: {self.start} to 24:00, and 00:00 to {self.end} on the days after",
            )

    @property
    def seconds(self) -> tuple[int, int]:
        """Start and end in seconds since midnight."""
        return _parse_clock(self.start, field="weekly.start"), _parse_clock(self.end, field="weekly.end")


class CalendarSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the days of a calendar were imported from, with which library, and for which years."""

    kind: Literal["holidays", "ical"]
    first_year: int
    last_year: int
    library: Annotated[str, Meta(max_length=100)]
    read_at: datetime
    country: Annotated[str, Meta(max_length=16)] = ""
    subdivision: Annotated[str, Meta(max_length=32)] = ""

    @property
    def years(self) -> str:
        """The years as text: `2026-2028`."""
        return f"{self.first_year}-{self.last_year}"


class Calendar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named days and hours; an instant is covered if any of the entries contains it.

    Entries are sorted and unique; adjacent ranges and spans are merged.
    """

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    revision: Annotated[int, Meta(ge=1)] = 1
    zone: str = "UTC"
    dates: tuple[date, ...] = ()
    yearly: tuple[str, ...] = ()
    ranges: tuple[DateRange, ...] = ()
    weekly: tuple[WeeklyHours, ...] = ()
    spans: tuple[Span, ...] = ()
    names: dict[str, Annotated[str, Meta(max_length=MAX_DAY_NAME_LENGTH)]] = {}
    source: CalendarSource | None = None

    def __post_init__(self) -> None:
        check_zone(self.zone)
        for field, max_count in (("dates", MAX_DATES), ("ranges", MAX_RANGES), ("spans", MAX_SPANS)):
            _check_count(field, getattr(self, field), max_count)
        _check_count("weekly", self.weekly, MAX_WEEKLY)
        _check_count("yearly", self.yearly, MAX_DATES)
        force_setattr(self, "dates", tuple(sorted({_whole_day(day) for day in self.dates})))
        force_setattr(self, "yearly", tuple(sorted({_month_day(text) for text in self.yearly})))
        force_setattr(self, "ranges", tuple(_joined_ranges(self.ranges)))
        force_setattr(self, "spans", tuple(_joined_spans(self.spans)))
        _check_names(self.names, {*map(str, self.dates), *self.yearly})

    def covers(self, moment: datetime) -> bool:
        """Whether the calendar contains the instant."""
        moment = as_instant(moment)
        local = moment.astimezone(ZoneInfo(self.zone))
        return self._has_day(local.date()) or self._has_hour(local) or self._span_at(moment) is not None

    def next_boundary(self, moment: datetime) -> datetime:
        """Return a later instant up to which `covers` does not change; it may change there."""
        moment = as_instant(moment)
        # Until the next clock change, local time advances like UTC.
        offset_period = offset_periods(self.zone, "match").at((moment - EPOCH) // SECOND)
        boundaries = [EPOCH + offset_period.end * SECOND]
        reading = moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None, fold=0)
        local_boundary = (
            self._next_hour_boundary(reading) if self.weekly else self._next_day_boundary(reading.date())
        )
        if local_boundary is not None:
            boundaries.append(moment + (local_boundary - reading))
        found = bisect_right(self.spans, moment, key=_SPAN_START)
        if found and self.spans[found - 1].end > moment:
            boundaries.append(self.spans[found - 1].end)
        boundaries.extend(span.start for span in self.spans[found : found + 1])
        return min(boundaries)

    def name_at(self, moment: datetime) -> str:
        """Return the name of the day or the span of an instant, or an empty string."""
        moment = as_instant(moment)
        day = local_day(moment, self.zone).isoformat()
        span = self._span_at(moment)
        return self.names.get(day) or self.names.get(day[5:]) or (span.name if span is not None else "")

    def _span_at(self, moment: datetime) -> Span | None:
        found = bisect_right(self.spans, moment, key=_SPAN_START)
        return self.spans[found - 1] if found and moment < self.spans[found - 1].end else None

    def _has_day(self, day: date) -> bool:
        at = bisect_left(self.dates, day)
        if self.dates[at : at + 1] == (day,) or f"{day:%m-%d}" in self.yearly:
            return True
        found = bisect_right(self.ranges, day, key=_FIRST_DAY)
        return found > 0 and day <= self.ranges[found - 1].last

    def _has_hour(self, local: datetime) -> bool:
        if not self.weekly:
            return False
        # HH:MM[:SS] sorts as text in time order, including 24:00.
        today, reading = local.weekday(), local.time().isoformat("seconds")
        return any(today in hours.days and hours.start <= reading < hours.end for hours in self.weekly)

    def _next_hour_boundary(self, reading: datetime) -> datetime:
        """Return the next local time at which weekly hours begin or end, or the day ends."""
        midnight, today = datetime.combine(reading, time()), reading.weekday()
        bounds = (second for hours in self.weekly if today in hours.days for second in hours.seconds)
        boundaries = (midnight + second * SECOND for second in bounds)
        return min((boundary for boundary in boundaries if boundary > reading), default=midnight + DAY)

    def _next_day_boundary(self, today: date) -> datetime | None:
        """Return the local start of the next day on which coverage by days may change, or None."""
        found = bisect_right(self.ranges, today, key=_FIRST_DAY)
        if found and self.ranges[found - 1].last >= today:
            last = self.ranges[found - 1].last
            return None if last == date.max else datetime.combine(last + DAY, time())
        if self._has_day(today):
            return datetime.combine(today + DAY, time())
        ahead = bisect_right(self.dates, today)
        days = [span.first for span in self.ranges[found : found + 1]]
        days.extend(self.dates[ahead : ahead + 1])
        if self.yearly:
            days.append(_next_yearly(self.yearly, today))
        return datetime.combine(min(days), time()) if days else None


def local_day(moment: datetime, zone: str) -> date:
    """Return the local date of an instant in a time zone."""
    return moment.astimezone(ZoneInfo(zone)).date()


def day_start(day: date, zone: str) -> datetime:
    """Return the first instant of a day in a time zone."""
    return instant_of_reading(day, time(), zone)


def instant_of_reading(day: date, clock: time, zone: str) -> datetime:
    """Return the first instant with this local time; in a clock-change gap, the first instant after it."""
    rules, reading = ZoneInfo(zone), datetime.combine(day, clock.replace(tzinfo=None, fold=0))
    at = reading.replace(tzinfo=rules).astimezone(UTC)
    if at.astimezone(rules).replace(tzinfo=None, fold=0) == reading:
        return at
    return EPOCH + offset_periods(zone, "match").at((at - EPOCH) // SECOND).start * SECOND


@lru_cache(maxsize=4096)
def _parse_clock(text: str, *, field: str) -> int:
    """Parse a time of day as seconds since midnight; 24:00 is the end of the day."""
    found = _CLOCK_PATTERN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"{field} {str(text)[:32]!r} is not a time of day",
            field=field,
            value=str(text)[:32],
            rule="HH:MM or HH:MM:SS, from 00:00 to 24:00",
            fix='"09:00" or "17:30", in quotes',
        )
    hour, minute, second = found.groups()
    return _FULL_DAY if hour is None else int(hour) * 3600 + int(minute) * 60 + int(second or 0)


def _sorted_days(days: tuple[int, ...]) -> tuple[int, ...]:
    if not days or not all(type(day) is int and 0 <= day <= 6 for day in days):
        raise InvalidInput(
            f"weekly.days {str(list(days))[:64]} are not weekdays",
            field="weekly.days",
            value=str(list(days))[:64],
            rule="one or more of 0 (Monday) to 6 (Sunday)",
            fix="days: [0, 1, 2, 3, 4] for Monday to Friday",
        )
    return tuple(sorted(set(days)))


def _month_day(text: str) -> str:
    found = _MONTH_DAY.fullmatch(text) if isinstance(text, str) else None
    try:
        return f"{date(_LEAP_YEAR, int(found[1]), int(found[2])):%m-%d}" if found else _yearly_error(text)
    except ValueError:
        return _yearly_error(text)


def _yearly_error(text: object) -> str:
    raise InvalidInput(
        f"yearly {str(text)[:32]!r} is not a day of the year",
        field="yearly",
        value=str(text)[:32],
        rule="MM-DD",
        fix='"12-25" for Christmas Day',
    ) from None


def _whole_day(day: date) -> date:
    if isinstance(day, datetime) or not isinstance(day, date):
        raise InvalidInput(
            f"dates {str(day)[:32]!r} is not a day",
            field="dates",
            value=str(day)[:32],
            rule="YYYY-MM-DD, without a time",
            fix="2026-12-25; spans hold instants",
        )
    return day


def _check_count(field: str, entries: tuple[Any, ...], max_count: int) -> None:
    if len(entries) > max_count:
        raise InvalidInput(
            f"{field} has {len(entries)} entries",
            field=field,
            value=len(entries),
            rule=f"at most {max_count}",
            fix="use two calendars, or ranges instead of single days",
        )


def _check_names(names: dict[str, str], days: set[str]) -> None:
    _check_count("names", tuple(names), MAX_DATES)
    unknown = next((day for day in names if day not in days), None)
    if unknown is not None:
        raise InvalidInput(
            f"names has {unknown[:32]!r}, which is not a day of this calendar",
            field="names",
            value=unknown[:32],
            rule="a name belongs to one of `dates` (YYYY-MM-DD) or `yearly` (MM-DD)",
            fix="add the day to dates, or remove its name",
        )


def join_names(one: str, other: str) -> str:
    """Join two names with `and`, unless one is empty or contained in the other."""
    if not one or not other or other in one.split(" and "):
        return one or other
    return f"{one} and {other}"[:MAX_DAY_NAME_LENGTH]


def _joined_ranges(ranges: tuple[DateRange, ...]) -> list[DateRange]:
    joined: list[DateRange] = []
    for run in sorted(ranges, key=_FIRST_DAY):
        before = joined[-1] if joined else None
        if before is None or (before.last < date.max and run.first > before.last + DAY):
            joined.append(run)
        else:
            joined[-1] = DateRange(first=before.first, last=max(before.last, run.last))
    return joined


def _joined_spans(spans: tuple[Span, ...]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans, key=_SPAN_START):
        before = joined[-1] if joined else None
        if before is None or span.start > before.end:
            joined.append(span)
        else:
            name = join_names(before.name, span.name)
            joined[-1] = Span(start=before.start, end=max(before.end, span.end), name=name)
    return joined


def _next_yearly(yearly: tuple[str, ...], today: date) -> date:
    """Return the next of the yearly days; 29 February may be up to eight years ahead."""
    days = ((year, text) for year in range(today.year, today.year + 9) for text in yearly)
    texts = (f"{year:04d}-{text}" for year, text in days if text != "02-29" or isleap(year))
    return next(date.fromisoformat(text) for text in texts if text > today.isoformat())
