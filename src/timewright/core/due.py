"""What is due, and what a pause held back: the instants of a schedule that nobody has decided yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar, Occurrence, occurrence_after, openings_of
from timewright.core.decision import Candidate, Source
from timewright.core.governor import baseline_source, is_over, is_steady
from timewright.core.policies import JitterSide
from timewright.core.schedule import Schedule, ScheduleState, Standing

SCAN_LIMIT = 10_000
BASELINES = frozenset({Source.BASELINE_CRON, Source.BASELINE_INTERVAL, Source.BASELINE_ONCE})

_TICK = timedelta(microseconds=1)


class Due(Struct, frozen=True):
    """What is due, oldest first, by the trigger alone or by one decision; `more` says there is still more.

    `following` is the first instant that is not due yet, where it was seen on the way.
    """

    occurrences: Sequence[Occurrence]
    more: bool = False
    following: datetime | None = None
    source: Source = Source.BASELINE_CRON
    trail: tuple[Candidate, ...] = ()


class Pauses(Struct, frozen=True):
    """Pauses that are over and not recorded yet, each from its beginning up to its end."""

    spans: tuple[tuple[datetime, datetime], ...]

    @property
    def began(self) -> datetime:
        """When the first of them began."""
        return min(began for began, _ in self.spans)

    @property
    def ended(self) -> datetime:
        """When the last of them ended."""
        return max(ended for _, ended in self.spans)

    def cover(self, moment: datetime) -> bool:
        """Whether the instant lies inside one of them; an end is no longer inside."""
        return any(began <= moment < ended for began, ended in self.spans)


NO_PAUSES = Pauses(())


def due_now(
    schedule: Schedule, standing: Standing, *, now: datetime, calendars: Mapping[str, Calendar]
) -> Due:
    """What is due, oldest first: the trigger's instants since the last decision, or the one decided."""
    horizon = now + schedule.jitter if schedule.jitter_side is JitterSide.BOTH else now
    if is_over(schedule, standing):
        return Due(())
    by_trigger = standing.source is None or standing.source in BASELINES or standing.source is Source.PAUSED
    if by_trigger and is_steady(schedule, standing):
        due = enumerated(schedule, open_from(standing), horizon, calendars=calendars)
        return replace(due, trail=standing.trail) if standing.trail and standing.source in BASELINES else due
    at = standing.next_at
    if at is None or not standing.cursor < at <= horizon or not schedule.window.contains(at):
        return Due(())
    closed_by = openings_of(schedule.calendar, calendars).closed_by(at) if schedule.calendar else None
    occurrence = Occurrence(at, excluded=closed_by.name if closed_by else "")
    return Due((occurrence,), source=standing.source or Source.PAUSED, trail=standing.trail)


def enumerated(
    schedule: Schedule,
    after: datetime,
    until: datetime,
    *,
    calendars: Mapping[str, Calendar],
    limit: int = SCAN_LIMIT,
) -> Due:
    """The trigger's occurrences after one instant and not after another, at most `limit`."""
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - _TICK)
    if schedule.end_at is not None:
        until = min(until, schedule.end_at)
    found: list[Occurrence] = []
    source = baseline_source(schedule.trigger)
    while True:
        following = occurrence_after(schedule.trigger, after, rule=schedule.calendar, calendars=calendars)
        if following is None:
            return Due(found, source=source)
        if following.at > until:
            ends = schedule.end_at is not None and following.at > schedule.end_at
            return Due(found, following=None if ends else following.at, source=source)
        if len(found) == limit:
            return Due(found, more=True, source=source)
        found.append(following)
        after = following.at


def open_from(standing: Standing) -> datetime:
    """The instant after which nothing is decided yet.

    Between the cursor and what was planned lies nothing, or only what a hint or a cadence displaced.
    """
    if standing.next_at is not None and standing.source in BASELINES:
        return max(standing.cursor, standing.next_at - _TICK)
    return standing.cursor


def pauses_of(standing: Standing) -> Pauses:
    """The pauses that a schedule carries, the one a person set and the one a hint asked for."""
    hint, spans = standing.hints.pause, []
    if hint is None and standing.paused_until is None:
        return NO_PAUSES
    if standing.paused_until is not None:
        spans.append((standing.paused_at or standing.cursor, standing.paused_until))
    if hint is not None:
        spans.append((hint.created_at or standing.paused_at or standing.cursor, hint.until))
    return Pauses(tuple(spans))


def unpaused(standing: Standing) -> Standing:
    """The standing after its pauses are recorded."""
    if (
        standing.paused_at is None
        and pauses_of(standing) is NO_PAUSES
        and standing.state is ScheduleState.ACTIVE
    ):
        return standing
    hints = replace(standing.hints, pause=None)
    return replace(standing, state=ScheduleState.ACTIVE, paused_at=None, paused_until=None, hints=hints)
