"""A time zone as stretches of one offset, and which local readings count in each.

Between two clock changes local time is the instant plus a constant. What happens at a change is
only a question of where the readings that count begin in the stretch after it:

    match       at the first reading there is: a gap has none, an overlap has all of them again
    skip_once   at the first reading not seen before: a gap has none, an overlap none again
    vixie       where the stretch before left off: readings lost in a gap belong to the first
                instant after it, unless the gap is three hours or longer
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import ClassVar, Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from timewright.core.zones import zone

Counting: TypeAlias = Literal["match", "vixie", "skip_once"]

LATEST = 253_402_300_799  # 9999-12-31T23:59:59Z
CORRECTION = 3 * 3600

_DAY = 86_400
# No zone has kept an offset for less than a week since 1970; a stretch shorter than this would be missed.
_LOOK = 2 * _DAY
_LOOK_STEP = timedelta(seconds=_LOOK)
# 2²⁵ seconds are 388 days: one page of a zone holds a handful of stretches.
_PAGE = 25
_MARGIN = 3 * _DAY
_MOST_PAGES = 8192
# Past this instant a local reading may lie in the year 10000, which a datetime cannot say.
_LAST_ASKED = LATEST - 5 * _DAY


class Stretch(NamedTuple):
    """From `start` up to `end`, in seconds since 1970, one offset; readings count from `begin`."""

    start: int
    end: int
    offset: int
    begin: int


class Stretches:
    """The stretches of one zone under one way of counting, found as they are asked for."""

    __slots__ = ("_counting", "_shelf", "_zone", "latest")

    # Pages of all zones in one place, so that their number is bounded; a shelf is where a zone's begin.
    _pages: ClassVar[dict[int, tuple[Stretch, ...]]] = {}
    _shelves: ClassVar[Iterator[int]] = count(0, 1 << 16)

    def __init__(self, zone_info: ZoneInfo, counting: Counting) -> None:
        self._zone = zone_info
        self._counting = counting
        # East of Greenwich the calendar ends before UTC does.
        self.latest = LATEST - max(0, _offset(zone_info, LATEST))
        self._shelf = next(self._shelves)

    def at(self, instant: int) -> Stretch:
        """The stretch an instant lies in; it may end early, at the end of a page."""
        page = self._pages.get(self._shelf + (instant >> _PAGE))
        if page is None:
            page = self._read(instant >> _PAGE)
        for stretch in page:
            if instant < stretch.end:
                return stretch
        return page[-1]

    def _read(self, number: int) -> tuple[Stretch, ...]:
        start, end = number << _PAGE, min((number + 1) << _PAGE, self.latest + 1)
        found = _stretches(_changes(self._zone, start - _MARGIN, end), end, self._counting)
        page = tuple(stretch for stretch in found if stretch.end > start)
        if len(self._pages) >= _MOST_PAGES:
            self._pages.clear()
        self._pages[self._shelf + number] = page
        return page


@cache
def stretches(name: str, counting: Counting) -> Stretches:
    """The stretches of a zone, shared by everything that asks about it."""
    return Stretches(zone(name), counting)


def _stretches(changes: list[tuple[int, int]], end: int, counting: Counting) -> Iterator[Stretch]:
    """Changes are (first instant, offset from then on); the first one only opens the page."""
    ends = [start for start, _ in changes[1:]] + [end]
    seen: int | None = None
    for (start, offset), until in zip(changes, ends, strict=True):
        yield Stretch(start, until, offset, _begin(start + offset, seen, counting))
        seen = until + offset


def _begin(reading: int, seen: int | None, counting: Counting) -> int:
    """The first local reading that counts, where `seen` is the first one nobody has seen yet."""
    if seen is None or counting == "match":
        return reading
    if counting == "skip_once":
        return max(reading, seen)
    return reading if reading - seen >= CORRECTION else seen


def _changes(zone_info: ZoneInfo, start: int, end: int) -> list[tuple[int, int]]:
    """Every change of offset, found by looking every other day and then halving."""
    found = [(start, _offset(zone_info, start))]
    unmoved = _unmoved(zone_info, start)
    before = zone_info.fromutc(unmoved) - unmoved
    for instant in range(start + _LOOK, min(end, _LAST_ASKED) + _LOOK, _LOOK):
        unmoved += _LOOK_STEP
        ahead = zone_info.fromutc(unmoved) - unmoved
        if ahead != before:
            found.append((_first(zone_info, instant - _LOOK, instant), _seconds(ahead)))
            before = ahead
    return [change for change in found if change[0] < end]


def _first(zone_info: ZoneInfo, before: int, after: int) -> int:
    """The first instant with the offset that holds at `after`."""
    offset = _offset(zone_info, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone_info, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def _offset(zone_info: ZoneInfo, instant: int) -> int:
    """Seconds that local time is ahead of UTC."""
    unmoved = _unmoved(zone_info, instant)
    return _seconds(zone_info.fromutc(unmoved) - unmoved)


def _unmoved(zone_info: ZoneInfo, instant: int) -> datetime:
    """The UTC reading dressed in the zone, as `fromutc` wants it.

    Where both sides carry the same zone Python subtracts the bare readings: the difference is the offset.
    """
    return datetime(1970, 1, 1, tzinfo=zone_info) + timedelta(0, min(instant, _LAST_ASKED))


def _seconds(ahead: timedelta) -> int:
    return ahead.days * _DAY + ahead.seconds
