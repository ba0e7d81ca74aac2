"""Which occurrences become runs: late, missed, catch-up, overlap → fire, hold, replace, skip, drop.

`admit` accounts for every occurrence that is due, exactly once: each has a verdict, is counted in one
`Drop`, or is carried, in which case the cursor stays before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar, allowed_after, occurrence_after
from timewright.core.catch_up import Choice, Chosen, Flight, choose, overlapped
from timewright.core.decision import Decision, Source
from timewright.core.due import (
    NO_PAUSES,
    SCAN_LIMIT,
    Due,
    Pauses,
    due_now,
    enumerated,
    pauses_of,
    unpaused,
)
from timewright.core.governor import (
    NO_CALENDARS,
    counts_from_now,
    is_over,
    is_steady,
    paused_until,
    plan_next,
)
from timewright.core.jitter import jittered, occurrence_seed
from timewright.core.moments import SECOND, ZERO
from timewright.core.ordinary import on_time
from timewright.core.policies import JitterSide, Offset
from timewright.core.run import Reason
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided
from timewright.core.triggers import After, AnyOf, Every, Manual
from timewright.core.verdicts import (
    MOST_SKIP_ROWS,
    Admission,
    Drop,
    Fire,
    Hold,
    Replace,
    Skip,
    Verdict,
    collapsed,
)

__all__ = [
    "MOST_SKIP_ROWS",
    "SCAN_LIMIT",
    "Admission",
    "Drop",
    "Fire",
    "Flight",
    "Hold",
    "Replace",
    "Skip",
    "Verdict",
    "admit",
    "judge",
    "on_time",
    "resumed",
]

ALL_EXCLUDED = "calendars exclude every occurrence to come"

_TICK = timedelta(microseconds=1)


def admit(
    schedule: Schedule,
    standing: Standing,
    *,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Admission:
    """Decide every occurrence that is due, once."""
    ordinary = on_time(schedule, standing, flight=flight, now=now)
    if ordinary is not None:
        return ordinary
    return judge(schedule, standing, flight=flight, now=now, calendars=calendars)


def judge(
    schedule: Schedule,
    standing: Standing,
    *,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Admission:
    """Decide every occurrence that is due, whatever the case."""
    paused = standing.state is ScheduleState.PAUSED and standing.paused_until is not None
    if standing.state is not ScheduleState.ACTIVE and not paused:
        decision = Decision(None, Source.PAUSED)
        return Admission((), decided(schedule, standing, decision), decision)
    if paused_until(standing, now=now) is not None:
        decision = plan_next(schedule, standing, now=now, calendars=calendars)
        return Admission((), decided(schedule, standing, decision), decision)
    pauses = pauses_of(standing)
    if standing.hints.interval is not None or standing.hints.one_shot is not None:
        # A hint that is over has no say in what is due; the pause it asked for is still to be recorded.
        hints = replace(standing.hints.fresh(now=now), pause=standing.hints.pause)
        standing = replace(standing, hints=hints)
    if pauses.spans and not is_steady(schedule, standing):
        return _after_pause(schedule, standing, pauses, flight=flight, now=now, calendars=calendars)
    return _admit_due(schedule, standing, pauses=pauses, flight=flight, now=now, calendars=calendars)


def resumed(standing: Standing, *, now: datetime) -> Standing:
    """The standing of a schedule that someone lets go on: its pause ends now, its failures are forgiven.

    The next admission records what a pause held back. A schedule that was parked, or waited for approval,
    had no occurrences meanwhile: it goes on from now.
    """
    stopped = standing.state not in (ScheduleState.ACTIVE, ScheduleState.PAUSED)
    pause = standing.hints.pause
    hints = replace(standing.hints, pause=replace(pause, until=min(pause.until, now)) if pause else None)
    return replace(
        standing,
        state=ScheduleState.ACTIVE,
        reason="",
        failures=0,
        cursor=max(standing.cursor, now) if stopped else standing.cursor,
        next_at=None if stopped else standing.next_at,
        paused_at=None if stopped else standing.paused_at,
        paused_until=None if stopped or standing.paused_at is None else now,
        wake_at=now,
        hints=hints,
    )


def _after_pause(
    schedule: Schedule,
    standing: Standing,
    pauses: Pauses,
    *,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """A schedule without instants of its own decides again at the end of the pause, and goes on."""
    held_back: tuple[Verdict, ...] = ()
    # What was due before the pause began is still due.
    if standing.next_at is None or standing.next_at >= pauses.began:
        decision = plan_next(schedule, standing, now=pauses.ended, calendars=calendars)
        if counts_from_now(schedule):
            alive = schedule.end_at is None or pauses.ended <= schedule.end_at
            at = pauses.ended if alive and decision.at is not None else None
            decision = decision.over(at, Source.PAUSED, why="the pause is over")
        elif isinstance(schedule.trigger, After) and decision.at is not None and decision.at < pauses.ended:
            held_back = (Skip(planned_at=decision.at, reason=Reason.PAUSED, source=decision.source),)
            standing = replace(standing, cursor=decision.at)
            decision = Decision(schedule.trigger.next_after(pauses.ended), decision.source)
        standing = decided(schedule, standing, decision)
    standing = unpaused(standing)
    admission = _admit_due(schedule, standing, pauses=NO_PAUSES, flight=flight, now=now, calendars=calendars)
    return replace(admission, verdicts=held_back + admission.verdicts)


def _admit_due(
    schedule: Schedule,
    standing: Standing,
    *,
    pauses: Pauses,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    due = due_now(schedule, standing, now=now, calendars=calendars)
    if due.occurrences:
        return _judge(schedule, standing, due, pauses=pauses, flight=flight, now=now, calendars=calendars)
    decision = Decision(standing.next_at, standing.source or Source.PAUSED, standing.trail)
    if pauses.spans or decision.at is None or decision.at <= max(now, standing.cursor):
        standing = unpaused(standing)
        decision = plan_next(schedule, standing, now=now, calendars=calendars)
    idle = not flight.live and not flight.held
    return _closed(schedule, standing, (), decision, idle=idle)


def _closed(
    schedule: Schedule, standing: Standing, verdicts: Iterable[Verdict], decision: Decision, *, idle: bool
) -> Admission:
    """A complete pass; a schedule with nothing under way and nothing ahead is finished."""
    standing = decided(schedule, standing, decision)
    if decision.at is None and idle and not isinstance(schedule.trigger, Manual | After):
        excluded = any(lost.why == ALL_EXCLUDED for lost in decision.trail)
        reason = ALL_EXCLUDED if excluded else "nothing further is planned"
        standing = replace(standing, state=ScheduleState.FINISHED, reason=reason)
    return Admission(collapsed(verdicts), standing, decision)


def _unless_all_is_excluded(
    schedule: Schedule, decision: Decision, *, calendars: Mapping[str, Calendar]
) -> Decision:
    """A calendar may have been edited since the schedule was made: nothing left is an end, not a loop.

    A schedule with an end comes to it by itself, and every instant until then has its row.
    """
    if decision.at is None or schedule.end_at is not None or isinstance(schedule.trigger, After):
        return decision
    before = decision.at - _TICK
    if allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars) is not None:
        return decision
    return decision.over(None, decision.source, why=ALL_EXCLUDED)


def _judge(
    schedule: Schedule,
    standing: Standing,
    due: Due,
    *,
    pauses: Pauses,
    flight: Flight,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """A verdict for everything that is due, up to where a limit makes the rest wait."""
    kept, skips = _sorted_out(schedule, due, pauses=pauses, now=now)
    choice = choose(schedule, kept, flight=flight, more=due.more, now=now)
    skips += [Skip(planned_at=at, reason=Reason.MISSED, source=due.source) for at in choice.skipped]
    if choice.carried is not None:
        skips = [skip for skip in skips if skip.planned_at < choice.carried]
    started = _started(schedule, standing, due, choice, skips, flight=flight, calendars=calendars)
    standing = _moved_on(standing, due, choice, skips, started, now=now)
    verdicts: list[Verdict] = [*skips, *started]
    if is_over(schedule, standing):
        last = max((v.planned_at for v in started if not isinstance(v, Skip)), default=standing.cursor)
        verdicts = [verdict for verdict in verdicts if verdict.planned_at <= last]
    elif due.more or choice.carried is not None:
        again = SECOND if choice.carried is not None and not choice.runs else ZERO
        return _carried(schedule, standing, verdicts, now=now, again=again, calendars=calendars)
    standing = unpaused(standing)
    if due.following is not None and not is_over(schedule, standing):
        decision = Decision(due.following, due.source)
    else:
        decision = plan_next(schedule, standing, now=now, calendars=calendars)
    if any(skip.reason is Reason.EXCLUDED for skip in skips):
        decision = _unless_all_is_excluded(schedule, decision, calendars=calendars)
    idle = not flight.live and not flight.held and all(isinstance(verdict, Skip) for verdict in started)
    if isinstance(schedule.trigger, After) and idle and decision.at is None:
        # Nothing runs whose end could say when to come back.
        decision = Decision(schedule.trigger.next_after(now), due.source)
    return _closed(schedule, standing, verdicts, decision, idle=idle)


def _sorted_out(
    schedule: Schedule, due: Due, *, pauses: Pauses, now: datetime
) -> tuple[list[datetime], list[Skip]]:
    """What may run, and what may not whatever the catch-up policy says."""
    kept: list[datetime] = []
    skips: list[Skip] = []
    for occurrence in due.occurrences:
        at, reason = occurrence.at, None
        if pauses.cover(at):
            reason = Reason.PAUSED
        elif occurrence.excluded:
            reason = Reason.EXCLUDED
        elif schedule.deadline is not None and now - at > schedule.deadline:
            reason = Reason.DEADLINE
        if reason is None:
            kept.append(at)
        else:
            skips.append(Skip(planned_at=at, reason=reason, source=due.source))
    return kept, skips


def _started(
    schedule: Schedule,
    standing: Standing,
    due: Due,
    choice: Choice,
    skips: Sequence[Skip],
    *,
    flight: Flight,
    calendars: Mapping[str, Calendar],
) -> list[Fire | Hold | Replace | Skip]:
    """What overlap makes of those chosen to run, as many as the schedule may still have."""
    room = SCAN_LIMIT if schedule.max_runs is None else schedule.max_runs - standing.runs
    missed = standing.missed + sum(skip.reason is Reason.MISSED for skip in skips)
    verdicts: list[Fire | Hold | Replace | Skip] = []
    for one, fate in zip(choice.runs, overlapped(schedule, choice.runs, flight=flight), strict=True):
        if isinstance(fate, Reason):
            verdicts.append(Skip(planned_at=one.planned_at, reason=fate, source=due.source))
        elif room > 0:
            verdicts.append(
                fate(
                    planned_at=one.planned_at,
                    fire_at=_fire_at(schedule, one, calendars=calendars),
                    source=due.source,
                    trail=due.trail if one.planned_at == standing.next_at else (),
                    missed=missed,
                    fired_by=_fired_by(schedule, one.planned_at),
                )
            )
            room, missed = room - 1, 0
    return verdicts


def _fired_by(schedule: Schedule, planned_at: datetime) -> tuple[int, ...]:
    return schedule.trigger.which(planned_at) if isinstance(schedule.trigger, AnyOf) else ()


def _moved_on(
    standing: Standing,
    due: Due,
    choice: Choice,
    skips: Sequence[Skip],
    started: Sequence[Fire | Hold | Replace | Skip],
    *,
    now: datetime,
) -> Standing:
    """The standing with everything counted, and the cursor before what is carried."""
    runs = sum(not isinstance(verdict, Skip) for verdict in started)
    missed = standing.missed + sum(skip.reason is Reason.MISSED for skip in skips)
    cursor = due.occurrences[-1].at if choice.carried is None else choice.carried - _TICK
    hints = standing.hints
    if hints.one_shot is not None:
        hints = replace(hints.consumed(now=max(now, cursor)), pause=hints.pause)
    return replace(
        standing,
        cursor=max(standing.cursor, cursor),
        runs=standing.runs + runs,
        missed=0 if runs else missed,
        hints=hints,
    )


def _carried(
    schedule: Schedule,
    standing: Standing,
    verdicts: Iterable[Verdict],
    *,
    now: datetime,
    again: timedelta,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """A pass that met its limit: the rest waits behind the cursor, and we look again."""
    rest = enumerated(schedule, standing.cursor, now + schedule.jitter, calendars=calendars, limit=1)
    decision = Decision(rest.occurrences[0].at if rest.occurrences else None, rest.source)
    standing = replace(decided(schedule, standing, decision), wake_at=now + again)
    return Admission(collapsed(verdicts), standing, decision, more=True)


def _fire_at(schedule: Schedule, one: Chosen, *, calendars: Mapping[str, Calendar]) -> datetime:
    """When it may start: the spread instant, or the planned one moved by its hashed jitter."""
    planned_at, trigger = one.planned_at, schedule.trigger
    if not schedule.jitter or one.fire_at != planned_at:
        return one.fire_at
    if isinstance(trigger, Every) and counts_from_now(schedule):
        before: datetime | None = planned_at + trigger.interval
    else:
        following = occurrence_after(trigger, planned_at, rule=schedule.calendar, calendars=calendars)
        before = None if following is None else following.at
    stable = schedule.offset is Offset.STABLE
    return jittered(
        planned_at,
        within=schedule.jitter,
        both_sides=schedule.jitter_side is JitterSide.BOTH,
        seed=schedule.id if stable else occurrence_seed(schedule.id, planned_at),
        before=before,
    )
