"""Which instants the calendars of a rule allow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from timewright.core.calendars.calendar import Calendar
from timewright.core.moments import DAY, MAX_STORED_INSTANT
from timewright.core.recurrence.triggers import AnyTrigger

MAX_ROLL = 400 * DAY
MAX_CANDIDATES = 10_000

_MICROSECOND = timedelta(microseconds=1)
# Search windows for the last allowed time, smallest first: most rules allowed something yesterday.
_SEARCH_WINDOWS = (DAY, 8 * DAY, 64 * DAY, MAX_ROLL)

TimeRange = tuple[datetime, datetime]


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
