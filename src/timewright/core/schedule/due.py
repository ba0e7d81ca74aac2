"""Finds the due occurrences of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.governor import (
    counts_from_last_start,
    counts_from_run,
    follows_trigger,
    has_used_max_runs,
    is_in_streak,
    is_requested,
    last_base,
    max_early,
    plan_next,
    plan_step,
    pull_forward,
)
from timewright.core.schedule.instants import (
    DisplacedInstants,
    DueInstants,
    as_occurrence,
    fold_displaced,
    list_clamped,
    list_occurrences,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress

BASELINE_SOURCES = frozenset({Source.BASELINE_CRON, Source.BASELINE_INTERVAL, Source.BASELINE_ONCE})

_CLAMPED = frozenset({Source.CLAMPED_MIN, Source.CLAMPED_MAX})
_MICROSECOND = timedelta(microseconds=1)


def find_due(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
    before_edit: bool = False,
) -> DueInstants:
    """Return the due occurrences, oldest first: the trigger's since the last decision, or the one decided.

    `before_edit` includes displaced instants whose occurrence is not due yet.
    """
    # At the expiry of a hint the schedule is decided again, so nothing after it is due early.
    expiry = progress.hints.next_expiry() if schedule.adaptive else None
    horizon = now + max_early(schedule)
    horizon = min(horizon, expiry) if expiry is not None and expiry > now else horizon
    if has_used_max_runs(schedule, progress):
        return DueInstants(())
    if not follows_trigger(schedule, progress, now=now):
        hint, failed_at = progress.hints.interval, progress.failing_since
        if is_in_streak(schedule, progress) and hint is not None and failed_at is not None:
            steady = replace(progress, failures=0)
            if hint.expires_at <= failed_at and follows_trigger(schedule, steady, now=failed_at):
                # The hint expired before the failure: until then the trigger decided.
                due = _due_with_hints(schedule, steady, until=failed_at, calendars=calendars)
                return due if due.more else replace(due, following=None)
        replaced = replaced_at(schedule, progress)
        if replaced is not None:
            return due_before(schedule, progress, replaced, until=horizon, calendars=calendars)
        progress = _without_expired(schedule, progress, now=now, calendars=calendars)
        return _decided_instant(schedule, progress, until=horizon, calendars=calendars)
    has_hints = schedule.adaptive and (progress.hints.interval or progress.hints.one_shot)
    if has_hints or not is_planned_by_trigger(progress):
        due = _due_with_hints(schedule, progress, until=horizon, calendars=calendars)
    else:
        due = _due_by_trigger(schedule, progress, until=horizon, calendars=calendars)
    if before_edit:
        due = _add_displaced(schedule, progress, due, until=now, calendars=calendars)
    one_shot = progress.hints.one_shot if has_hints else None
    waits = one_shot is not None and one_shot.expires_at > now and one_shot.at > horizon
    # What the clamp displaced belongs to the decision that follows, which knew the hint.
    is_decided = bool(due.displaced) and not due.occurrences
    return replace(due, following=None) if waits and not due.more and not is_decided else due


def is_planned_by_trigger(progress: ScheduleProgress) -> bool:
    """Whether the stored decision is the trigger's, moved by the clamp or not; a pause decides nothing."""
    source = progress.source
    if source in _CLAMPED:
        return not is_requested(source, progress.trail)
    return source is None or source in BASELINE_SOURCES or source in (Source.PAUSED, Source.MANUAL)


def is_open_instant(progress: ScheduleProgress) -> bool:
    """Whether the decided instant has no row yet: it is after the cursor, or a hint requested it."""
    at = progress.next_at
    return at is not None and (at > progress.cursor or is_requested(progress.source, progress.trail))


def displaced_by_decision(
    schedule: Schedule, progress: ScheduleProgress, *, calendars: Mapping[str, Calendar]
) -> Sequence[DisplacedInstants]:
    """Return the instants that the clamp moved to the decided one, also if they lie ahead.

    A hint for one instant, which the clamp moved too, replaces none of the trigger's.
    """
    is_one_shot = progress.hints.one_shot is not None and progress.hints.interval is None
    is_moved = progress.source is Source.CLAMPED_MIN and (is_planned_by_trigger(progress) or is_one_shot)
    at = progress.next_at
    if at is None or not is_moved or counts_from_run(schedule):
        return ()
    passed = list_occurrences(schedule, progress.cursor, at - _MICROSECOND, calendars=calendars)
    return fold_displaced(passed.occurrences)


def undecided_after(progress: ScheduleProgress) -> datetime:
    """Return the instant after which no occurrence is decided yet.

    Occurrences between the cursor and the planned instant were displaced by a hint or a cadence.
    """
    if progress.next_at is not None and progress.source in BASELINE_SOURCES:
        return max(progress.cursor, progress.next_at - _MICROSECOND)
    return progress.cursor


def cursor_after_hint(progress: ScheduleProgress, decision: Decision, *, now: datetime) -> datetime:
    """Return the cursor when an interval hint has expired: the trigger's instants before it had no row."""
    hint = progress.hints.interval
    if hint is None or hint.expires_at > now:
        return progress.cursor
    until = min(hint.expires_at, decision.at or hint.expires_at)
    return max(progress.cursor, until - _MICROSECOND)


def _without_expired(
    schedule: Schedule, progress: ScheduleProgress, *, now: datetime, calendars: Mapping[str, Calendar]
) -> ScheduleProgress:
    """Return the progress as decided when an interval hint expired: the earlier of it and of the trigger.

    Only with `align: now`; other schedules follow their trigger from then on.
    """
    hint = progress.hints.interval if schedule.adaptive else None
    if hint is None or hint.expires_at > now or not counts_from_last_start(schedule):
        return progress
    if progress.source is Source.PAUSED:
        return progress
    at, source = progress.next_at, progress.source or Source.AI_INTERVAL
    base = last_base(schedule, progress)
    unhinted = replace(progress, hints=replace(progress.hints, interval=None, pause=None))
    proposal = plan_next(schedule, unhinted, now=hint.expires_at, base=base, calendars=calendars)
    if at is None or at <= hint.expires_at or proposal.at is None or proposal.at >= at:
        return progress
    decision = pull_forward(Decision(at, source, progress.trail), proposal)
    return replace(progress, next_at=decision.at, source=decision.source, trail=decision.trail)


def _decided_instant(
    schedule: Schedule, progress: ScheduleProgress, *, until: datetime, calendars: Mapping[str, Calendar]
) -> DueInstants:
    """Return the decided instant if it is due; nothing else is an occurrence."""
    at = progress.next_at
    if at is None or not is_open_instant(progress) or at > until or not schedule.window.contains(at):
        return DueInstants(())
    occurrence = as_occurrence(schedule, at, calendars=calendars)
    return DueInstants((occurrence,), source=progress.source or Source.PAUSED, trail=progress.trail)


def _due_by_trigger(
    schedule: Schedule, progress: ScheduleProgress, *, until: datetime, calendars: Mapping[str, Calendar]
) -> DueInstants:
    """Return the trigger's occurrences from the decided one on."""
    at, source = progress.next_at, progress.source or Source.PAUSED
    is_decided = at is not None and at > progress.cursor and source in BASELINE_SOURCES | _CLAMPED
    if schedule.clamp.min or schedule.clamp.max or source in _CLAMPED:
        first = Decision(at, source, progress.trail) if is_decided else None
        return list_clamped(
            schedule, progress, progress.cursor, first=first, until=until, calendars=calendars
        )
    due = list_occurrences(schedule, undecided_after(progress), until, calendars=calendars)
    if not (progress.trail and is_decided):
        return due
    due = replace(due, trail=progress.trail)
    if not any(one.source in BASELINE_SOURCES for one in progress.trail):
        return due
    # A cadence decided on an instant that is not the trigger's, and a success by hand has ended the streak.
    decided = [Decision(at, source, progress.trail)]
    return _add_requested(schedule, due, decided, until=until, calendars=calendars)


def replaced_at(schedule: Schedule, progress: ScheduleProgress) -> datetime | None:
    """Return when an interval hint or a cadence replaced the trigger, if instants before it may be undecided.

    The trigger's instants up to then are still occurrences. None if there are none.
    """
    hint = progress.hints.interval if schedule.adaptive else None
    starts = [hint.began] if hint is not None else []
    if is_in_streak(schedule, progress):
        starts.append(progress.failing_since)
    first = min((start for start in starts if start is not None), default=None)
    if first is None or first <= progress.cursor or counts_from_run(schedule):
        return None
    if progress.source is Source.PAUSED:
        # Nothing was decided during the pause, so what was due before it may be undecided too.
        return first
    at = progress.next_at
    # An instant that a one-shot hint requested may lie between the trigger's.
    is_before = is_planned_by_trigger(progress) or progress.source is Source.AI_ONESHOT
    return first if at is not None and progress.cursor < at <= first and is_before else None


def due_before(
    schedule: Schedule,
    progress: ScheduleProgress,
    replaced: datetime,
    *,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Return the trigger's occurrences up to an instant from which something else decides.

    A pass may be dated before that instant: then the trigger also decides what follows.
    """
    until = min(until, replaced)
    progress = replace(progress, failures=0)  # a cadence decides only from then on
    due = _due_by_trigger(schedule, progress, until=until, calendars=calendars)
    due = _add_displaced(schedule, progress, due, until=until, calendars=calendars)
    one_shot = progress.hints.one_shot if schedule.adaptive and not schedule.clamp.min else None
    if one_shot is not None:
        requested = [Decision(at, Source.AI_ONESHOT) for at in one_shot.instants]
        due = _add_requested(schedule, due, requested, until=until, calendars=calendars)
    following = due.following.at if due.following is not None else None
    is_before = following is not None and following <= replaced
    return due if due.more or is_before else replace(due, following=None)


def _due_with_hints(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Return the trigger's occurrences since an interval hint expired, and the instants that hints requested.

    What was decided before the hint expired stays decided if it is earlier than the trigger's first instant.
    """
    hint, one_shot = progress.hints.interval, progress.hints.one_shot
    by_trigger = hint is None and is_planned_by_trigger(progress)
    after = max(progress.cursor, hint.expires_at - _MICROSECOND) if hint is not None else progress.cursor
    if by_trigger:
        due = _due_by_trigger(schedule, progress, until=until, calendars=calendars)
    else:
        due = _list_trigger(schedule, progress, after, until=until, calendars=calendars)
        due = _add_before_hint(schedule, progress, due, calendars=calendars)
    requested: list[Decision] = []
    if not by_trigger and progress.source is not Source.PAUSED and progress.next_at is not None:
        first = _first_instant(due)
        if first is None or progress.next_at < first:
            stands = Decision(progress.next_at, progress.source or Source.AI_INTERVAL, progress.trail)
            if is_planned_by_trigger(progress) and stands.source in _CLAMPED:
                # The hint did not change what the clamp decided before it, from which the next one counts.
                due = list_clamped(schedule, progress, after, first=stands, until=until, calendars=calendars)
            else:
                requested.append(stands)
    if one_shot is not None and not schedule.clamp.min:
        requested += [Decision(at, Source.AI_ONESHOT) for at in one_shot.instants]
    due = _add_requested(schedule, due, requested, until=until, calendars=calendars)
    if schedule.clamp.min and due.last is not None and due.last in due.decisions and not due.more:
        # The last occurrence may be a requested one, from which the clamp counts. What the trigger has until
        # the interval hint expired is replaced by the hint.
        following = plan_step(
            schedule, progress, after=max(due.last, after), base=due.last, calendars=calendars
        )
        due = replace(due, following=following)
    return due


def _add_before_hint(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    *,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Add the trigger's occurrences that were due before an interval hint that has expired since."""
    replaced = replaced_at(schedule, progress)
    if replaced is None:
        return due
    before = due_before(schedule, progress, replaced, until=replaced, calendars=calendars)
    if before.more:
        return before
    return replace(
        due,
        occurrences=[*before.occurrences, *due.occurrences],
        decisions={**before.decisions, **due.decisions},
        displaced=[*before.displaced, *due.displaced],
    )


def _first_instant(due: DueInstants) -> datetime | None:
    if due.occurrences:
        return due.occurrences[0].at
    return due.following.at if due.following is not None else None


def _add_requested(
    schedule: Schedule,
    due: DueInstants,
    requested: Sequence[Decision],
    *,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Add requested instants to the due ones; the first one that is not due may follow them."""
    found = {occurrence.at: occurrence for occurrence in due.occurrences}
    decisions = dict(due.decisions)
    following = due.following
    last = due.last if due.more else None
    for decision in requested:
        at = decision.at
        if at is None or at in found or not schedule.window.contains(at):
            continue
        if at <= until and (last is None or at <= last):
            found[at] = as_occurrence(schedule, at, calendars=calendars)
            decisions[at] = decision
        elif not due.more and (following is None or following.at is None or at < following.at):
            following = decision
    occurrences = [found[at] for at in sorted(found)]
    return replace(due, occurrences=occurrences, decisions=decisions, following=following)


def _list_trigger(
    schedule: Schedule,
    progress: ScheduleProgress,
    after: datetime,
    *,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Return the trigger's occurrences after an instant, moved by the clamp if there is one."""
    if schedule.clamp.min or schedule.clamp.max:
        first = plan_step(schedule, progress, after=after, base=progress.cursor, calendars=calendars)
        if first.at is not None and first.at <= after:
            # A hint replaced what was due until it expired; from then on the maximum counts again.
            first = plan_step(schedule, progress, after=after, base=after + _MICROSECOND, calendars=calendars)
        return list_clamped(schedule, progress, after, first=first, until=until, calendars=calendars)
    return list_occurrences(schedule, after, until, calendars=calendars)


def _add_displaced(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    *,
    until: datetime,
    calendars: Mapping[str, Calendar],
) -> DueInstants:
    """Add the instants up to now that are displaced by a decision that is not due yet."""
    decision = due.following
    if due.more or decision is None or decision.at is None or decision.source is not Source.CLAMPED_MIN:
        return due
    after, end = due.last or progress.cursor, min(until, decision.at - _MICROSECOND)
    passed = list_occurrences(schedule, after, end, calendars=calendars)
    return replace(due, displaced=[*due.displaced, *fold_displaced(passed.occurrences)])
