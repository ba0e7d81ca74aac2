"""Recurrence rules by looking: each local day is asked whether the rule means it, and nothing is remembered.

What a rule means is written here a second time, by the most obvious means: a day is on if its step, its
month, its number and its weekday are among those that the rule names.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from timewright.proof.cron_scan import CronScan
from timewright.proof.spans import moment

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FARTHEST = 400 * 366

_ONE_DAY = timedelta(days=1)


class RruleScan(CronScan):
    """Every instant of a recurrence rule in a zone, found day by day from its anchor on."""

    def __init__(self, rule: str, *, zone: str, dst: str = "vixie", anchor: int) -> None:
        text = rule.strip().upper().removeprefix("RRULE:").rstrip(";")
        self._parts = dict(part.strip().split("=") for part in text.split(";"))
        self._zone = ZoneInfo(zone)
        shown = moment(anchor).astimezone(self._zone)
        self._anchor = shown.replace(tzinfo=None, fold=0)
        self._begin = self._anchor.date()
        self._every = int(self._parts.get("INTERVAL", 1))
        hours = self._list("BYHOUR") or [self._anchor.hour]
        minutes = self._list("BYMINUTE") or [self._anchor.minute]
        seconds = self._list("BYSECOND") or [self._anchor.second]
        self.times = tuple(sorted({3600 * h + 60 * m + s for h in hours for m in minutes for s in seconds}))
        self._every_reading, self._shifts = dst == "match", dst == "vixie"
        self.on_day = lru_cache(maxsize=4096)(self._on_day)
        self._last = self._last_reading()

    def _list(self, name: str) -> list[int]:
        return [int(text) for text in self._parts[name].split(",")] if name in self._parts else []

    def _on_day(self, ordinal: int) -> tuple[int, ...]:
        """The instants that belong to the readings of one local day."""
        readings = (one for one in self._readings(date.fromordinal(ordinal)) if one <= self._last)
        return tuple(sorted({at for one in readings for at in self._instants(one)}))

    def _readings(self, day: date) -> list[datetime]:
        if not self._is_on(day):
            return []
        midnight = datetime.combine(day, datetime.min.time())
        readings = [midnight + timedelta(seconds=time) for time in self.times]
        return [one for one in readings if one >= self._anchor]

    def _last_reading(self) -> datetime:
        """The last reading that counts, by `UNTIL` or by counting."""
        until = self._parts.get("UNTIL", "")
        if until:
            written = until.removesuffix("Z") if "T" in until else f"{until}T235959"
            reading = datetime.strptime(written, "%Y%m%dT%H%M%S")  # noqa: DTZ007 - a reading has no zone
            return self._shows(reading) if until.endswith("Z") else reading
        left = int(self._parts.get("COUNT", 0))
        for away in range(FARTHEST if left else 0):
            readings = self._readings(self._begin + away * _ONE_DAY)
            if left <= len(readings):
                return readings[left - 1]
            left -= len(readings)
        return datetime.max  # noqa: DTZ901 - a reading has no zone

    def _is_on(self, day: date) -> bool:
        if day < self._begin or not self._is_step(day) or not self._is_named(day):
            return False
        places = self._list("BYSETPOS")
        if not places:
            return True
        together = [one for one in self._period(day) if self._is_named(one)]
        return any(-len(together) <= at <= len(together) and together[at - (at > 0)] == day for at in places)

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

    def _is_named(self, day: date) -> bool:
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
        alike = [one for one in whole if one.weekday() == day.weekday()]
        nth = int(item[:-2])
        return alike.index(day) + 1 == nth or alike.index(day) - len(alike) == nth

    def _period(self, day: date) -> Iterator[date]:
        return self._month(day) if self._parts["FREQ"] == "MONTHLY" else self._year(day)

    def _month(self, day: date) -> Iterator[date]:
        return (one for one in self._year(day) if one.month == day.month)

    def _year(self, day: date) -> Iterator[date]:
        first = date(day.year, 1, 1)
        return (first + away * _ONE_DAY for away in range(365 + calendar.isleap(day.year)))
