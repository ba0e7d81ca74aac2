"""A second, independent implementation of cron: scan every local day and ask the zone for each time.

It implements `docs/cron.md` in the most obvious way, without sharing code with the engine: sets of numbers,
one day after another, and for each local time the instants at which a clock in the zone shows it.
"""

from __future__ import annotations

import calendar
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple
from zoneinfo import ZoneInfo

from timewright.verification.oracle.times import SECOND

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
MAX_SHIFTED_GAP = timedelta(hours=3)
MAX_CACHED_INSTANTS = 200_000

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone of their own
_FIRST_DAY = date(1970, 1, 1).toordinal()


class FieldRange(NamedTuple):
    """One cron field: its name, its range, and the names of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


DAY = FieldRange("day of month", 1, 31)
WEEKDAY = FieldRange("weekday", 0, 6, WEEKDAYS)


class CronScan:
    """Every instant of a cron expression in a zone, found day by day."""

    def __init__(self, expression: str, *, zone: str, dst: str = "vixie", key: str | None = None) -> None:
        fields = NICKNAMES.get(expression.strip().upper(), expression).upper().split()
        fields = ["0", *fields] if len(fields) == 5 else fields
        fields = [*fields, "*"] if len(fields) == 6 else fields
        self._key = key or ""
        self._second, self._minute, self._hour, self._day, month, self._weekday, year = fields
        self._months = self._numbers(FieldRange("month", 1, 12, MONTHS), month)
        self._years = None if year == "*" else self._numbers(FieldRange("year", 1970, 9999), year)
        seconds = self._numbers(FieldRange("second", 0, 59), self._second)
        minutes = self._numbers(FieldRange("minute", 0, 59), self._minute)
        hours = self._numbers(FieldRange("hour", 0, 23), self._hour)
        self.times = tuple(sorted(3600 * h + 60 * m + s for h in hours for m in minutes for s in seconds))
        sizes = ((self._second, seconds, 60), (self._minute, minutes, 60), (self._hour, hours, 24))
        self._cadence = any(text.startswith(("*", "H/")) or len(found) == size for text, found, size in sizes)
        self._zone = ZoneInfo(zone)
        self._repeats_fold = dst == "match" or (dst == "vixie" and self._cadence)
        self._shifts = dst == "vixie" and not self._cadence
        self.on_day = lru_cache(maxsize=min(4096, MAX_CACHED_INSTANTS // len(self.times) + 3))(self._on_day)

    def between(self, after: int, until: int, *, limit: int) -> list[int]:
        """The instants after `after` up to `until`, at most `limit` + 1."""
        found: list[int] = []
        for day in self._days(after, until):
            here = self.on_day(day)
            found += here[bisect_right(here, after) : bisect_right(here, until)]
            if len(found) > limit + len(self.times):
                break
        return sorted(set(found))[: limit + 1]

    def count(self, after: int, until: int, *, limit: int) -> int:
        """How many instants there are, at most `limit` + 1."""
        return len(self.between(after, until, limit=limit))

    def has(self, at: int) -> bool:
        """Whether an instant is one of them."""
        return any(at in self.on_day(day) for day in self._days(at - 1, at))

    def first_after(self, after: int, *, until: int) -> int | None:
        """The first instant after `after` up to `until`."""
        first: int | None = None
        for day in self._days(after, until):
            # A clock change may put an instant of one local day after the first instant of the next day.
            if first is not None and self._day_start(day) > first + 86_400 * SECOND:
                break
            here = self.on_day(day)
            place = bisect_right(here, after)
            if place < len(here) and here[place] <= until and (first is None or here[place] < first):
                first = here[place]
        return first

    def _days(self, after: int, until: int) -> Iterator[int]:
        """The local days that may contain an instant of this range."""
        first, last = after // (86_400 * SECOND) - 1, until // (86_400 * SECOND) + 1
        yield from range(_FIRST_DAY + first, _FIRST_DAY + last + 1)

    def _day_start(self, day: int) -> int:
        return (day - _FIRST_DAY - 1) * 86_400 * SECOND

    def _on_day(self, ordinal: int) -> tuple[int, ...]:
        """The instants of one local day."""
        day = date.fromordinal(ordinal)
        if not self._matches_day(day):
            return ()
        midnight = datetime.combine(day, datetime.min.time())
        offset = self._only_offset(midnight, timedelta(days=1))
        if offset is not None:
            base = (midnight - _EPOCH - offset) // timedelta(seconds=1)
            return tuple((base + time) * SECOND for time in self.times)
        found: set[int] = set()
        for hour, times in groupby(self.times, key=lambda time: time // 3600):
            offset = self._only_offset(midnight + timedelta(hours=hour), timedelta(hours=1))
            local_times = [midnight + timedelta(seconds=time) for time in times]
            if offset is not None:
                found.update(_micros(local_time - offset) for local_time in local_times)
            else:
                found.update(at for local_time in local_times for at in self._instants(local_time))
        return tuple(sorted(found))

    def _only_offset(self, local_time: datetime, length: timedelta) -> timedelta | None:
        """The UTC offset if it is constant over a span of local time, else None."""
        ends = (local_time, local_time + length)
        # Both folds of both ends: a change may come just after one of them.
        offsets = {self._offset(end.replace(fold=fold)) for end in ends for fold in (0, 1)}
        return offsets.pop() if len(offsets) == 1 else None

    def _instants(self, local_time: datetime) -> Iterator[int]:
        """The instants at which the zone shows a local time: one, two, or the end of a gap that skips it."""
        early, late = self._offset(local_time), self._offset(local_time.replace(fold=1))
        first, second = local_time - early, local_time - late
        if self._local_time(first) == local_time:
            yield _micros(first)
            if second != first and self._repeats_fold and self._local_time(second) == local_time:
                yield _micros(second)
        elif self._shifts and late - early < MAX_SHIFTED_GAP:
            yield _micros(self._change(local_time - late, local_time - early))

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The first instant after the clock change between two, in UTC without a zone."""
        old = self._shown_offset(before)
        low, high = 0, int((after - before).total_seconds())
        while high - low > 1:
            middle = (low + high) // 2
            unchanged = self._shown_offset(before + timedelta(seconds=middle)) == old
            low, high = (middle, high) if unchanged else (low, middle)
        return before + timedelta(seconds=high)

    def _offset(self, local_time: datetime) -> timedelta:
        return local_time.replace(tzinfo=self._zone).utcoffset() or timedelta(0)

    def _shown_offset(self, moment: datetime) -> timedelta:
        return moment.replace(tzinfo=UTC).astimezone(self._zone).utcoffset() or timedelta(0)

    def _local_time(self, moment: datetime) -> datetime:
        shown = moment.replace(tzinfo=UTC).astimezone(self._zone)
        return shown.replace(tzinfo=None, fold=0)

    def _matches_day(self, day: date) -> bool:
        if day.month not in self._months or (self._years is not None and day.year not in self._years):
            return False
        weekday = self._weekday.removeprefix("+")
        by_day, by_weekday = self._day not in ("*", "?"), weekday not in ("*", "?")
        day_matches = by_day and any(self._is_month_day(item, day) for item in self._day.split(","))
        weekday_matches = by_weekday and any(self._is_weekday(item, day) for item in weekday.split(","))
        if by_day and by_weekday:
            # A weekday with "+" must match as well as the day; without it, either is enough.
            both = self._weekday.startswith("+")
            return (day_matches and weekday_matches) if both else (day_matches or weekday_matches)
        return day_matches if by_day else weekday_matches if by_weekday else True

    def _is_month_day(self, item: str, day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        if item == "LW":
            return day.day == _nearest_working_day(day.year, day.month, length)
        if item.startswith("L"):
            return day.day == length - int(item[2:] or 0)
        if item.endswith("W"):
            wanted = int(item[:-1])
            return wanted <= length and day.day == _nearest_working_day(day.year, day.month, wanted)
        return day.day in self._numbers(DAY, item)

    def _is_weekday(self, item: str, day: date) -> bool:
        name, nth, which = item.partition("#")
        if nth:
            return day.isoweekday() % 7 in self._weekdays(name) and (day.day + 6) // 7 == int(which)
        if item.endswith("L"):
            length = calendar.monthrange(day.year, day.month)[1]
            return day.isoweekday() % 7 in self._weekdays(item[:-1]) and day.day + 7 > length
        return day.isoweekday() % 7 in self._weekdays(item)

    def _weekdays(self, text: str) -> set[int]:
        """Parse weekdays as 0 to 6; Sunday may also be 7, and may end a range by name."""
        head, _, last = text.partition("/")[0].partition("-")
        if last == "SUN" and head not in ("0", "SUN"):
            text = text.replace("-SUN", "-7")
        return {number % 7 for number in self._numbers(WEEKDAY, text)}

    def _numbers(self, field: FieldRange, text: str) -> frozenset[int]:
        found: set[int] = set()
        for item in text.split(","):
            head, slash, step = item.partition("/")
            stride = int(step) if slash else None
            if head in ("*", "?"):
                found.update(range(field.low, field.high + 1, stride or 1))
            elif head.startswith("H"):
                found.update(self._hashed(field, head, stride))
            else:
                first, _, last = head.partition("-")
                found.update(range(_value(first, field), _value(last or first, field) + 1, stride or 1))
        return frozenset(found)

    def _hashed(self, field: FieldRange, head: str, stride: int | None) -> range:
        low, high = field.low, 28 if field is DAY else field.high
        if head != "H":
            first, _, last = head[2:-1].partition("-")
            low, high = _value(first, field), _value(last, field)
        keyed = f"{self._key}\0{field.name}".encode("utf-8", "surrogatepass")
        chosen = int.from_bytes(blake2b(keyed, digest_size=8).digest(), "big")
        if stride is None:
            only = low + chosen % (high - low + 1)
            return range(only, only + 1)
        return range(low + chosen % stride, high + 1, stride)


def _value(text: str, field: FieldRange) -> int:
    return field.names.index(text) + field.low if text in field.names else int(text)


def _micros(naive: datetime) -> int:
    return (naive - _EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def _nearest_working_day(year: int, month: int, day: int) -> int:
    """The working day nearest to a day of a month, in the same month."""
    length = calendar.monthrange(year, month)[1]
    working = [d for d in range(1, length + 1) if date(year, month, d).weekday() < 5]
    return min(working, key=lambda d: abs(d - day))
