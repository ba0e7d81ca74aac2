"""The days a rule means, month by month or year by year; days are counted from the first of January 1970."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import date, datetime

from timewright.core.recurrence.grammar import Rule

EPOCH_DAY = date(1970, 1, 1).toordinal()
NO_DAY = 1 << 24
MOST_YEARS = 400

_LAST_YEAR = 9999
_MOST_KEPT = 512


class RuleDays:
    """The days of one rule from its anchor on; nothing further than 400 years away is looked for."""

    __slots__ = ("_first", "_kept", "_month", "_month_day", "_rule", "_weekday", "_yearly")

    def __init__(self, rule: Rule, anchor: datetime) -> None:
        self._rule = rule
        self._first = anchor.toordinal() - EPOCH_DAY
        self._month = anchor.month
        self._month_day = anchor.day
        self._weekday = anchor.weekday()
        # A year is one piece where what counts is counted by the year.
        self._yearly = rule.frequency == "YEARLY"
        self._kept: dict[int, tuple[int, ...]] = {}

    def first_from(self, day: int) -> int:
        """The first day on or after this one, or `NO_DAY`."""
        day = max(day, self._first)
        if day > date.max.toordinal() - EPOCH_DAY:
            return NO_DAY
        piece = self._piece(day)
        for number in range(piece, min(piece + self._most(), self._end())):
            found = self._days(number)
            if found and found[-1] >= day:
                return found[bisect_left(found, day)]
        return NO_DAY

    def last_to(self, day: int) -> int:
        """The last day on or before this one, or minus `NO_DAY`."""
        day = min(day, date.max.toordinal() - EPOCH_DAY)
        if day < self._first:
            return -NO_DAY
        piece, begin = self._piece(day), self._piece(self._first)
        for number in range(piece, max(piece - self._most(), begin - 1), -1):
            found = self._days(number)
            if found and found[0] <= day:
                return found[bisect_right(found, day) - 1]
        return -NO_DAY

    def _most(self) -> int:
        return MOST_YEARS if self._yearly else MOST_YEARS * 12

    def _end(self) -> int:
        return _LAST_YEAR + 1 if self._yearly else (_LAST_YEAR + 1) * 12

    def _piece(self, day: int) -> int:
        on = date.fromordinal(day + EPOCH_DAY)
        return on.year if self._yearly else on.year * 12 + on.month - 1

    def _days(self, piece: int) -> tuple[int, ...]:
        found = self._kept.get(piece)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[piece] = tuple(day for day in self._made(piece) if day >= self._first)
        return found

    def _made(self, piece: int) -> list[int]:
        rule = self._rule
        if rule.frequency == "YEARLY":
            away = piece - date.fromordinal(self._first + EPOCH_DAY).year
            return [] if away % rule.interval else self._chosen(sorted(set(self._of_year(piece))))
        year, month = divmod(piece, 12)
        if rule.months and month + 1 not in rule.months:
            return []
        if rule.frequency == "MONTHLY":
            away = piece - self._piece(self._first)
            return [] if away % rule.interval else self._chosen(sorted(self._of_month(year, month + 1)))
        return list(self._stepped(year, month + 1))

    def _stepped(self, year: int, month: int) -> Iterator[int]:
        """The days of a month that steps of days or weeks reach."""
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
        # The first of January 1970 was a Thursday.
        begins = 3 - self._rule.week_start
        return (day + begins) // 7 - (self._first + begins) // 7

    def _of_year(self, year: int) -> Iterator[int]:
        rule = self._rule
        if rule.weekdays and not rule.months:
            begin, end = _day(year, 1, 1), _day(year, 12, 31)
            yield from self._also_month_days(year, _weekdays_in(rule, begin, end))
            return
        plain = not (rule.months or rule.month_days or rule.weekdays)
        for month in rule.months or ((self._month,) if plain else range(1, 13)):
            yield from self._of_month(year, month)

    def _of_month(self, year: int, month: int) -> set[int]:
        rule, begin = self._rule, _day(year, month, 1)
        length = monthrange(year, month)[1]
        if rule.weekdays:
            found = set(_weekdays_in(rule, begin, begin + length - 1))
            return set(self._also_month_days(year, found))
        wanted = _month_days(rule.month_days or (self._month_day,), length, clamped=rule.clamped)
        return {begin + day - 1 for day in wanted}

    def _also_month_days(self, year: int, days: Iterable[int]) -> Iterator[int]:
        """Beside weekdays, days of the month narrow."""
        if not self._rule.month_days:
            yield from days
            return
        for day in days:
            on = date.fromordinal(day + EPOCH_DAY)
            length = monthrange(year, on.month)[1]
            if on.day in _month_days(self._rule.month_days, length, clamped=self._rule.clamped):
                yield day

    def _chosen(self, days: list[int]) -> list[int]:
        if not self._rule.positions:
            return days
        places = ((at - 1 if at > 0 else len(days) + at) for at in self._rule.positions)
        return sorted({days[at] for at in places if 0 <= at < len(days)})


def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - EPOCH_DAY


def _month_days(days: Iterable[int], length: int, *, clamped: bool) -> set[int]:
    """Days of a month of that length; one it lacks is left out, or is its last."""
    counted: Iterable[int] = (day if day > 0 else length + 1 + day for day in days)
    if clamped:
        counted = (min(day, length) for day in counted)
    return {day for day in counted if 1 <= day <= length}


def _weekdays_in(rule: Rule, begin: int, end: int) -> set[int]:
    """The weekdays of a rule between two days, both inside; a number counts from that beginning or end."""
    found: set[int] = set()
    for one in rule.weekdays:
        first = begin + (one.day - begin - 3) % 7
        every = range(first, end + 1, 7)
        if one.nth == 0:
            found.update(every)
        elif -len(every) <= one.nth <= len(every):
            found.add(every[one.nth - 1 if one.nth > 0 else one.nth])
    return found
