"""Which days a cron expression means, by the shape of the year they fall in.

Every day rule depends only on the weekday a month begins with and on its length, so there are
fourteen kinds of years. One 366-bit set for each kind answers which day comes next, and the years
that hold any matching day are known exactly: an impossible date is found without searching.
"""

from __future__ import annotations

from calendar import isleap
from datetime import date
from functools import cache, lru_cache
from typing import NamedTuple

from timewright.core.cron.fields import LAST_YEAR, stepped, values

NO_DAY = 1 << 40

# Local time may still be in 1969 when the first instant of 1970 comes.
_EDGE_YEAR = 1969
_EVERY_YEAR = stepped(0, LAST_YEAR - _EDGE_YEAR)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_DAY = date(LAST_YEAR, 12, 31).toordinal() - _EPOCH_ORDINAL
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIVE_WEEKS = stepped(0, 28, 7)
_IN_EVERY_MONTH = stepped(1, 28)


class MonthDays(NamedTuple):
    """A day-of-month field: plain days, L and L-n by n, nW by n, and LW."""

    days: int = 0
    before_last: int = 0
    nearest: int = 0
    last_working: bool = False

    def in_month(self, first_weekday: int, length: int) -> int:
        """The days it means in a month of this shape; bit 0 is the first."""
        found = self.days >> 1 & (1 << length) - 1
        for back in values(self.before_last & (1 << length) - 1):
            found |= 1 << length - 1 - back
        for day in values(self.nearest & (2 << length) - 1):
            found |= 1 << _nearest_working(day, first_weekday, length) - 1
        if self.last_working:
            found |= 1 << _nearest_working(length, first_weekday, length) - 1
        return found

    def in_every_month(self) -> bool:
        """Whether even the shortest month has one of its days."""
        early = (self.days | self.nearest) & _IN_EVERY_MONTH
        return bool(early or self.before_last & _IN_EVERY_MONTH >> 1 or self.last_working)


class WeekDays(NamedTuple):
    """A weekday field: plain weekdays, n#k as bit 7k + n, and nL."""

    weekdays: int = 0
    nth: int = 0
    last: int = 0

    def in_month(self, first_weekday: int, length: int) -> int:
        """The days it means in a month of this shape; bit 0 is the first."""
        week = (self.weekdays >> first_weekday | self.weekdays << 7 - first_weekday) & 0b1111111
        found = week * _FIVE_WEEKS & (1 << length) - 1
        for nth in values(self.nth):
            day = (nth % 7 - first_weekday) % 7 + 7 * (nth // 7 - 1)
            found |= 1 << day if day < length else 0
        for weekday in values(self.last):
            found |= 1 << length - 1 - (first_weekday + length - 1 - weekday) % 7
        return found

    def in_every_month(self) -> bool:
        """Whether even the shortest month has one of its days."""
        return bool(self.weekdays or self.last or self.nth & stepped(7, 34))


class DayRule(NamedTuple):
    """The three day fields together; a field that is None does not restrict."""

    months: int
    month_days: MonthDays | None
    week_days: WeekDays | None
    both: bool = False

    def in_month(self, first_weekday: int, length: int) -> int:
        """The days that match in a month of this shape; bit 0 is the first."""
        fields = [
            f.in_month(first_weekday, length) for f in (self.month_days, self.week_days) if f is not None
        ]
        if not fields:
            return (1 << length) - 1
        return fields[0] & fields[-1] if self.both else fields[0] | fields[-1]

    def in_every_month(self) -> bool:
        """Whether a glance shows that no month is without a matching day."""
        fields = [f.in_every_month() for f in (self.month_days, self.week_days) if f is not None]
        return not fields or (any(fields) and not (self.both and len(fields) > 1))

    def in_year(self, shape: int) -> int:
        """The days that match in a year of this shape; bit 0 is the first of January."""
        found = 0
        for month, (begin, first_weekday, length) in enumerate(_months(shape), 1):
            if self.months >> month & 1:
                found |= self.in_month(first_weekday, length) << begin
        return found


class Days:
    """The matching days from 1969 to 9999, counted from the first of January 1970."""

    __slots__ = ("_any_year", "_by_shape", "_rule", "years")

    def __init__(self, rule: DayRule, years: int | None) -> None:
        self._rule = rule
        self._by_shape: list[int | None] = [None] * 14
        allowed = _EVERY_YEAR if years is None else years >> _EDGE_YEAR
        self.years = allowed if rule.in_every_month() else allowed & self._years_with_a_day()
        self._any_year = self.years == _EVERY_YEAR

    def first_from(self, day: int) -> int:
        """The first matching day on or after this one, or `NO_DAY`."""
        if day > _LAST_DAY:
            return NO_DAY
        year = date.fromordinal(day + _EPOCH_ORDINAL).year
        if self._any_year or self.years >> year - _EDGE_YEAR & 1:
            begin, shape = _year(year)
            rest = self._in_year(shape) >> day - begin
            if rest:
                return day + (rest & -rest).bit_length() - 1
        following = self._year_from(year + 1)
        if following is None:
            return NO_DAY
        begin, shape = _year(following)
        rest = self._in_year(shape)
        return begin + (rest & -rest).bit_length() - 1

    def last_to(self, day: int) -> int:
        """The last matching day on or before this one, or minus `NO_DAY`."""
        day = min(day, _LAST_DAY)
        year = date.fromordinal(day + _EPOCH_ORDINAL).year
        if self._any_year or self.years >> year - _EDGE_YEAR & 1:
            begin, shape = _year(year)
            rest = self._in_year(shape) & (2 << day - begin) - 1
            if rest:
                return begin + rest.bit_length() - 1
        earlier = self.years & (1 << year - _EDGE_YEAR) - 1
        if not earlier:
            return -NO_DAY
        begin, shape = _year(_EDGE_YEAR + earlier.bit_length() - 1)
        return begin + self._in_year(shape).bit_length() - 1

    def year_near(self, year: int) -> int:
        """The first year with a matching day from this one on, or the last one before."""
        return self._year_from(year) or _EDGE_YEAR + self.years.bit_length() - 1

    def _year_from(self, year: int) -> int | None:
        if self._any_year and year <= LAST_YEAR:
            return year
        later = self.years >> year - _EDGE_YEAR
        return year + (later & -later).bit_length() - 1 if later else None

    def _in_year(self, shape: int) -> int:
        found = self._by_shape[shape]
        if found is None:
            found = self._by_shape[shape] = self._rule.in_year(shape)
        return found

    def _years_with_a_day(self) -> int:
        found = 0
        for shape, years in enumerate(_years_by_shape()):
            if self._in_year(shape):
                found |= years
        return found


@lru_cache(maxsize=1024)
def matching_days(rule: DayRule, years: int | None) -> Days:
    """The days of a rule, shared by every expression that has it."""
    return Days(rule, years)


def length_of(month: int) -> int:
    """The most days a month can have."""
    return _LENGTHS[month - 1] + (month == 2)


@cache
def _year(year: int) -> tuple[int, int]:
    """The day number of the first of January, and the shape: its weekday twice, plus one for a leap year."""
    ordinal = date(year, 1, 1).toordinal()
    return ordinal - _EPOCH_ORDINAL, ordinal % 7 * 2 + isleap(year)


@cache
def _months(shape: int) -> tuple[tuple[int, int, int], ...]:
    """Of each month: the day of the year it begins on, the weekday of that day, its length."""
    weekday, leap = divmod(shape, 2)
    months: list[tuple[int, int, int]] = []
    begin = 0
    for month, plain in enumerate(_LENGTHS, 1):
        length = plain + (leap and month == 2)
        months.append((begin, (weekday + begin) % 7, length))
        begin += length
    return tuple(months)


@cache
def _years_by_shape() -> tuple[int, ...]:
    """The years of each shape; the calendar repeats every 400 years."""
    cycle = [0] * 14
    for bit in range(400):
        cycle[_year(_EDGE_YEAR + bit)[1]] |= 1 << bit
    repeats = stepped(0, LAST_YEAR - _EDGE_YEAR, 400)
    return tuple(bits * repeats for bits in cycle)


def _nearest_working(day: int, first_weekday: int, length: int) -> int:
    """The day itself from Monday to Friday, else the nearest such day of the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
