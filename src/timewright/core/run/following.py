"""Triggers of the form `after: other-schedule`: each finished upstream run is one occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar, build_filter
from timewright.core.moments import format_instant
from timewright.core.policies.backoff import apply_jitter, occurrence_seed
from timewright.core.policies.policies import CatchUp, JitterSide, Offset, Overlap
from timewright.core.recurrence.triggers import After, AnyTrigger
from timewright.core.run.catch_up import ChosenOccurrence, InFlightCounts, apply_overlap
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.run.verdicts import Admission, Fire, Hold, Replace, Skip
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.governor import NO_CALENDARS, has_used_max_runs, pause_end
from timewright.core.schedule.pauses import NO_PAUSES, Pauses, clear_pauses, unrecorded_pauses
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision
from timewright.core.schedule.upstream import EndKind

_MICROSECOND = timedelta(microseconds=1)
_FAILED = (RunState.FAILED, RunState.PARKED)
# In these states a schedule has no occurrences, so upstream ends are ignored.
_INACTIVE = (ScheduleState.FINISHED, ScheduleState.ARCHIVED, ScheduleState.PENDING_APPROVAL)


class UpstreamEnd(Struct, frozen=True, kw_only=True):
    """A finished upstream run, and the instant of the occurrence it causes."""

    run_id: str
    due_at: datetime


class FollowResult(Struct, frozen=True, kw_only=True):
    """The result of a pass: the admission, and each handled end with its occurrence's instant, if any."""

    admission: Admission
    taken: tuple[tuple[UpstreamEnd, datetime | None], ...]


def follows_upstream(trigger: AnyTrigger) -> bool:
    """Whether a trigger follows the runs of another schedule."""
    return isinstance(trigger, After) and bool(trigger.schedule)


def follows_other_ends(before: AnyTrigger, trigger: AnyTrigger) -> bool:
    """Whether a trigger follows other ends than the one before it: those that are open are dropped."""
    if not (isinstance(before, After) and before.schedule and isinstance(trigger, After)):
        return False
    return (before.schedule, before.on) != (trigger.schedule, trigger.on)


def follow_instant(due_at: datetime, *, cursor: datetime) -> datetime:
    """Return the instant of the occurrence: the one the end asks for, but after the cursor."""
    return max(due_at, cursor + _MICROSECOND)


def end_kinds(run: Run) -> frozenset[EndKind]:
    """Return the kinds of end that a finished run counts as; none if it never started or is a backfill.

    A parked run counts as failed, because only a person can continue it.
    """
    if run.source is Source.BACKFILL:
        return frozenset()
    if run.state is RunState.SUCCEEDED:
        return frozenset({EndKind.SUCCESS, EndKind.END})
    if run.state in _FAILED and run.fence:
        return frozenset({EndKind.FAILURE, EndKind.END})
    started = run.state is RunState.CANCELLED and run.started_at is not None
    return frozenset({EndKind.END}) if started else frozenset()


def follow_ends(
    schedule: Schedule,
    progress: ScheduleProgress,
    ends: Sequence[UpstreamEnd],
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
    scoped_pauses: Pauses = NO_PAUSES,
) -> FollowResult:
    """Decide every upstream end that is due, once; ends at the same instant are one microsecond apart."""
    pauses = unrecorded_pauses(progress, scoped_pauses)
    verdicts: list[Fire | Hold | Replace | Skip] = []
    taken: list[tuple[UpstreamEnd, datetime | None]] = []
    for end in sorted(ends, key=lambda end: (end.due_at, end.run_id)):
        at = follow_instant(end.due_at, cursor=progress.cursor)
        is_ignored = progress.state in _INACTIVE or has_used_max_runs(schedule, progress)
        if end.due_at <= now and (is_ignored or not schedule.window.contains(end.due_at)):
            taken.append((end, None))
            continue
        if at > now:
            break
        if verdicts and schedule.overlap is Overlap.REPLACE:
            # The run to be replaced must be stored before the next occurrence can replace it.
            break
        verdict = _verdict(schedule, progress, at, pauses, in_flight=in_flight, now=now, calendars=calendars)
        verdicts.append(verdict)
        taken.append((end, at))
        in_flight = _count_start(in_flight, verdict)
        runs = progress.runs + (not isinstance(verdict, Skip))
        progress = replace(progress, cursor=at, runs=runs)
    pending = sorted(end.due_at for end in ends if all(end is not one for one, _ in taken))
    admission = _complete_pass(schedule, progress, verdicts, pending, now=now)
    return FollowResult(admission=admission, taken=tuple(taken))


def _verdict(
    schedule: Schedule,
    progress: ScheduleProgress,
    at: datetime,
    pauses: Pauses,
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Fire | Hold | Replace | Skip:
    reason = _skip_reason(schedule, progress, at, pauses, now=now, calendars=calendars)
    if reason is None:
        (result,) = apply_overlap(schedule, [ChosenOccurrence(at, at)], in_flight=in_flight)
        if not isinstance(result, Reason):
            return result(planned_at=at, fire_at=_fire_at(schedule, at), source=Source.BASELINE_AFTER)
        reason = result
    return Skip(planned_at=at, reason=reason, source=Source.BASELINE_AFTER)


def _skip_reason(
    schedule: Schedule,
    progress: ScheduleProgress,
    at: datetime,
    pauses: Pauses,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Reason | None:
    late = now - at
    open_ended = progress.state is not ScheduleState.ACTIVE and progress.paused_until is None
    if open_ended or pauses.contains(at):
        return Reason.PAUSED
    if schedule.calendar is not None and build_filter(schedule.calendar, calendars).excluded_by(at):
        return Reason.EXCLUDED
    if schedule.deadline is not None and late > schedule.deadline:
        return Reason.DEADLINE
    too_old = schedule.catch_up_window is not None and late > schedule.catch_up_window
    if too_old or (schedule.catch_up is CatchUp.NONE and late > schedule.grace):
        return Reason.MISSED
    return None


def _fire_at(schedule: Schedule, at: datetime) -> datetime:
    """Return when it may start: its instant plus jitter, but never before the upstream end."""
    if not schedule.jitter:
        return at
    stable = schedule.offset is Offset.STABLE
    moved = apply_jitter(
        at,
        within=schedule.jitter,
        both_sides=schedule.jitter_side is JitterSide.BOTH,
        seed=schedule.id if stable else occurrence_seed(schedule.id, at),
        next_at=None,
    )
    return max(at, moved)


def _count_start(in_flight: InFlightCounts, verdict: Fire | Hold | Replace | Skip) -> InFlightCounts:
    if isinstance(verdict, Fire):
        return replace(in_flight, live=in_flight.live + 1)
    return replace(in_flight, held=in_flight.held + 1) if isinstance(verdict, Hold) else in_flight


def _complete_pass(
    schedule: Schedule,
    progress: ScheduleProgress,
    verdicts: Sequence[Fire | Hold | Replace | Skip],
    pending: Sequence[datetime],
    *,
    now: datetime,
) -> Admission:
    """Complete a pass: the next instant is that of the next upstream end, or the end of a pause."""
    until = pause_end(progress, now=now)
    paused = progress.state is ScheduleState.PAUSED and progress.paused_until is None
    if progress.state in (ScheduleState.ACTIVE, ScheduleState.PAUSED) and until is None and not paused:
        progress = clear_pauses(progress)
    at = follow_instant(pending[0], cursor=progress.cursor) if pending else None
    decision = Decision(at, Source.BASELINE_AFTER)
    if until is not None:
        decision = decision.override(until, Source.PAUSED, why=f"paused until {format_instant(until)}")
    wakes = [moment for moment in (at, until) if moment is not None]
    active = progress.state is ScheduleState.ACTIVE or until is not None
    after = apply_decision(schedule, progress, decision) if active else replace(progress, next_at=None)
    after = replace(after, wake_at=min(wakes, default=None))
    return Admission(tuple(verdicts), after, decision, more=at is not None and at <= now)
