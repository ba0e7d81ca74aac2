"""A second, independent implementation of recurrence rules: test every local day against the rule.

A day matches if its step, month, day number and weekday are among those that the rule names.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from timewright.verification.oracle.cron_scan import CronScan
from timewright.verification.oracle.times import from_micros

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_COUNTED_DAYS = 400 * 366

_ONE_DAY = timedelta(days=1)


class RruleScan(CronScan):
    """Every instant of a recurrence rule in a zone, found day by day from its anchor on."""

    def __init__(self, rule: str, *, zone: str, dst: str = "vixie", anchor: int) -> None:
        text = rule.strip().upper().removeprefix("RRULE:").rstrip(";")
        self._parts = dict(part.strip().split("=") for part in text.split(";"))
        self._zone = ZoneInfo(zone)
        shown = from_micros(anchor).astimezone(self._zone)
        self._anchor = shown.replace(tzinfo=None, fold=0)
        self._begin = self._anchor.date()
        self._every = int(self._parts.get("INTERVAL", 1))
        hours = self._list("BYHOUR") or [self._anchor.hour]
        minutes = self._list("BYMINUTE") or [self._anchor.minute]
        seconds = self._list("BYSECOND") or [self._anchor.second]
        self.times = tuple(sorted({3600 * h + 60 * m + s for h in hours for m in minutes for s in seconds}))
        self._repeats_fold, self._shifts = dst == "match", dst == "vixie"
        self.on_day = lru_cache(maxsize=4096)(self._on_day)
        self._last = self._last_local_time()

    def _list(self, name: str) -> list[int]:
        return [int(text) for text in self._parts[name].split(",")] if name in self._parts else []

    def _on_day(self, ordinal: int) -> tuple[int, ...]:
        """The instants of one local day."""
        local_times = (one for one in self._local_times(date.fromordinal(ordinal)) if one <= self._last)
        return tuple(sorted({at for one in local_times for at in self._instants(one)}))

    def _local_times(self, day: date) -> list[datetime]:
        if not self._matches_day(day):
            return []
        midnight = datetime.combine(day, datetime.min.time())
        local_times = [midnight + timedelta(seconds=time) for time in self.times]
        return [one for one in local_times if one >= self._anchor]

    def _last_local_time(self) -> datetime:
        """The last local time of the rule, by `UNTIL` or by `COUNT`."""
        until = self._parts.get("UNTIL", "")
        if until:
            written = until.removesuffix("Z") if "T" in until else f"{until}T235959"
            local_time = datetime.strptime(written, "%Y%m%dT%H%M%S")  # noqa: DTZ007 - a local time has no zone
            return self._local_time(local_time) if until.endswith("Z") else local_time
        left = int(self._parts.get("COUNT", 0))
        for away in range(MAX_COUNTED_DAYS if left else 0):
            local_times = self._local_times(self._begin + away * _ONE_DAY)
            if left <= len(local_times):
                return local_times[left - 1]
            left -= len(local_times)
        return datetime.max  # noqa: DTZ901 - a local time has no zone

    def _matches_day(self, day: date) -> bool:
        if day < self._begin or not self._is_step(day) or not self._matches_rule(day):
            return False
        places = self._list("BYSETPOS")
        if not places:
            return True
        candidates = [one for one in self._period(day) if self._matches_rule(one)]
        return any(
            -len(candidates) <= at <= len(candidates) and candidates[at - (at > 0)] == day for at in places
        )

    def _is_step(self, day: date) -> bool:
        frequency, begin = self._parts["FREQ"], self._begin
        if frequency == "DAILY":
            away = (day - begin).days
        elif frequency == "WEEKLY":
            away = (self._week(day) - self._week(begin)).days // 7
        elif frequency == "MONTHLY":
            away = 12 * (day.year - begin.year) + day.month - begin.month
        else:
            away = day.year - begin.year
        return away % self._every == 0

    def _week(self, day: date) -> date:
        starts = WEEKDAYS.index(self._parts.get("WKST", "MO"))
        return day - (day.weekday() - starts) % 7 * _ONE_DAY

    def _matches_rule(self, day: date) -> bool:
        frequency, months = self._parts["FREQ"], self._list("BYMONTH")
        numbers, weekdays = self._list("BYMONTHDAY"), self._parts.get("BYDAY", "")
        if not numbers and not weekdays:
            if frequency == "WEEKLY":
                weekdays = WEEKDAYS[self._begin.weekday()]
            elif frequency in ("MONTHLY", "YEARLY"):
                numbers = [self._begin.day]
                months = months or ([self._begin.month] if frequency == "YEARLY" else [])
        if months and day.month not in months:
            return False
        if numbers and not self._has_number(day, numbers):
            return False
        return not weekdays or any(self._is_weekday(one, day) for one in weekdays.split(","))

    def _has_number(self, day: date, numbers: list[int]) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        clamped = self._parts.get("SKIP") == "BACKWARD" and day.day == length
        return any(
            number in (day.day, day.day - length - 1) or (clamped and number > length) for number in numbers
        )

    def _is_weekday(self, item: str, day: date) -> bool:
        if WEEKDAYS[day.weekday()] != item[-2:]:
            return False
        if len(item) == 2:
            return True
        by_month = self._parts["FREQ"] == "MONTHLY" or "BYMONTH" in self._parts
        whole = self._month(day) if by_month else self._year(day)
        same_weekday = [one for one in whole if one.weekday() == day.weekday()]
        nth = int(item[:-2])
        return same_weekday.index(day) + 1 == nth or same_weekday.index(day) - len(same_weekday) == nth

    def _period(self, day: date) -> Iterator[date]:
        return self._month(day) if self._parts["FREQ"] == "MONTHLY" else self._year(day)

    def _month(self, day: date) -> Iterator[date]:
        return (one for one in self._year(day) if one.month == day.month)

    def _year(self, day: date) -> Iterator[date]:
        first = date(day.year, 1, 1)
        return (first + away * _ONE_DAY for away in range(365 + calendar.isleap(day.year)))
