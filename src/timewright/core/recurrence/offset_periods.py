"""A time zone as periods of constant UTC offset, and which local times count in each.

Between two clock changes, local time is the instant plus a constant. The policy for clock changes decides at
which local time ("reading") a period begins to count:

    match       at its first local time: times in a gap do not occur, repeated times occur twice
    skip_once   at the first local time not seen before: times in a gap do not occur, repeated ones occur once
    vixie       where the period before ended: times in a gap occur at the first instant after it, unless
                the gap is three hours or longer; repeated times occur once
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import ClassVar, Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from timewright.core.zones import load_zone

DstPolicy: TypeAlias = Literal["match", "vixie", "skip_once"]

MAX_INSTANT_S = 253_402_300_799  # 9999-12-31T23:59:59Z
MAX_GAP_S = 3 * 3600

_DAY_S = 86_400
# Sampling step in seconds. No zone has had an offset for less than a week since 1970, so none is missed.
_SAMPLE_STEP_S = 2 * _DAY_S
_SAMPLE_STEP = timedelta(seconds=_SAMPLE_STEP_S)
# 2²⁵ seconds are 388 days: one cached page of a zone has a few periods.
_PAGE_BITS = 25
_MARGIN_S = 3 * _DAY_S
_MAX_PAGES = 8192
# After this instant local time may be in the year 10000, which datetime does not support.
_MAX_QUERIED_S = MAX_INSTANT_S - 5 * _DAY_S


class OffsetPeriod(NamedTuple):
    """A constant UTC offset from `start` to `end` (Unix seconds); local times count from `first_reading`."""

    start: int
    end: int
    offset: int
    first_reading: int


class OffsetPeriods:
    """The offset periods of one zone with one policy, computed on demand and cached in pages."""

    __slots__ = ("_base", "_policy", "_zone", "latest")

    # One cache for all zones, so that its size is bounded; `_base` is the key of the zone's first page.
    _pages: ClassVar[dict[int, tuple[OffsetPeriod, ...]]] = {}
    _bases: ClassVar[Iterator[int]] = count(0, 1 << 16)

    def __init__(self, zone_info: ZoneInfo, policy: DstPolicy) -> None:
        self._zone = zone_info
        self._policy = policy
        # East of Greenwich, the year 9999 ends before it does in UTC.
        self.latest = MAX_INSTANT_S - max(0, _offset(zone_info, MAX_INSTANT_S))
        self._base = next(self._bases)

    def at(self, instant: int) -> OffsetPeriod:
        """Return the period that contains an instant; it may end early, at the end of a page."""
        page = self._pages.get(self._base + (instant >> _PAGE_BITS))
        if page is None:
            page = self._read(instant >> _PAGE_BITS)
        for period in page:
            if instant < period.end:
                return period
        return page[-1]

    def _read(self, number: int) -> tuple[OffsetPeriod, ...]:
        start, end = number << _PAGE_BITS, min((number + 1) << _PAGE_BITS, self.latest + 1)
        found = _build_periods(_changes(self._zone, start - _MARGIN_S, end), end, self._policy)
        page = tuple(period for period in found if period.end > start)
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        self._pages[self._base + number] = page
        return page


@cache
def offset_periods(name: str, policy: DstPolicy) -> OffsetPeriods:
    """Return the offset periods of a zone; cached."""
    return OffsetPeriods(load_zone(name), policy)


def _build_periods(changes: list[tuple[int, int]], end: int, policy: DstPolicy) -> Iterator[OffsetPeriod]:
    """Build periods from changes (first instant, offset); the first change is the start of the page."""
    ends = [start for start, _ in changes[1:]] + [end]
    seen: int | None = None
    for (start, offset), until in zip(changes, ends, strict=True):
        yield OffsetPeriod(start, until, offset, _first_reading(start + offset, seen, policy))
        seen = until + offset


def _first_reading(reading: int, seen: int | None, policy: DstPolicy) -> int:
    """Return the first local time that counts, where `seen` is the first one not seen before."""
    if seen is None or policy == "match":
        return reading
    if policy == "skip_once":
        return max(reading, seen)
    return reading if reading - seen >= MAX_GAP_S else seen


def _changes(zone_info: ZoneInfo, start: int, end: int) -> list[tuple[int, int]]:
    """Find every change of offset, by sampling every two days and bisecting."""
    found = [(start, _offset(zone_info, start))]
    utc = _utc_labelled(zone_info, start)
    before = zone_info.fromutc(utc) - utc
    for instant in range(start + _SAMPLE_STEP_S, min(end, _MAX_QUERIED_S) + _SAMPLE_STEP_S, _SAMPLE_STEP_S):
        utc += _SAMPLE_STEP
        ahead = zone_info.fromutc(utc) - utc
        if ahead != before:
            found.append((_first_with_offset(zone_info, instant - _SAMPLE_STEP_S, instant), _seconds(ahead)))
            before = ahead
    return [change for change in found if change[0] < end]


def _first_with_offset(zone_info: ZoneInfo, before: int, after: int) -> int:
    """Return the first instant with the same offset as `after`, by bisection."""
    offset = _offset(zone_info, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone_info, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def _offset(zone_info: ZoneInfo, instant: int) -> int:
    """Return the UTC offset in seconds."""
    utc = _utc_labelled(zone_info, instant)
    return _seconds(zone_info.fromutc(utc) - utc)


def _utc_labelled(zone_info: ZoneInfo, instant: int) -> datetime:
    """Return the UTC time labelled with the zone, as `fromutc` requires.

    Python subtracts two datetimes with the same tzinfo without offsets, so `fromutc(x) - x` is the offset.
    """
    return datetime(1970, 1, 1, tzinfo=zone_info) + timedelta(0, min(instant, _MAX_QUERIED_S))


def _seconds(ahead: timedelta) -> int:
    return ahead.days * _DAY_S + ahead.seconds
