"""Finds the next and the previous occurrence of cron and recurrence rules, in seconds since 1970.

Matching days, minutes and seconds are bit masks, so the next one is found by a shift, without a loop. Local
times ("readings") are mapped to instants by the offset periods of the time zone.
"""

from __future__ import annotations

from typing import Protocol

from timewright.core.recurrence.offset_periods import OffsetPeriods

_DAY_S = 86_400
# UTC offsets differ by less than two days, so local times further apart than this keep their order.
_ORDER_MARGIN_S = 2 * _DAY_S


class DaySet(Protocol):
    """A set of days, counted from 1970-01-01; a day far beyond the year 9999 means none."""

    def first_from(self, day: int) -> int:
        """Return the first day on or after this one."""
        ...

    def last_to(self, day: int) -> int:
        """Return the last day on or before this one."""
        ...


class OccurrenceSearch:
    """A compiled expression in one zone with one policy for clock changes."""

    __slots__ = ("_days", "_first", "_last", "_minutes", "_periods", "_seconds")

    def __init__(
        self, *, seconds: int, minutes: int, hours: int, days: DaySet | None, periods: OffsetPeriods
    ) -> None:
        self._seconds = seconds
        self._minutes = sum(minutes << 60 * hour for hour in range(24) if hours >> hour & 1)
        self._days = days
        self._periods = periods
        self._first = _lowest(self._minutes) * 60 + _lowest(seconds)
        self._last = _highest(self._minutes) * 60 + _highest(seconds)

    def next_from(self, instant: int) -> int | None:
        """Return the first occurrence at or after the instant, or None up to the year 9999."""
        near = instant + _ORDER_MARGIN_S
        while instant <= self._periods.latest:
            start, end, offset, first_reading = self._periods.at(instant)
            reading = instant + offset
            found = self._reading_from(
                first_reading if instant <= start or reading < first_reading else reading
            )
            if found < end + offset:
                # A local time inside a clock-change gap maps to the first instant after the gap.
                return start if found < start + offset else found - offset
            # No local time before `found` matches; jump there, with a margin for offset changes.
            instant = end if end < near else max(end, found - offset - _ORDER_MARGIN_S)
        return None

    def last_to(self, instant: int) -> int | None:
        """Return the last occurrence at or before the instant, or None back to 1970."""
        instant = min(instant, self._periods.latest)
        near = instant - _ORDER_MARGIN_S
        while instant >= 0:
            start, _, offset, first_reading = self._periods.at(instant)
            found = self._reading_to(instant + offset)
            if found >= first_reading:
                occurrence = max(found - offset, start)
                return occurrence if occurrence >= 0 else None
            instant = start - 1 if start > near else min(start - 1, found - offset + _ORDER_MARGIN_S)
        return None

    def _reading_from(self, reading: int) -> int:
        """Return the first matching local time at or after this one."""
        today, second = divmod(reading, _DAY_S)
        day = today if self._days is None else self._days.first_from(today)
        if day == today:
            time = self._time_from(second)
            if time is not None:
                return day * _DAY_S + time
            day = day + 1 if self._days is None else self._days.first_from(day + 1)
        return day * _DAY_S + self._first

    def _reading_to(self, reading: int) -> int:
        """Return the last matching local time at or before this one."""
        today, second = divmod(reading, _DAY_S)
        day = today if self._days is None else self._days.last_to(today)
        if day == today:
            time = self._time_to(second)
            if time is not None:
                return day * _DAY_S + time
            day = day - 1 if self._days is None else self._days.last_to(day - 1)
        return day * _DAY_S + self._last

    def _time_from(self, second: int) -> int | None:
        """Return the first matching second of the day at or after this one, or None."""
        minute, second = divmod(second, 60)
        minutes = self._minutes >> minute
        if minutes & 1:
            seconds = self._seconds >> second
            if seconds:
                return minute * 60 + second + (seconds & -seconds).bit_length() - 1
            minutes -= 1
        if not minutes:
            return None
        return (minute + (minutes & -minutes).bit_length() - 1) * 60 + _lowest(self._seconds)

    def _time_to(self, second: int) -> int | None:
        """Return the last matching second of the day at or before this one, or None."""
        minute, second = divmod(second, 60)
        if self._minutes >> minute & 1:
            seconds = self._seconds & (2 << second) - 1
            if seconds:
                return minute * 60 + seconds.bit_length() - 1
        minutes = self._minutes & (1 << minute) - 1
        return (minutes.bit_length() - 1) * 60 + _highest(self._seconds) if minutes else None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1
