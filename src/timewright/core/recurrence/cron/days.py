"""The days that a cron expression matches, by the shape of the year.

A day rule depends only on the weekday a month begins with and on its length, so there are 14 shapes of years.
One 366-bit set for each shape gives the next matching day. The years with a matching day are known exactly,
so an impossible date is found without searching.
"""

from __future__ import annotations

from calendar import isleap
from datetime import date
from functools import cache, lru_cache
from typing import NamedTuple

from timewright.core.recurrence.cron.fields import LAST_YEAR, bit_values, step_bits

NO_DAY = 1 << 40

# At the first instant of 1970 UTC, local time may still be in 1969.
_EDGE_YEAR = 1969
_EVERY_YEAR = step_bits(0, LAST_YEAR - _EDGE_YEAR)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_DAY = date(LAST_YEAR, 12, 31).toordinal() - _EPOCH_ORDINAL
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIVE_WEEKS = step_bits(0, 28, 7)
_IN_EVERY_MONTH = step_bits(1, 28)


class MonthDays(NamedTuple):
    """A day-of-month field: plain days, L and L-n by n, nW by n, and LW."""

    days: int = 0
    before_last: int = 0
    nearest: int = 0
    last_working: bool = False

    def in_month(self, first_weekday: int, length: int) -> int:
        """Return the matching days in a month of this shape; bit 0 is the first."""
        found = self.days >> 1 & (1 << length) - 1
        for back in bit_values(self.before_last & (1 << length) - 1):
            found |= 1 << length - 1 - back
        for day in bit_values(self.nearest & (2 << length) - 1):
            found |= 1 << _nearest_working(day, first_weekday, length) - 1
        if self.last_working:
            found |= 1 << _nearest_working(length, first_weekday, length) - 1
        return found

    def in_every_month(self) -> bool:
        """Whether every month has a matching day."""
        early = (self.days | self.nearest) & _IN_EVERY_MONTH
        return bool(early or self.before_last & _IN_EVERY_MONTH >> 1 or self.last_working)


class WeekDays(NamedTuple):
    """A weekday field: plain weekdays, n#k as bit 7k + n, and nL."""

    weekdays: int = 0
    nth: int = 0
    last: int = 0

    def in_month(self, first_weekday: int, length: int) -> int:
        """Return the matching days in a month of this shape; bit 0 is the first."""
        week = (self.weekdays >> first_weekday | self.weekdays << 7 - first_weekday) & 0b1111111
        found = week * _FIVE_WEEKS & (1 << length) - 1
        for nth in bit_values(self.nth):
            day = (nth % 7 - first_weekday) % 7 + 7 * (nth // 7 - 1)
            found |= 1 << day if day < length else 0
        for weekday in bit_values(self.last):
            found |= 1 << length - 1 - (first_weekday + length - 1 - weekday) % 7
        return found

    def in_every_month(self) -> bool:
        """Whether every month has a matching day."""
        return bool(self.weekdays or self.last or self.nth & step_bits(7, 34))


class DayRule(NamedTuple):
    """The three day fields; None means no restriction."""

    months: int
    month_days: MonthDays | None
    week_days: WeekDays | None
    both: bool = False

    def in_month(self, first_weekday: int, length: int) -> int:
        """Return the matching days in a month of this shape; bit 0 is the first."""
        fields = [
            f.in_month(first_weekday, length) for f in (self.month_days, self.week_days) if f is not None
        ]
        if not fields:
            return (1 << length) - 1
        return fields[0] & fields[-1] if self.both else fields[0] | fields[-1]

    def in_every_month(self) -> bool:
        """Whether every month certainly has a matching day; a quick check that may return False too often."""
        fields = [f.in_every_month() for f in (self.month_days, self.week_days) if f is not None]
        return not fields or (any(fields) and not (self.both and len(fields) > 1))

    def in_year(self, shape: int) -> int:
        """Return the matching days in a year of this shape; bit 0 is January 1."""
        found = 0
        for month, (begin, first_weekday, length) in enumerate(_months(shape), 1):
            if self.months >> month & 1:
                found |= self.in_month(first_weekday, length) << begin
        return found


class MatchingDays:
    """The matching days from 1969 to 9999, counted from 1970-01-01."""

    __slots__ = ("_any_year", "_by_shape", "_rule", "years")

    def __init__(self, rule: DayRule, years: int | None) -> None:
        self._rule = rule
        self._by_shape: list[int | None] = [None] * 14
        allowed = _EVERY_YEAR if years is None else years >> _EDGE_YEAR
        self.years = allowed if rule.in_every_month() else allowed & self._years_with_a_day()
        self._any_year = self.years == _EVERY_YEAR

    def first_from(self, day: int) -> int:
        """Return the first matching day on or after this one, or `NO_DAY`."""
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
        """Return the last matching day on or before this one, or minus `NO_DAY`."""
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

    def nearest_year(self, year: int) -> int:
        """Return the first year with a matching day from this one on, else the last one before."""
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
def matching_days(rule: DayRule, years: int | None) -> MatchingDays:
    """Return the days of a rule; cached, so expressions with the same rule share it."""
    return MatchingDays(rule, years)


def max_month_length(month: int) -> int:
    """Return the maximum number of days of a month."""
    return _LENGTHS[month - 1] + (month == 2)


@cache
def _year(year: int) -> tuple[int, int]:
    """Return the day number of January 1, and the shape: 2 × its weekday, plus 1 for a leap year."""
    ordinal = date(year, 1, 1).toordinal()
    return ordinal - _EPOCH_ORDINAL, ordinal % 7 * 2 + isleap(year)


@cache
def _months(shape: int) -> tuple[tuple[int, int, int], ...]:
    """Return for each month: the day of the year it begins on, the weekday of that day, and its length."""
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
    """Return the years of each shape; the calendar repeats every 400 years."""
    cycle = [0] * 14
    for bit in range(400):
        cycle[_year(_EDGE_YEAR + bit)[1]] |= 1 << bit
    repeats = step_bits(0, LAST_YEAR - _EDGE_YEAR, 400)
    return tuple(bits * repeats for bits in cycle)


def _nearest_working(day: int, first_weekday: int, length: int) -> int:
    """Return the day itself if it is Monday to Friday, else the nearest such day of the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
