"""What the ends of another schedule's runs become: one occurrence each, decided when its instant has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar, openings_of
from timewright.core.catch_up import Chosen, Flight, overlapped
from timewright.core.decision import Decision, Source
from timewright.core.due import Pauses, pauses_of, unpaused
from timewright.core.governor import NO_CALENDARS, is_over, paused_until
from timewright.core.jitter import jittered, occurrence_seed
from timewright.core.moments import spell_instant
from timewright.core.policies import CatchUp, JitterSide, Offset, Overlap
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided
from timewright.core.triggers import After, AnyTrigger
from timewright.core.upstream import On
from timewright.core.verdicts import Admission, Fire, Hold, Replace, Skip

_TICK = timedelta(microseconds=1)
_FAILED = (RunState.FAILED, RunState.PARKED)
# What is over, or not approved, has no occurrences: an end it hears of then makes none.
_OVER = (ScheduleState.FINISHED, ScheduleState.ARCHIVED, ScheduleState.PENDING_APPROVAL)


class End(Struct, frozen=True, kw_only=True):
    """A run that ended, and the instant its end asks for."""

    run_id: str
    due_at: datetime


class Followed(Struct, frozen=True, kw_only=True):
    """What a pass made of ends: a verdict for each that is taken, or none where it makes no occurrence."""

    admission: Admission
    taken: tuple[tuple[End, datetime | None], ...]


def follows(trigger: AnyTrigger) -> bool:
    """Whether a trigger waits for the ends of another schedule's runs."""
    return isinstance(trigger, After) and bool(trigger.schedule)


def follows_at(due_at: datetime, *, cursor: datetime) -> datetime:
    """When an end is followed: at the instant it asks for, or right after the last one that was decided."""
    return max(due_at, cursor + _TICK)


def ends_as(run: Run) -> frozenset[On]:
    """As what the end of a run counts; nothing for one that never started, or that fills in the past.

    One that is parked has failed for all who wait: only a person can change that.
    """
    if run.source is Source.BACKFILL:
        return frozenset()
    if run.state is RunState.SUCCEEDED:
        return frozenset({On.SUCCESS, On.END})
    if run.state in _FAILED and run.fence:
        return frozenset({On.FAILURE, On.END})
    started = run.state is RunState.CANCELLED and run.started_at is not None
    return frozenset({On.END}) if started else frozenset()


def follow(
    schedule: Schedule,
    standing: Standing,
    ends: Sequence[End],
    *,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Followed:
    """Decide every end whose instant has come, once; ends at one instant follow a microsecond apart."""
    pauses = pauses_of(standing)
    verdicts: list[Fire | Hold | Replace | Skip] = []
    taken: list[tuple[End, datetime | None]] = []
    for end in sorted(ends, key=lambda end: (end.due_at, end.run_id)):
        at = follows_at(end.due_at, cursor=standing.cursor)
        is_void = standing.state in _OVER or is_over(schedule, standing)
        if end.due_at <= now and (is_void or not schedule.window.contains(end.due_at)):
            taken.append((end, None))
            continue
        if at > now:
            break
        if verdicts and schedule.overlap is Overlap.REPLACE:
            # What is to give way must be written before the next one asks for it.
            break
        verdict = _verdict(schedule, standing, at, pauses, flight=flight, now=now, calendars=calendars)
        verdicts.append(verdict)
        taken.append((end, at))
        flight = _busier(flight, verdict)
        runs = standing.runs + (not isinstance(verdict, Skip))
        standing = replace(standing, cursor=at, runs=runs)
    left = sorted(end.due_at for end in ends if all(end is not one for one, _ in taken))
    admission = _closed(schedule, standing, verdicts, left, now=now)
    return Followed(admission=admission, taken=tuple(taken))


def _verdict(
    schedule: Schedule,
    standing: Standing,
    at: datetime,
    pauses: Pauses,
    *,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Fire | Hold | Replace | Skip:
    reason = _why_not(schedule, standing, at, pauses, now=now, calendars=calendars)
    if reason is None:
        (fate,) = overlapped(schedule, [Chosen(at, at)], flight=flight)
        if not isinstance(fate, Reason):
            return fate(planned_at=at, fire_at=_fire_at(schedule, at), source=Source.BASELINE_AFTER)
        reason = fate
    return Skip(planned_at=at, reason=reason, source=Source.BASELINE_AFTER)


def _why_not(
    schedule: Schedule,
    standing: Standing,
    at: datetime,
    pauses: Pauses,
    *,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Reason | None:
    late = now - at
    open_ended = standing.state is not ScheduleState.ACTIVE and standing.paused_until is None
    if open_ended or pauses.cover(at):
        return Reason.PAUSED
    if schedule.calendar is not None and openings_of(schedule.calendar, calendars).closed_by(at):
        return Reason.EXCLUDED
    if schedule.deadline is not None and late > schedule.deadline:
        return Reason.DEADLINE
    too_old = schedule.catch_up_window is not None and late > schedule.catch_up_window
    if too_old or (schedule.catch_up is CatchUp.NONE and late > schedule.grace):
        return Reason.MISSED
    return None


def _fire_at(schedule: Schedule, at: datetime) -> datetime:
    """When it may start: its instant, moved by its hashed jitter, but never before what it follows."""
    if not schedule.jitter:
        return at
    stable = schedule.offset is Offset.STABLE
    moved = jittered(
        at,
        within=schedule.jitter,
        both_sides=schedule.jitter_side is JitterSide.BOTH,
        seed=schedule.id if stable else occurrence_seed(schedule.id, at),
        before=None,
    )
    return max(at, moved)


def _busier(flight: Flight, verdict: Fire | Hold | Replace | Skip) -> Flight:
    if isinstance(verdict, Fire):
        return replace(flight, live=flight.live + 1)
    return replace(flight, held=flight.held + 1) if isinstance(verdict, Hold) else flight


def _closed(
    schedule: Schedule,
    standing: Standing,
    verdicts: Sequence[Fire | Hold | Replace | Skip],
    left: Sequence[datetime],
    *,
    now: datetime,
) -> Admission:
    """Where the schedule stands: the next end that waits for its instant, or the end of a pause."""
    until = paused_until(standing, now=now)
    paused = standing.state is ScheduleState.PAUSED and standing.paused_until is None
    if standing.state in (ScheduleState.ACTIVE, ScheduleState.PAUSED) and until is None and not paused:
        standing = unpaused(standing)
    at = follows_at(left[0], cursor=standing.cursor) if left else None
    decision = Decision(at, Source.BASELINE_AFTER)
    if until is not None:
        decision = decision.over(until, Source.PAUSED, why=f"paused until {spell_instant(until)}")
    wakes = [moment for moment in (at, until) if moment is not None]
    active = standing.state is ScheduleState.ACTIVE or until is not None
    after = decided(schedule, standing, decision) if active else replace(standing, next_at=None)
    after = replace(after, wake_at=min(wakes, default=None))
    return Admission(tuple(verdicts), after, decision, more=at is not None and at <= now)
