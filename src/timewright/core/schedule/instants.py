"""Lists the instants of a trigger, moved by the clamp if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.calendars import Calendar, Occurrence, build_filter, occurrence_after
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.governor import baseline_source, plan_step
from timewright.core.schedule.schedule import Schedule, ScheduleProgress

MAX_SCANNED = 10_000

_MICROSECOND = timedelta(microseconds=1)


class DisplacedInstants(Struct, frozen=True):
    """Instants of the trigger that the clamp moved to a later one: the first, the last, and their number."""

    first: datetime
    last: datetime
    count: int


class DueInstants(Struct, frozen=True):
    """The due occurrences, oldest first; `more` means that the scan stopped at its limit.

    `following` is the first decision that is not in the list, if the scan reached it. `decisions` has the
    occurrences that hints or the clamp decided, and `displaced` the instants that the clamp displaced.
    Those in `decided` have a row already.
    """

    occurrences: Sequence[Occurrence]
    more: bool = False
    following: Decision | None = None
    source: Source = Source.BASELINE_CRON
    trail: tuple[Candidate, ...] = ()
    decisions: Mapping[datetime, Decision] = {}
    displaced: Sequence[DisplacedInstants] = ()
    decided: frozenset[datetime] = frozenset()

    def source_of(self, at: datetime) -> Source:
        """Return what decided an occurrence."""
        decision = self.decisions.get(at)
        return self.source if decision is None else decision.source

    @property
    def last(self) -> datetime | None:
        """The last instant of the list, displaced ones included."""
        ends = [occurrence.at for occurrence in self.occurrences[-1:]]
        return max(ends + [span.last for span in self.displaced[-1:]], default=None)


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
            decision = None if ends else Decision(following.at, source)
            return DueInstants(found, following=decision, source=source)
        if len(found) == limit:
            return DueInstants(found, more=True, following=Decision(following.at, source), source=source)
        found.append(following)
        after = following.at


def list_clamped(
    schedule: Schedule,
    progress: ScheduleProgress,
    after: datetime,
    *,
    first: Decision | None,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Return the occurrences under a clamp, each decided from the one before, and what it displaces."""
    found: list[Occurrence] = []
    decisions: dict[datetime, Decision] = {}
    displaced: list[DisplacedInstants] = []
    free = MAX_SCANNED
    decision = first or plan_step(schedule, progress, after=after, base=progress.cursor, calendars=calendars)
    while (at := decision.at) is not None and at <= until and free:
        if decision.source is Source.CLAMPED_MIN:
            passed = list_occurrences(schedule, after, at - _MICROSECOND, calendars=calendars, limit=free)
            free -= len(passed.occurrences)
            displaced += fold_displaced(passed.occurrences)
            if passed.more or not free:
                break
        found.append(as_occurrence(schedule, at, calendars=calendars))
        decisions[at] = decision
        after, free = at, free - 1
        decision = plan_step(schedule, progress, after=at, base=at, calendars=calendars)
    return DueInstants(
        found,
        more=at is not None and at <= until,
        following=None if at is None else decision,
        source=baseline_source(schedule.trigger),
        decisions=decisions,
        displaced=displaced,
    )


def fold_displaced(passed: Sequence[Occurrence]) -> list[DisplacedInstants]:
    """Return displaced instants as one group, or none."""
    return [DisplacedInstants(passed[0].at, passed[-1].at, len(passed))] if passed else []


def as_occurrence(schedule: Schedule, at: datetime, *, calendars: Mapping[str, Calendar]) -> Occurrence:
    """Return an instant with the calendar that excludes it, if one does."""
    excluding = build_filter(schedule.calendar, calendars).excluded_by(at) if schedule.calendar else None
    return Occurrence(at, excluded=excluding.name if excluding else "")
