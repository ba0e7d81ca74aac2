"""Finds the due occurrences of a schedule, and the pauses that suppress some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar, Occurrence, build_filter, occurrence_after
from timewright.core.policies.policies import JitterSide
from timewright.core.schedule.decision import Candidate, Source
from timewright.core.schedule.governor import baseline_source, has_used_max_runs, is_trigger_only
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState

MAX_SCANNED = 10_000
BASELINE_SOURCES = frozenset({Source.BASELINE_CRON, Source.BASELINE_INTERVAL, Source.BASELINE_ONCE})

_MICROSECOND = timedelta(microseconds=1)


class DueInstants(Struct, frozen=True):
    """The due occurrences, oldest first; `more` means that the scan stopped at its limit.

    `following` is the first instant that is not due yet, if the scan reached it.
    """

    occurrences: Sequence[Occurrence]
    more: bool = False
    following: datetime | None = None
    source: Source = Source.BASELINE_CRON
    trail: tuple[Candidate, ...] = ()


class Pauses(Struct, frozen=True):
    """Finished pauses whose suppressed occurrences are not recorded yet, as (start, end) pairs."""

    spans: tuple[tuple[datetime, datetime], ...]

    @property
    def first_start(self) -> datetime:
        """The start of the first pause."""
        return min(start for start, _ in self.spans)

    @property
    def last_end(self) -> datetime:
        """The end of the last pause."""
        return max(end for _, end in self.spans)

    def contains(self, moment: datetime) -> bool:
        """Whether a pause contains the instant; the end of a pause is exclusive."""
        return any(start <= moment < end for start, end in self.spans)


NO_PAUSES = Pauses(())


def find_due(
    schedule: Schedule, progress: ScheduleProgress, *, now: datetime, calendars: Mapping[str, Calendar]
) -> DueInstants:
    """Return the due occurrences, oldest first: the trigger's since the last decision, or the one decided."""
    horizon = now + schedule.jitter if schedule.jitter_side is JitterSide.BOTH else now
    if has_used_max_runs(schedule, progress):
        return DueInstants(())
    by_trigger = (
        progress.source is None or progress.source in BASELINE_SOURCES or progress.source is Source.PAUSED
    )
    if by_trigger and is_trigger_only(schedule, progress):
        due = list_occurrences(schedule, undecided_after(progress), horizon, calendars=calendars)
        return (
            replace(due, trail=progress.trail)
            if progress.trail and progress.source in BASELINE_SOURCES
            else due
        )
    at = progress.next_at
    if at is None or not progress.cursor < at <= horizon or not schedule.window.contains(at):
        return DueInstants(())
    excluding = build_filter(schedule.calendar, calendars).excluded_by(at) if schedule.calendar else None
    occurrence = Occurrence(at, excluded=excluding.name if excluding else "")
    return DueInstants((occurrence,), source=progress.source or Source.PAUSED, trail=progress.trail)


def list_occurrences(
    schedule: Schedule,
    after: datetime,
    until: datetime,
    *,
    calendars: Mapping[str, Calendar],
    limit: int = MAX_SCANNED,
) -> DueInstants:
    """Return the trigger's occurrences after `after` up to and including `until`, at most `limit`."""
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - _MICROSECOND)
    if schedule.end_at is not None:
        until = min(until, schedule.end_at)
    found: list[Occurrence] = []
    source = baseline_source(schedule.trigger)
    while True:
        following = occurrence_after(schedule.trigger, after, rule=schedule.calendar, calendars=calendars)
        if following is None:
            return DueInstants(found, source=source)
        if following.at > until:
            ends = schedule.end_at is not None and following.at > schedule.end_at
            return DueInstants(found, following=None if ends else following.at, source=source)
        if len(found) == limit:
            return DueInstants(found, more=True, source=source)
        found.append(following)
        after = following.at


def undecided_after(progress: ScheduleProgress) -> datetime:
    """Return the instant after which no occurrence is decided yet.

    Occurrences between the cursor and the planned instant were displaced by a hint or a cadence.
    """
    if progress.next_at is not None and progress.source in BASELINE_SOURCES:
        return max(progress.cursor, progress.next_at - _MICROSECOND)
    return progress.cursor


def unrecorded_pauses(progress: ScheduleProgress) -> Pauses:
    """Return the pauses that are not recorded yet: the one set by a user and the one set by a hint."""
    hint, spans = progress.hints.pause, []
    if hint is None and progress.paused_until is None:
        return NO_PAUSES
    if progress.paused_until is not None:
        spans.append((progress.paused_at or progress.cursor, progress.paused_until))
    if hint is not None:
        spans.append((hint.created_at or progress.paused_at or progress.cursor, hint.until))
    return Pauses(tuple(spans))


def clear_pauses(progress: ScheduleProgress) -> ScheduleProgress:
    """Return the progress after its pauses are recorded."""
    if (
        progress.paused_at is None
        and unrecorded_pauses(progress) is NO_PAUSES
        and progress.state is ScheduleState.ACTIVE
    ):
        return progress
    hints = replace(progress.hints, pause=None)
    return replace(progress, state=ScheduleState.ACTIVE, paused_at=None, paused_until=None, hints=hints)
