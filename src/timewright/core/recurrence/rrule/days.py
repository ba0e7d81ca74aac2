"""The days of a recurrence rule, by month or by year, counted from 1970-01-01."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import date, datetime

from timewright.core.recurrence.rrule.grammar import RecurrenceRule

EPOCH_DAY = date(1970, 1, 1).toordinal()
NO_DAY = 1 << 24
MAX_YEARS = 400

_LAST_YEAR = 9999
_MAX_CACHED = 512


class RuleDays:
    """The days of one rule from its anchor on; the search covers at most 400 years."""

    __slots__ = ("_cache", "_first", "_month", "_month_day", "_rule", "_weekday", "_yearly")

    def __init__(self, rule: RecurrenceRule, anchor: datetime) -> None:
        self._rule = rule
        self._first = anchor.toordinal() - EPOCH_DAY
        self._month = anchor.month
        self._month_day = anchor.day
        self._weekday = anchor.weekday()
        # Days are computed and cached per year for YEARLY rules, else per month.
        self._yearly = rule.frequency == "YEARLY"
        self._cache: dict[int, tuple[int, ...]] = {}

    def first_from(self, day: int) -> int:
        """Return the first day on or after this one, or `NO_DAY`."""
        day = max(day, self._first)
        if day > date.max.toordinal() - EPOCH_DAY:
            return NO_DAY
        page = self._page_of(day)
        for number in range(page, min(page + self._max_pages(), self._end_page())):
            found = self._days(number)
            if found and found[-1] >= day:
                return found[bisect_left(found, day)]
        return NO_DAY

    def last_to(self, day: int) -> int:
        """Return the last day on or before this one, or minus `NO_DAY`."""
        day = min(day, date.max.toordinal() - EPOCH_DAY)
        if day < self._first:
            return -NO_DAY
        page, begin = self._page_of(day), self._page_of(self._first)
        for number in range(page, max(page - self._max_pages(), begin - 1), -1):
            found = self._days(number)
            if found and found[0] <= day:
                return found[bisect_right(found, day) - 1]
        return -NO_DAY

    def _max_pages(self) -> int:
        return MAX_YEARS if self._yearly else MAX_YEARS * 12

    def _end_page(self) -> int:
        return _LAST_YEAR + 1 if self._yearly else (_LAST_YEAR + 1) * 12

    def _page_of(self, day: int) -> int:
        on = date.fromordinal(day + EPOCH_DAY)
        return on.year if self._yearly else on.year * 12 + on.month - 1

    def _days(self, page: int) -> tuple[int, ...]:
        found = self._cache.get(page)
        if found is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            found = self._cache[page] = tuple(day for day in self._compute(page) if day >= self._first)
        return found

    def _compute(self, page: int) -> list[int]:
        rule = self._rule
        if rule.frequency == "YEARLY":
            away = page - date.fromordinal(self._first + EPOCH_DAY).year
            return [] if away % rule.interval else self._select_positions(sorted(set(self._of_year(page))))
        year, month = divmod(page, 12)
        if rule.months and month + 1 not in rule.months:
            return []
        if rule.frequency == "MONTHLY":
            away = page - self._page_of(self._first)
            return (
                []
                if away % rule.interval
                else self._select_positions(sorted(self._of_month(year, month + 1)))
            )
        return list(self._stepped(year, month + 1))

    def _stepped(self, year: int, month: int) -> Iterator[int]:
        """Return the days of a month that a DAILY or WEEKLY rule matches."""
        rule, begin = self._rule, _day(year, month, 1)
        length = monthrange(year, month)[1]
        wanted = _month_days(rule.month_days, length, clamped=False) if rule.month_days else None
        weekdays = {one.day for one in rule.weekdays}
        days = range(begin + (self._first - begin) % rule.interval, begin + length, rule.interval)
        if rule.frequency == "WEEKLY":
            weekdays = weekdays or {self._weekday}
            days = range(begin, begin + length)
        for day in days:
            if weekdays and (day + 3) % 7 not in weekdays:
                continue
            if wanted is not None and day - begin + 1 not in wanted:
                continue
            if rule.frequency == "DAILY" or self._weeks_to(day) % rule.interval == 0:
                yield day

    def _weeks_to(self, day: int) -> int:
        # 1970-01-01 was a Thursday.
        begins = 3 - self._rule.week_start
        return (day + begins) // 7 - (self._first + begins) // 7

    def _of_year(self, year: int) -> Iterator[int]:
        rule = self._rule
        if rule.weekdays and not rule.months:
            begin, end = _day(year, 1, 1), _day(year, 12, 31)
            yield from self._filter_month_days(year, _weekdays_in(rule, begin, end))
            return
        plain = not (rule.months or rule.month_days or rule.weekdays)
        for month in rule.months or ((self._month,) if plain else range(1, 13)):
            yield from self._of_month(year, month)

    def _of_month(self, year: int, month: int) -> set[int]:
        rule, begin = self._rule, _day(year, month, 1)
        length = monthrange(year, month)[1]
        if rule.weekdays:
            found = set(_weekdays_in(rule, begin, begin + length - 1))
            return set(self._filter_month_days(year, found))
        wanted = _month_days(rule.month_days or (self._month_day,), length, clamped=rule.clamped)
        return {begin + day - 1 for day in wanted}

    def _filter_month_days(self, year: int, days: Iterable[int]) -> Iterator[int]:
        """Filter days by BYMONTHDAY; combined with BYDAY both must match."""
        if not self._rule.month_days:
            yield from days
            return
        for day in days:
            on = date.fromordinal(day + EPOCH_DAY)
            length = monthrange(year, on.month)[1]
            if on.day in _month_days(self._rule.month_days, length, clamped=self._rule.clamped):
                yield day

    def _select_positions(self, days: list[int]) -> list[int]:
        if not self._rule.positions:
            return days
        places = ((at - 1 if at > 0 else len(days) + at) for at in self._rule.positions)
        return sorted({days[at] for at in places if 0 <= at < len(days)})


def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - EPOCH_DAY


def _month_days(days: Iterable[int], length: int, *, clamped: bool) -> set[int]:
    """Return the days in a month of that length; a day it lacks is dropped, or clamped to the last."""
    counted: Iterable[int] = (day if day > 0 else length + 1 + day for day in days)
    if clamped:
        counted = (min(day, length) for day in counted)
    return {day for day in counted if 1 <= day <= length}


def _weekdays_in(rule: RecurrenceRule, begin: int, end: int) -> set[int]:
    """Return the weekdays of a rule between two days, inclusive; n-th weekdays count within that range."""
    found: set[int] = set()
    for one in rule.weekdays:
        first = begin + (one.day - begin - 3) % 7
        every = range(first, end + 1, 7)
        if one.nth == 0:
            found.update(every)
        elif -len(every) <= one.nth <= len(every):
            found.add(every[one.nth - 1 if one.nth > 0 else one.nth])
    return found
