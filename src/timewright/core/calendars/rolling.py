"""Which instants calendars allow, and how excluded occurrences move to allowed days (`roll`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from msgspec import Struct

from timewright.core.calendars.calendar import Calendar, day_start, instant_of_reading, local_day
from timewright.core.moments import DAY, EPOCH, MAX_STORED_INSTANT, MIN_STORED_INSTANT, MINUTE
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, AnyTrigger

MAX_DAYS_TRIED = 1_000

_MICROSECOND = timedelta(microseconds=1)

MAX_ROLL = 400 * DAY
MAX_CANDIDATES = 10_000

# Search windows for the last allowed time, smallest first: most rules allowed something yesterday.
_SEARCH_WINDOWS = (DAY, 8 * DAY, 64 * DAY, MAX_ROLL)

TimeRange = tuple[datetime, datetime]


class Occurrence(Struct, frozen=True):
    """One occurrence of a schedule; `excluded` is the name of the calendar that excludes it."""

    at: datetime
    excluded: str = ""
    moved_from: datetime | None = None


class OccurrenceRoller:
    """Finds the occurrences of a trigger whose excluded instants move to other days.

    No time is allowed between an excluded instant and the day it moves to. So the instants that move to a day
    come from that day and from the excluded range next to it, and only days with allowed time are searched.
    Days are those of the first calendar; the time of day is in the trigger's zone, if it has one.
    """

    __slots__ = ("calendar_filter", "forward", "trigger", "trigger_zone", "zone")

    def __init__(self, trigger: AnyTrigger, calendar_filter: CalendarFilter, *, forward: bool) -> None:
        self.trigger = trigger
        self.calendar_filter = calendar_filter
        self.zone = calendar_filter.calendars[0].zone
        self.trigger_zone = trigger.zone if isinstance(trigger, ZONED_TRIGGERS) else self.zone
        self.forward = forward

    def roll_forward(self, original: datetime) -> Occurrence | None:
        """Move one excluded instant forward, without regard to the trigger's other instants."""
        allowed_start = self.calendar_filter.first_allowed(original, until=original + MAX_ROLL)
        if allowed_start is None:
            return None
        day = local_day(allowed_start, self.zone)
        return Occurrence(self.instant_on(original, day, self._ranges_on(day)), moved_from=original)

    def after(self, moment: datetime) -> Occurrence | None:
        """Return the first allowed or moved occurrence after an instant, or None."""
        day = local_day(moment, self.zone)
        for _ in range(MAX_DAYS_TRIED):
            allowed_start = self.calendar_filter.first_allowed(day_start(day, self.zone))
            if allowed_start is None:
                return None
            day = local_day(allowed_start, self.zone)
            ranges = self._ranges_on(day)
            allowed = (self._first_in(time_range, moment) for time_range in ranges)
            moved = (found for found in self.moved_to(day, ranges) if found.at > moment)
            found = min((*filter(None, allowed), *moved), key=earliest_first, default=None)
            if found is not None:
                return found
            # Occurrences on later days come from instants after the last allowed range of this day.
            following = self.trigger.next_after(ranges[-1][1] - _MICROSECOND)
            if following is None:
                return None
            day = max(day + DAY, self._earliest_day(following))
        return None

    def before(self, moment: datetime) -> Occurrence | None:
        """Return the last allowed or moved occurrence before an instant, or None."""
        end = self._end(local_day(moment, self.zone))
        for _ in range(MAX_DAYS_TRIED):
            allowed_end = self.calendar_filter.last_allowed_end(end)
            reached = boundary = end - MAX_ROLL
            if allowed_end is not None:
                day = local_day(allowed_end - _MICROSECOND, self.zone)
                ranges = self._ranges_on(day)
                allowed = (self._last_in(time_range, moment) for time_range in ranges)
                moved = (found for found in self.moved_to(day, ranges) if found.at < moment)
                found = max((*filter(None, allowed), *moved), key=latest_last, default=None)
                if found is not None:
                    return found
                reached, boundary = ranges[0][0], day_start(day, self.zone)
            # Occurrences on earlier days come from instants before the first allowed range of this day.
            earlier = self.trigger.previous_before(reached)
            if earlier is None or earlier < MIN_STORED_INSTANT:
                return None
            end = min(boundary, self._end(self._latest_day(earlier)))
        return None

    def moved_to(self, day: date, ranges: list[TimeRange]) -> Iterator[Occurrence]:
        """Return the occurrences that move to a day; of several at one instant, the one that moved least."""
        found: dict[datetime, datetime] = {}
        remaining = MAX_CANDIDATES
        for start, end in self._source_ranges(day, ranges):
            for original in self.trigger.between(start - _MICROSECOND, end - _MICROSECOND, remaining):
                remaining -= 1
                at = self.instant_on(original, day, ranges)
                if at not in found or abs(at - original) < abs(at - found[at]):
                    found[at] = original
        return (Occurrence(at, moved_from=original) for at, original in found.items())

    def instant_on(self, original: datetime, day: date, ranges: list[TimeRange]) -> datetime:
        """Return the instant on a day with allowed time that an excluded instant moves to."""
        if local_day(original, self.zone) != day:
            at = self._same_local_time(original, day)
            if at is not None and any(start <= at < end for start, end in ranges):
                return at
        if self.forward:
            return next(start for start, _ in ranges if start > original)
        return next(_last_minute(open_, close) for open_, close in reversed(ranges) if close <= original)

    def _same_local_time(self, original: datetime, day: date) -> datetime | None:
        """Return the instant of a day with the same local time in the trigger's zone, or None."""
        reading = original.astimezone(ZoneInfo(self.trigger_zone)).time()
        start, end = day_start(day, self.zone), self._end(day)
        dates = {local_day(start, self.trigger_zone), local_day(end - _MICROSECOND, self.trigger_zone)}
        instants = (instant_of_reading(on, reading, self.trigger_zone) for on in sorted(dates))
        return next((at for at in instants if start <= at < end), None)

    def _source_ranges(self, day: date, ranges: list[TimeRange]) -> Iterator[TimeRange]:
        """Return the excluded ranges whose instants move to this day, nearest first."""
        start, end = day_start(day, self.zone), self._end(day)
        if self.forward:
            yield from _gaps_between([(start, start), *ranges])
            yield (self.calendar_filter.last_allowed_end(start) or start - MAX_ROLL), start
        else:
            yield from _gaps_between([*ranges, (end, end)])
            farthest = end + MAX_ROLL
            yield end, self.calendar_filter.first_allowed(end, until=farthest) or farthest

    def _first_in(self, time_range: TimeRange, moment: datetime) -> Occurrence | None:
        at = self.trigger.next_after(max(time_range[0] - _MICROSECOND, moment))
        return Occurrence(at) if at is not None and at < time_range[1] else None

    def _last_in(self, time_range: TimeRange, moment: datetime) -> Occurrence | None:
        at = self.trigger.previous_before(min(time_range[1], moment))
        return Occurrence(at) if at is not None and at >= time_range[0] else None

    def _ranges_on(self, day: date) -> list[TimeRange]:
        return self.calendar_filter.allowed_ranges(day_start(day, self.zone), self._end(day))

    def _end(self, day: date) -> datetime:
        return day_start(day + DAY, self.zone)

    def _earliest_day(self, moment: datetime) -> date:
        """Return the earliest day that this instant, or a later one, may be on or move to."""
        day = local_day(moment, self.zone)
        if self.forward:
            return day
        allowed_end = self.calendar_filter.last_allowed_end(moment + _MICROSECOND)
        return day if allowed_end is None else local_day(allowed_end - _MICROSECOND, self.zone)

    def _latest_day(self, moment: datetime) -> date:
        """Return the latest day that this instant, or an earlier one, may be on or move to."""
        day = local_day(moment, self.zone)
        if not self.forward:
            return day
        allowed_start = self.calendar_filter.first_allowed(moment, until=moment + MAX_ROLL)
        return day if allowed_start is None else local_day(allowed_start, self.zone)


def _gaps_between(ranges: list[TimeRange]) -> Iterator[TimeRange]:
    """Return the gaps between consecutive ranges."""
    for (_, allowed_end), (allowed_start, _) in pairwise(ranges):
        if allowed_end < allowed_start:
            yield allowed_end, allowed_start


def _last_minute(allowed_start: datetime, allowed_end: datetime) -> datetime:
    """Return the last whole minute of an allowed range, or its start if it has none."""
    whole = EPOCH + (allowed_end - _MICROSECOND - EPOCH) // MINUTE * MINUTE
    return max(allowed_start, whole)


def earliest_first(found: Occurrence) -> tuple[datetime, bool]:
    """Key for `min`: the earliest; of two at one instant, the one that did not move."""
    return found.at, found.moved_from is not None


def latest_last(found: Occurrence) -> tuple[datetime, bool]:
    """Key for `max`: the latest; of two at one instant, the one that did not move."""
    return found.at, found.moved_from is None


class CalendarFilter:
    """The allowed time of a calendar rule, as ranges."""

    __slots__ = ("calendars", "excluding", "only")

    def __init__(self, *, only: Sequence[Calendar], excluding: Sequence[Calendar]) -> None:
        self.only = only
        self.excluding = excluding
        self.calendars = (*only, *excluding)

    def excluded_by(self, moment: datetime) -> Calendar | None:
        """Return the calendar that excludes the instant, if one does."""
        for calendar in self.excluding:
            if calendar.covers(moment):
                return calendar
        for calendar in self.only:
            if not calendar.covers(moment):
                return calendar
        return None

    def first_allowed(self, moment: datetime, *, until: datetime = MAX_STORED_INSTANT) -> datetime | None:
        """Return the first allowed instant from `moment` to `until`, both inclusive, or None."""
        at = moment
        for _ in range(MAX_CANDIDATES):
            if at > until:
                return None
            excluding_calendar = self.excluded_by(at)
            if excluding_calendar is None:
                return at
            # No instant is allowed before the next boundary of the excluding calendar.
            at = excluding_calendar.next_boundary(at)
        return None

    def allowed_ranges(self, start: datetime, end: datetime) -> list[TimeRange]:
        """Return the allowed ranges between two instants, in order."""
        found: list[TimeRange] = []
        at = start
        while at < end:
            excluding_calendar = self.excluded_by(at)
            if excluding_calendar is None:
                boundary = min(end, *(calendar.next_boundary(at) for calendar in self.calendars))
                opened = found.pop()[0] if found and found[-1][1] == at else at
                found.append((opened, boundary))
            else:
                boundary = excluding_calendar.next_boundary(at)
            at = boundary
        return found

    def last_allowed_end(self, moment: datetime) -> datetime | None:
        """Return the end of the last allowed range before an instant, within the maximum roll distance."""
        for window in _SEARCH_WINDOWS:
            found = self.allowed_ranges(moment - window, moment)
            if found:
                return found[-1][1]
        return None

    def allowed_after(self, trigger: AnyTrigger, moment: datetime) -> datetime | None:
        """Return the trigger's first allowed instant after this one; skips excluded ranges as a whole."""
        at = trigger.next_after(moment)
        for _ in range(MAX_CANDIDATES):
            if at is None or at > MAX_STORED_INSTANT:
                return None
            excluding_calendar = self.excluded_by(at)
            if excluding_calendar is None:
                return at
            at = trigger.next_after(excluding_calendar.next_boundary(at) - _MICROSECOND)
        return None
