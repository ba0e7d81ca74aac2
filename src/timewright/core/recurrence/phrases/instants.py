"""Turns the parts of a phrase into one point in time, or refuses what does not fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple, TypeVar

from timewright.core.moments import EPOCH
from timewright.core.recurrence.phrases.clock_times import fixed_length, part_without_time, read_time
from timewright.core.recurrence.phrases.instant_parts import (
    DateOfYear,
    FromNow,
    NextWorkingDay,
    NthDate,
    RelativeDay,
    UnitRef,
    WeekdayRef,
    WrittenDate,
    add_months,
    date_or_none,
    make_date,
    nth_in_month,
    written_date,
)
from timewright.core.recurrence.phrases.parts import Length, PartOfDay, Times, Zone
from timewright.core.recurrence.phrases.tokens import (
    WEEKDAY_NAMES,
    PhraseProblem,
    TwoReadings,
    read_written_instant,
)
from timewright.core.recurrence.words import WEEKDAYS
from timewright.core.zones import load_zone

T = TypeVar("T")

_CALENDAR_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_CALENDAR_DAYS = {"day": 1, "week": 7, "fortnight": 14}
# 29 February may be eight years ahead.
MAX_DAYS = 9 * 366
_DAY_PARTS = (FromNow, RelativeDay, NextWorkingDay, UnitRef, NthDate, DateOfYear, WrittenDate)


class Moment(NamedTuple):
    """A point in time that a phrase means, in UTC, and the sentence that repeats how it was read."""

    at: datetime
    read_as: str


class _Reader:
    """Reads the parts of one phrase against now and a zone."""

    def __init__(self, given: Sequence[Any], *, now: datetime, zone: tzinfo, past: bool) -> None:
        self.parts, self.now, self.zone, self.past = given, now, zone, past
        self.local = now.astimezone(zone)
        self.today = self.local.date()
        self.seconds = self._time()

    def one(self, kind: type[T] | tuple[type[T], ...], name: str) -> T | None:
        """Return the part of this kind; a phrase has at most one."""
        found = [part for part in self.parts if isinstance(part, kind)]
        if len(found) > 1:
            raise PhraseProblem(f"has {len(found)} {name}", rule="one point in time", fix="only one of them")
        return found[0] if found else None

    def read(self) -> datetime:
        """Return the instant."""
        if self._is_in_named_unit():
            return self._in_unit()
        day, weekday = self.one(_DAY_PARTS, "days"), self.one(WeekdayRef, "weekdays")
        if day is None:
            return self._next_time() if weekday is None else self._weekday(weekday)
        if isinstance(day, FromNow):
            if weekday is not None:
                raise PhraseProblem(
                    "has a length of time and a weekday",
                    rule="one of them",
                    fix=f"2 weeks from {WEEKDAY_NAMES[weekday.weekday]}, or a date",
                )
            return self._from_now(day)
        if isinstance(day, WrittenDate) and day.kind in ("INSTANT", "UNIX"):
            return self._checked_weekday(self._exact(day), weekday)
        return self._checked_weekday(self._day(day), weekday)

    def _is_in_named_unit(self) -> bool:
        """Whether the phrase is `next week on tuesday` or `next month on the 15th`."""
        unit = [part for part in self.parts if isinstance(part, UnitRef)]
        return bool(unit) and sum(isinstance(part, (*_DAY_PARTS, WeekdayRef)) for part in self.parts) == 2

    def _time(self) -> int | None:
        times, part = self.one(Times, "times"), self.one(PartOfDay, "parts of the day")
        tonight = [one.part for one in self.parts if isinstance(one, RelativeDay) and one.part]
        name = part.name if part is not None else tonight[0] if tonight else ""
        if times is not None and len(times.clocks) > 1:
            raise PhraseProblem(
                f"has {len(times.clocks)} times", rule="one point in time", fix="only one of them"
            )
        if times is None and name:
            raise part_without_time(name)
        if times is None:
            return None
        seconds = read_time(times.clocks[0], name)
        if part is not None and part.name == "night" and seconds < 6 * 3600 and len(self.parts) > 2:
            raise PhraseProblem(
                "has two readings: the night before the day, or the night after it",
                rule="an ambiguous phrase is refused",
                fix="the day without night, as in sunday at 02:00",
            )
        # Tonight at midnight is the end of today; `tonight at 2` too is after it.
        return seconds + 86_400 if tonight == ["night"] and seconds < 6 * 3600 else seconds

    def _at(self, day: date) -> datetime:
        """Return the time of the phrase on a day, 00:00 without one."""
        extra, seconds = divmod(self.seconds or 0, 86_400)
        return _to_instant(datetime.combine(day, time()) + timedelta(days=extra, seconds=seconds), self.zone)

    def _first(self, fits: Callable[[date], bool]) -> datetime:
        """Return the first instant after now on a day that fits; or, for the past, the last one before."""
        for step in range(MAX_DAYS):
            day = self.today + timedelta(days=-step if self.past else step)
            if fits(day):
                at = self._at(day)
                if (at <= self.now) if self.past else (at > self.now):
                    return at
        raise _out_of_range()

    def _next_time(self) -> datetime:
        if self.seconds is None:
            raise PhraseProblem(
                "has no day and no time", rule="a day, a time, or both", fix="tomorrow at 09:00"
            )
        return self._first(lambda _: True)

    def _weekday(self, ref: WeekdayRef) -> datetime:
        ahead = (ref.weekday - self.today.weekday()) % 7
        if ref.which in ("next", "coming"):
            return self._at(self.today + timedelta(days=ahead or 7))
        if ref.which in ("last", "previous"):
            return self._at(self.today + timedelta(days=ahead - 7))
        if ref.which == "this":
            found = self._at(self.today + timedelta(days=ref.weekday - self.today.weekday()))
            if found <= self.now and not self.past:
                name = WEEKDAY_NAMES[ref.weekday]
                raise PhraseProblem(
                    f"has passed: {name} of this week was {found.astimezone(self.zone):%Y-%m-%d %H:%M}",
                    rule="this means the week of today, which begins on Monday",
                    fix=f"next {name}",
                )
            return found
        return self._first(lambda day: day.weekday() == ref.weekday)

    def _day(self, part: Any) -> datetime:
        if isinstance(part, RelativeDay):
            return self._at(self.today + timedelta(days=part.days))
        if isinstance(part, NextWorkingDay):
            return self._at(self.today + timedelta(days={4: 3, 5: 2}.get(self.today.weekday(), 1)))
        if isinstance(part, DateOfYear):
            return self._date(part)
        if isinstance(part, NthDate):
            return self._nth(part)
        if isinstance(part, UnitRef):
            raise PhraseProblem(
                f"does not say the day of {part.which} {part.unit}",
                rule="a week needs a weekday, a month a day",
                fix=f"{part.which} week on monday" if part.unit == "week" else "1st of next month, or a date",
            )
        return self._at(written_date(part, self._year))

    def _date(self, part: DateOfYear) -> datetime:
        if not part.months:
            return self._first(lambda day: day.day == part.day)
        month = part.months[0]
        if part.year is not None:
            return self._at(make_date(part.year, month, part.day))
        make_date(2024, month, part.day)
        return self._first(lambda day: (day.month, day.day) == (month, part.day))

    def _year(self, month: int, day: int) -> date:
        """Return the date in the year in which it is next after now."""
        return self._date(DateOfYear(day, (month,))).astimezone(self.zone).date()

    def _nth(self, part: NthDate) -> datetime:
        if part.year is None and not part.next_month:
            return self._first(
                lambda day: part.month in (None, day.month) and nth_in_month(day, part.days) == day
            )
        month = add_months(self.today, 1) if part.year is None else date(part.year, part.month or 1, 1)
        found = nth_in_month(month, part.days)
        if found is None:
            raise PhraseProblem(
                "has a day that this month does not have", rule="a day of the month", fix="last day"
            )
        return self._at(found)

    def _in_unit(self) -> datetime:
        unit = self.one(UnitRef, "periods")
        weekday, day = self.one(WeekdayRef, "weekdays"), self.one(DateOfYear, "days")
        assert unit is not None
        step = {"next": 1, "this": 0, "last": -1}[unit.which]
        if unit.unit == "week" and weekday is not None and not weekday.which:
            return self._at(self.today + timedelta(days=weekday.weekday - self.today.weekday() + 7 * step))
        if unit.unit == "month" and day is not None and not day.months:
            month = add_months(self.today, step)
            found = date_or_none(month.year, month.month, day.day)
            if found is not None:
                return self._at(found)
        if unit.unit == "year" and day is not None and day.months and day.year is None:
            return self._at(make_date(self.today.year + step, day.months[0], day.day))
        raise PhraseProblem(
            f"has a day that does not fit {unit.which} {unit.unit}",
            rule="a week has weekdays, a month has days",
            fix="a date",
        )

    def _exact(self, part: WrittenDate) -> datetime:
        if self.seconds is not None:
            raise PhraseProblem("has two times", rule="one point in time", fix="only one of them")
        if part.kind == "UNIX":
            return EPOCH + timedelta(seconds=part.value)
        local, offset = read_written_instant(part.value)
        return _to_instant(local, self.zone) if offset is None else (local - offset).replace(tzinfo=UTC)

    def _checked_weekday(self, at: datetime, ref: WeekdayRef | None) -> datetime:
        found = at.astimezone(self.zone).weekday()
        if ref is not None and (ref.which or ref.weekday != found):
            raise PhraseProblem(
                f"says {WEEKDAY_NAMES[ref.weekday]}, but the date is a {WEEKDAY_NAMES[found]}",
                rule="weekday and date must agree",
                fix="only the date",
            )
        return at

    def _from_now(self, part: FromNow) -> datetime:
        sign = -1 if part.ago else 1
        if part.length == Length():
            return self.now
        start = self.today
        if part.start is not None:
            named = part.start
            first = self._weekday(named) if isinstance(named, WeekdayRef) else self._day(named)
            start = first.astimezone(self.zone).date()
        number, unit = part.length.pieces[0] if len(part.length.pieces) == 1 else (0, "")
        whole = int(number) if number == int(number) else 0
        try:
            if unit in _CALENDAR_DAYS and whole:
                day = start + timedelta(days=sign * whole * _CALENDAR_DAYS[unit])
            elif unit in _CALENDAR_MONTHS and whole:
                day = add_months(start, sign * whole * _CALENDAR_MONTHS[unit])
            elif self.seconds is not None or part.start is not None:
                raise PhraseProblem(
                    "has a length in hours and a day or a time of day",
                    rule="only days and longer have a time",
                    fix="in 2 days at 9am",
                )
            else:
                return self.now + sign * fixed_length(part.length)
        except (OverflowError, ValueError):
            raise _out_of_range() from None
        if self.seconds is not None or part.start is not None:
            return self._at(day)
        # A time that a clock change skips or repeats is moved, because nobody wrote it.
        return datetime.combine(day, self.local.time(), tzinfo=self.zone).astimezone(UTC)


def make_moment(given: Sequence[Any], *, now: datetime, zone: str | tzinfo, past: bool = False) -> Moment:
    """Return the instant that the parts mean; `past` looks for the last one before now."""
    written = {part.name for part in given if isinstance(part, Zone)}
    if len(written) > 1:
        raise PhraseProblem("has two time zones", rule="one zone", fix="only one of them")
    name = next(iter(written), zone)
    rules = load_zone(name) if isinstance(name, str) else name
    try:
        at = _Reader(given, now=now, zone=rules, past=past).read().astimezone(UTC)
        return Moment(at, describe_moment(at, rules, name if isinstance(name, str) else ""))
    except OverflowError:
        raise _out_of_range() from None


def describe_moment(at: datetime, zone: tzinfo, name: str) -> str:
    """Return words that read as the same instant: `Friday 2026-12-25 at 09:00, Europe/Berlin`."""
    local = at.astimezone(zone)
    zone_name = name or getattr(zone, "key", "") or ""
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    exact = f"T{local:%H:%M:%S}{_offset(local)}" if twice or not zone_name else f" at {clock}"
    shown = f"{WEEKDAYS[local.weekday()]} {local:%Y-%m-%d}{exact}"
    return f"{shown}, {zone_name}" if zone_name else shown


def _to_instant(local: datetime, zone: tzinfo) -> datetime:
    """Return the instant of a local time; one that a clock change skips or repeats is refused."""
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None, fold=0) != local:
        after = max(first, second).astimezone(zone)
        raise PhraseProblem(
            f"does not exist: on {local:%Y-%m-%d} the clock skips {local:%H:%M} in this zone",
            rule="a local time must exist",
            fix=f"{after:%Y-%m-%d %H:%M}",
        )
    if first != second:
        one, two = (f"{local:%Y-%m-%dT%H:%M:%S}{_offset(at.astimezone(zone))}" for at in (first, second))
        raise TwoReadings(f"the clock shows {local:%Y-%m-%d %H:%M} twice", one, two)
    return first


def _offset(local: datetime) -> str:
    text = f"{local:%z}"
    return f"{text[:3]}:{text[3:5]}"


def _out_of_range() -> PhraseProblem:
    return PhraseProblem("is out of range", rule="a year from 1 to 9999", fix="2026-12-25 09:00")
