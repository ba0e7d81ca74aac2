"""When calendars let things happen: what is open, from when, until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from timewright.core.calendars.calendar import Calendar
from timewright.core.moments import DAY, LATEST_STORED
from timewright.core.triggers import AnyTrigger

FARTHEST_ROLL = 400 * DAY
MOST_CANDIDATES = 10_000

_TICK = timedelta(microseconds=1)
# How far back to look for the last opening: most rules opened yesterday.
_LOOKS_BACK = (DAY, 8 * DAY, 64 * DAY, FARTHEST_ROLL)

Stretch = tuple[datetime, datetime]


class Openings:
    """When a rule lets things happen, as stretches of time: from an opening up to the next closing."""

    __slots__ = ("calendars", "only", "without")

    def __init__(self, *, only: Sequence[Calendar], without: Sequence[Calendar]) -> None:
        self.only = only
        self.without = without
        self.calendars = (*only, *without)

    def closed_by(self, moment: datetime) -> Calendar | None:
        """The calendar that excludes the instant, if one does."""
        for calendar in self.without:
            if calendar.covers(moment):
                return calendar
        for calendar in self.only:
            if not calendar.covers(moment):
                return calendar
        return None

    def open_from(self, moment: datetime, *, until: datetime = LATEST_STORED) -> datetime | None:
        """The first allowed instant from this one up to another, both included."""
        at = moment
        for _ in range(MOST_CANDIDATES):
            if at > until:
                return None
            closed_by = self.closed_by(at)
            if closed_by is None:
                return at
            # Until this calendar changes its mind, no other can open the rule.
            at = closed_by.edge_after(at)
        return None

    def stretches(self, start: datetime, end: datetime) -> list[Stretch]:
        """The open stretches between two instants, in order."""
        found: list[Stretch] = []
        at = start
        while at < end:
            closed_by = self.closed_by(at)
            if closed_by is None:
                edge = min(end, *(calendar.edge_after(at) for calendar in self.calendars))
                opened = found.pop()[0] if found and found[-1][1] == at else at
                found.append((opened, edge))
            else:
                edge = closed_by.edge_after(at)
            at = edge
        return found

    def last_close(self, moment: datetime) -> datetime | None:
        """The end of the last open stretch before an instant, not further back than a roll may reach."""
        for reach in _LOOKS_BACK:
            found = self.stretches(moment - reach, moment)
            if found:
                return found[-1][1]
        return None

    def allowed_after(self, trigger: AnyTrigger, moment: datetime) -> datetime | None:
        """The trigger's first allowed instant after this one; closed stretches are leapt over."""
        at = trigger.next_after(moment)
        for _ in range(MOST_CANDIDATES):
            if at is None or at > LATEST_STORED:
                return None
            closed_by = self.closed_by(at)
            if closed_by is None:
                return at
            at = trigger.next_after(closed_by.edge_after(at) - _TICK)
        return None
