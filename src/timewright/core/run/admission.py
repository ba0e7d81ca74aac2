"""Decides which due occurrences become runs, by the catch-up and overlap policies.

`admit` handles every due occurrence exactly once: it gets a verdict, is counted in one `Drop`, or is carried
over to the next pass, in which case the cursor stays before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar, allowed_after, occurrence_after
from timewright.core.moments import SECOND, ZERO
from timewright.core.policies.jitter import apply_jitter, occurrence_seed
from timewright.core.policies.policies import JitterSide, Offset
from timewright.core.recurrence.triggers import After, AnyOf, Every, Manual
from timewright.core.run.catch_up import (
    CatchUpChoice,
    ChosenOccurrence,
    InFlightCounts,
    apply_overlap,
    choose_occurrences,
)
from timewright.core.run.fast_path import admit_on_time
from timewright.core.run.run import Reason
from timewright.core.run.verdicts import (
    MAX_SKIP_ROWS,
    Admission,
    Drop,
    Fire,
    Hold,
    Replace,
    Skip,
    Verdict,
    collapse_skips,
)
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.due import (
    MAX_SCANNED,
    NO_PAUSES,
    DueInstants,
    Pauses,
    clear_pauses,
    find_due,
    list_occurrences,
    unrecorded_pauses,
)
from timewright.core.schedule.governor import (
    NO_CALENDARS,
    counts_from_last_start,
    has_used_max_runs,
    is_trigger_only,
    pause_end,
    plan_next,
)
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision

__all__ = [
    "MAX_SCANNED",
    "MAX_SKIP_ROWS",
    "Admission",
    "Drop",
    "Fire",
    "Hold",
    "InFlightCounts",
    "Replace",
    "Skip",
    "Verdict",
    "admit",
    "admit_general",
    "admit_on_time",
    "resume_progress",
]

ALL_EXCLUDED = "calendars exclude every future occurrence"

_MICROSECOND = timedelta(microseconds=1)


def admit(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Admission:
    """Decide every due occurrence: by the fast path where it applies, else by `admit_general`."""
    fast = admit_on_time(schedule, progress, in_flight=in_flight, now=now)
    if fast is not None:
        return fast
    return admit_general(schedule, progress, in_flight=in_flight, now=now, calendars=calendars)


def admit_general(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Admission:
    """Decide every due occurrence, in all cases."""
    has_pause = progress.state is ScheduleState.PAUSED and progress.paused_until is not None
    if progress.state is not ScheduleState.ACTIVE and not has_pause:
        decision = Decision(None, Source.PAUSED)
        return Admission((), apply_decision(schedule, progress, decision), decision)
    if pause_end(progress, now=now) is not None:
        decision = plan_next(schedule, progress, now=now, calendars=calendars)
        return Admission((), apply_decision(schedule, progress, decision), decision)
    pauses = unrecorded_pauses(progress)
    if progress.hints.interval is not None or progress.hints.one_shot is not None:
        # Expired hints do not affect what is due, but an expired pause must still be recorded.
        hints = replace(progress.hints.unexpired(now=now), pause=progress.hints.pause)
        progress = replace(progress, hints=hints)
    if pauses.spans and not is_trigger_only(schedule, progress):
        return _admit_after_pause(
            schedule, progress, pauses, in_flight=in_flight, now=now, calendars=calendars
        )
    return _admit_due(schedule, progress, pauses=pauses, in_flight=in_flight, now=now, calendars=calendars)


def resume_progress(progress: ScheduleProgress, *, now: datetime) -> ScheduleProgress:
    """Return the progress of a schedule that is resumed: its pause ends now and its failure count is reset.

    The next admission records the occurrences that the pause suppressed. A schedule that was parked or
    waited for approval had no occurrences meanwhile, so it continues from now.
    """
    stopped = progress.state not in (ScheduleState.ACTIVE, ScheduleState.PAUSED)
    pause = progress.hints.pause
    hints = replace(progress.hints, pause=replace(pause, until=min(pause.until, now)) if pause else None)
    return replace(
        progress,
        state=ScheduleState.ACTIVE,
        reason="",
        failures=0,
        cursor=max(progress.cursor, now) if stopped else progress.cursor,
        next_at=None if stopped else progress.next_at,
        paused_at=None if stopped else progress.paused_at,
        paused_until=None if stopped or progress.paused_at is None else now,
        wake_at=now,
        hints=hints,
    )


def _admit_after_pause(
    schedule: Schedule,
    progress: ScheduleProgress,
    pauses: Pauses,
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """Plan again from the end of the pause, for a schedule that its trigger alone does not define."""
    suppressed: tuple[Verdict, ...] = ()
    # An occurrence that was due before the pause began is still due.
    if progress.next_at is None or progress.next_at >= pauses.first_start:
        decision = plan_next(schedule, progress, now=pauses.last_end, calendars=calendars)
        if counts_from_last_start(schedule):
            alive = schedule.end_at is None or pauses.last_end <= schedule.end_at
            at = pauses.last_end if alive and decision.at is not None else None
            decision = decision.override(at, Source.PAUSED, why="the pause ended")
        elif (
            isinstance(schedule.trigger, After) and decision.at is not None and decision.at < pauses.last_end
        ):
            suppressed = (Skip(planned_at=decision.at, reason=Reason.PAUSED, source=decision.source),)
            progress = replace(progress, cursor=decision.at)
            decision = Decision(schedule.trigger.next_after(pauses.last_end), decision.source)
        progress = apply_decision(schedule, progress, decision)
    progress = clear_pauses(progress)
    admission = _admit_due(
        schedule, progress, pauses=NO_PAUSES, in_flight=in_flight, now=now, calendars=calendars
    )
    return replace(admission, verdicts=suppressed + admission.verdicts)


def _admit_due(
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    pauses: Pauses,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    due = find_due(schedule, progress, now=now, calendars=calendars)
    if due.occurrences:
        return _decide_due(
            schedule, progress, due, pauses=pauses, in_flight=in_flight, now=now, calendars=calendars
        )
    decision = Decision(progress.next_at, progress.source or Source.PAUSED, progress.trail)
    if pauses.spans or decision.at is None or decision.at <= max(now, progress.cursor):
        progress = clear_pauses(progress)
        decision = plan_next(schedule, progress, now=now, calendars=calendars)
    idle = not in_flight.live and not in_flight.held
    return _complete_pass(schedule, progress, (), decision, idle=idle)


def _complete_pass(
    schedule: Schedule,
    progress: ScheduleProgress,
    verdicts: Iterable[Verdict],
    decision: Decision,
    *,
    idle: bool,
) -> Admission:
    """Complete a pass; a schedule with nothing in flight and no next instant is finished."""
    progress = apply_decision(schedule, progress, decision)
    if decision.at is None and idle and not isinstance(schedule.trigger, Manual | After):
        excluded = any(lost.why == ALL_EXCLUDED for lost in decision.trail)
        reason = ALL_EXCLUDED if excluded else "no further occurrences"
        progress = replace(progress, state=ScheduleState.FINISHED, reason=reason)
    return Admission(collapse_skips(verdicts), progress, decision)


def _end_if_all_excluded(
    schedule: Schedule, decision: Decision, *, calendars: Mapping[str, Calendar]
) -> Decision:
    """Return a decision without an instant if calendars exclude every future occurrence.

    A calendar may have been edited since the schedule was created; without this check the schedule would skip
    forever. A schedule with `end_at` ends anyway, and each of its excluded instants gets its row.
    """
    if decision.at is None or schedule.end_at is not None or isinstance(schedule.trigger, After):
        return decision
    before = decision.at - _MICROSECOND
    if allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars) is not None:
        return decision
    return decision.override(None, decision.source, why=ALL_EXCLUDED)


def _decide_due(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    *,
    pauses: Pauses,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """Give every due occurrence a verdict, up to where a limit makes the rest wait."""
    runnable, skips = _split_skipped(schedule, due, pauses=pauses, now=now)
    choice = choose_occurrences(schedule, runnable, in_flight=in_flight, more=due.more, now=now)
    skips += [Skip(planned_at=at, reason=Reason.MISSED, source=due.source) for at in choice.skipped]
    if choice.carried is not None:
        skips = [skip for skip in skips if skip.planned_at < choice.carried]
    started = _start_verdicts(
        schedule, progress, due, choice, skips, in_flight=in_flight, calendars=calendars
    )
    progress = _advance_progress(progress, due, choice, skips, started, now=now)
    verdicts: list[Verdict] = [*skips, *started]
    if has_used_max_runs(schedule, progress):
        last = max((v.planned_at for v in started if not isinstance(v, Skip)), default=progress.cursor)
        verdicts = [verdict for verdict in verdicts if verdict.planned_at <= last]
    elif due.more or choice.carried is not None:
        delay = SECOND if choice.carried is not None and not choice.runs else ZERO
        return _carry_over(schedule, progress, verdicts, now=now, delay=delay, calendars=calendars)
    progress = clear_pauses(progress)
    if due.following is not None and not has_used_max_runs(schedule, progress):
        decision = Decision(due.following, due.source)
    else:
        decision = plan_next(schedule, progress, now=now, calendars=calendars)
    if any(skip.reason is Reason.EXCLUDED for skip in skips):
        decision = _end_if_all_excluded(schedule, decision, calendars=calendars)
    idle = not in_flight.live and not in_flight.held and all(isinstance(verdict, Skip) for verdict in started)
    if isinstance(schedule.trigger, After) and idle and decision.at is None:
        # Nothing is running whose end could set the next instant.
        decision = Decision(schedule.trigger.next_after(now), due.source)
    return _complete_pass(schedule, progress, verdicts, decision, idle=idle)


def _split_skipped(
    schedule: Schedule, due: DueInstants, *, pauses: Pauses, now: datetime
) -> tuple[list[datetime], list[Skip]]:
    """Split the due occurrences into those that may run and those skipped before catch-up is applied."""
    runnable: list[datetime] = []
    skips: list[Skip] = []
    for occurrence in due.occurrences:
        at, reason = occurrence.at, None
        if pauses.contains(at):
            reason = Reason.PAUSED
        elif occurrence.excluded:
            reason = Reason.EXCLUDED
        elif schedule.deadline is not None and now - at > schedule.deadline:
            reason = Reason.DEADLINE
        if reason is None:
            runnable.append(at)
        else:
            skips.append(Skip(planned_at=at, reason=reason, source=due.source))
    return runnable, skips


def _start_verdicts(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    choice: CatchUpChoice,
    skips: Sequence[Skip],
    *,
    in_flight: InFlightCounts,
    calendars: Mapping[str, Calendar],
) -> list[Fire | Hold | Replace | Skip]:
    """Apply the overlap policy to the chosen occurrences, up to `max_runs`."""
    remaining = MAX_SCANNED if schedule.max_runs is None else schedule.max_runs - progress.runs
    missed = progress.missed + sum(skip.reason is Reason.MISSED for skip in skips)
    verdicts: list[Fire | Hold | Replace | Skip] = []
    for one, result in zip(
        choice.runs, apply_overlap(schedule, choice.runs, in_flight=in_flight), strict=True
    ):
        if isinstance(result, Reason):
            verdicts.append(Skip(planned_at=one.planned_at, reason=result, source=due.source))
        elif remaining > 0:
            verdicts.append(
                result(
                    planned_at=one.planned_at,
                    fire_at=_fire_at(schedule, one, calendars=calendars),
                    source=due.source,
                    trail=due.trail if one.planned_at == progress.next_at else (),
                    missed=missed,
                    fired_by=_fired_by(schedule, one.planned_at),
                )
            )
            remaining, missed = remaining - 1, 0
    return verdicts


def _fired_by(schedule: Schedule, planned_at: datetime) -> tuple[int, ...]:
    return schedule.trigger.matching_positions(planned_at) if isinstance(schedule.trigger, AnyOf) else ()


def _advance_progress(
    progress: ScheduleProgress,
    due: DueInstants,
    choice: CatchUpChoice,
    skips: Sequence[Skip],
    started: Sequence[Fire | Hold | Replace | Skip],
    *,
    now: datetime,
) -> ScheduleProgress:
    """Return the progress with updated counts, and the cursor before the occurrences carried over."""
    runs = sum(not isinstance(verdict, Skip) for verdict in started)
    missed = progress.missed + sum(skip.reason is Reason.MISSED for skip in skips)
    cursor = due.occurrences[-1].at if choice.carried is None else choice.carried - _MICROSECOND
    hints = progress.hints
    if hints.one_shot is not None:
        hints = replace(hints.after_run(now=max(now, cursor)), pause=hints.pause)
    return replace(
        progress,
        cursor=max(progress.cursor, cursor),
        runs=progress.runs + runs,
        missed=0 if runs else missed,
        hints=hints,
    )


def _carry_over(
    schedule: Schedule,
    progress: ScheduleProgress,
    verdicts: Iterable[Verdict],
    *,
    now: datetime,
    delay: timedelta,
    calendars: Mapping[str, Calendar],
) -> Admission:
    """Complete a pass that reached a limit: the rest stays after the cursor for the next pass."""
    rest = list_occurrences(schedule, progress.cursor, now + schedule.jitter, calendars=calendars, limit=1)
    decision = Decision(rest.occurrences[0].at if rest.occurrences else None, rest.source)
    progress = replace(apply_decision(schedule, progress, decision), wake_at=now + delay)
    return Admission(collapse_skips(verdicts), progress, decision, more=True)


def _fire_at(schedule: Schedule, one: ChosenOccurrence, *, calendars: Mapping[str, Calendar]) -> datetime:
    """Return when it may start: the spread instant, or the planned one plus its jitter."""
    planned_at, trigger = one.planned_at, schedule.trigger
    if not schedule.jitter or one.fire_at != planned_at:
        return one.fire_at
    if isinstance(trigger, Every) and counts_from_last_start(schedule):
        before: datetime | None = planned_at + trigger.interval
    else:
        following = occurrence_after(trigger, planned_at, rule=schedule.calendar, calendars=calendars)
        before = None if following is None else following.at
    stable = schedule.offset is Offset.STABLE
    return apply_jitter(
        planned_at,
        within=schedule.jitter,
        both_sides=schedule.jitter_side is JitterSide.BOTH,
        seed=schedule.id if stable else occurrence_seed(schedule.id, planned_at),
        next_at=before,
    )
