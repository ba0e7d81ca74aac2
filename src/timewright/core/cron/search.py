"""The next and the previous occurrence, in whole seconds since 1970.

Local time is cut into days, days into minutes, minutes into seconds; each is a set of bits, so a
step is a shift and never a loop. The zone says which local readings count, stretch by stretch.
"""

from __future__ import annotations

from typing import Protocol

from timewright.core.cron.stretches import Stretches

_DAY = 86_400
# Two offsets differ by less than two days: readings further apart than this keep their order.
_APART = 2 * _DAY


class DaySet(Protocol):
    """Days counted from the first of January 1970; one that is far beyond the last year is none."""

    def first_from(self, day: int) -> int:
        """The first day on or after this one."""
        ...

    def last_to(self, day: int) -> int:
        """The last day on or before this one."""
        ...


class Search:
    """One expression in one zone under one policy, ready to be asked."""

    __slots__ = ("_days", "_first", "_last", "_minutes", "_seconds", "_stretches")

    def __init__(
        self, *, seconds: int, minutes: int, hours: int, days: DaySet | None, stretches: Stretches
    ) -> None:
        self._seconds = seconds
        self._minutes = sum(minutes << 60 * hour for hour in range(24) if hours >> hour & 1)
        self._days = days
        self._stretches = stretches
        self._first = _lowest(self._minutes) * 60 + _lowest(seconds)
        self._last = _highest(self._minutes) * 60 + _highest(seconds)

    def next_from(self, instant: int) -> int | None:
        """The first occurrence at or after the instant, or nothing up to the end of 9999."""
        near = instant + _APART
        while instant <= self._stretches.latest:
            start, end, offset, begin = self._stretches.at(instant)
            reading = instant + offset
            found = self._reading_from(begin if instant <= start or reading < begin else reading)
            if found < end + offset:
                # A reading that fell into the gap belongs to the first instant after it.
                return start if found < start + offset else found - offset
            # No reading up to `found` matches; once the order of readings is safe, go there at once.
            instant = end if end < near else max(end, found - offset - _APART)
        return None

    def last_to(self, instant: int) -> int | None:
        """The last occurrence at or before the instant, or nothing back to the start of 1970."""
        instant = min(instant, self._stretches.latest)
        near = instant - _APART
        while instant >= 0:
            start, _, offset, begin = self._stretches.at(instant)
            found = self._reading_to(instant + offset)
            if found >= begin:
                occurrence = max(found - offset, start)
                return occurrence if occurrence >= 0 else None
            instant = start - 1 if start > near else min(start - 1, found - offset + _APART)
        return None

    def _reading_from(self, reading: int) -> int:
        """The first matching local reading at or after this one."""
        today, second = divmod(reading, _DAY)
        day = today if self._days is None else self._days.first_from(today)
        if day == today:
            time = self._time_from(second)
            if time is not None:
                return day * _DAY + time
            day = day + 1 if self._days is None else self._days.first_from(day + 1)
        return day * _DAY + self._first

    def _reading_to(self, reading: int) -> int:
        """The last matching local reading at or before this one."""
        today, second = divmod(reading, _DAY)
        day = today if self._days is None else self._days.last_to(today)
        if day == today:
            time = self._time_to(second)
            if time is not None:
                return day * _DAY + time
            day = day - 1 if self._days is None else self._days.last_to(day - 1)
        return day * _DAY + self._last

    def _time_from(self, second: int) -> int | None:
        """The first matching second of the day at or after this one."""
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
        """The last matching second of the day at or before this one."""
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
