"""Decides which due occurrences become runs, by the catch-up and overlap policies.

`admit` handles every due occurrence exactly once: it gets a verdict, is counted in one `Drop`, or is carried
over to the next pass, in which case the cursor stays before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.moments import SECOND, ZERO
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.catch_up import CatchUpChoice, InFlightCounts, choose_occurrences
from timewright.core.run.due_verdicts import (
    ALL_EXCLUDED,
    decide_without_expired,
    displaced_drops,
    due_after_run,
    end_if_all_excluded,
    is_kept_away,
    restart_after,
    skipped_after_run,
    skipped_before_hint,
    skipped_during_streak,
    split_skipped,
    start_verdicts,
)
from timewright.core.run.fast_path import admit_on_time
from timewright.core.run.replaced import at_reopened, close_reopened, has_reopened, note_replaced
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
    cursor_after_hint,
    due_before,
    find_due,
    is_open_instant,
    replaced_at,
)
from timewright.core.schedule.governor import (
    NO_CALENDARS,
    count_to,
    counts_from_last_start,
    decide_pause,
    follows_trigger,
    has_used_max_runs,
    last_base,
    pause_end,
    plan_next,
    restart_interval,
)
from timewright.core.schedule.instants import MAX_SCANNED, DueInstants
from timewright.core.schedule.pauses import NO_PAUSES, Pauses, clear_pauses, unrecorded_pauses
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
    "displaced_drops",
]

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
    before_edit: bool = False,
    scoped_pauses: Pauses = NO_PAUSES,
    decided: frozenset[datetime] = frozenset(),
) -> Admission:
    """Decide every due occurrence, in all cases.

    `scoped_pauses` are those of a group or another scope whose occurrences are skipped.
    Instants that the clamp displaced are recorded with the occurrence that they moved to; `before_edit`
    records those up to now, because that occurrence may change. If instants are reopened that a cadence
    replaced, `decided` are those that have a row.
    """
    has_pause = progress.state is ScheduleState.PAUSED and progress.paused_until is not None
    if progress.state is not ScheduleState.ACTIVE and not has_pause:
        decision = Decision(None, Source.PAUSED)
        return Admission((), apply_decision(schedule, progress, decision), decision)
    if (until := pause_end(progress, now=now)) is not None:
        decision = decide_pause(progress, until=until)
        return Admission((), apply_decision(schedule, progress, decision), decision)
    pauses, is_reopened = unrecorded_pauses(progress, scoped_pauses), has_reopened(schedule, progress)
    begins = at_reopened(progress) if is_reopened else progress
    if pauses.spans and not follows_trigger(schedule, progress, now=now):
        admission = _admit_replaced(
            schedule, begins, pauses, in_flight=in_flight, now=now, calendars=calendars, decided=decided
        )
    else:
        admission = _admit_due(
            schedule,
            begins,
            pauses=pauses,
            in_flight=in_flight,
            now=now,
            calendars=calendars,
            before_edit=before_edit,
            decided=decided,
        )
    if is_reopened:
        return close_reopened(schedule, progress, admission, now=now, calendars=calendars)
    return note_replaced(schedule, progress, admission, has_pauses=bool(pauses.spans))


def _admit_replaced(
    schedule: Schedule,
    progress: ScheduleProgress,
    pauses: Pauses,
    *,
    in_flight: InFlightCounts,
    now: datetime,
    calendars: Mapping[str, Calendar],
    decided: frozenset[datetime],
) -> Admission:
    """Decide after a pause what came due before a hint replaced the trigger, then plan by the hint."""
    replaced = replaced_at(schedule, progress)
    verdicts: tuple[Verdict, ...] = ()
    if replaced is not None:
        due = due_before(schedule, progress, replaced, until=now, calendars=calendars)
        if due.more or progress.source is not Source.PAUSED:
            return _admit_due(
                schedule,
                progress,
                pauses=pauses,
                in_flight=in_flight,
                now=now,
                calendars=calendars,
                decided=decided,
            )
        if due.occurrences or due.displaced:
            stands = Decision(pauses.last_end, Source.PAUSED)
            before = _decide_due(
                schedule,
                progress,
                replace(due, following=stands, decided=decided),
                pauses=pauses,
                in_flight=in_flight,
                now=now,
                calendars=calendars,
            )
            if before.more:
                return before
            verdicts, after = before.verdicts, before.progress
            progress = replace(progress, cursor=after.cursor, runs=after.runs, missed=after.missed)
            in_flight = InFlightCounts(
                live=in_flight.live + sum(isinstance(verdict, Fire) for verdict in verdicts),
                held=in_flight.held + sum(isinstance(verdict, Hold | Replace) for verdict in verdicts),
            )
    admission = _admit_after_pause(
        schedule, progress, pauses, in_flight=in_flight, now=now, calendars=calendars
    )
    return replace(admission, verdicts=verdicts + admission.verdicts)


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
        if is_kept_away(schedule, progress, now=pauses.last_end):
            suppressed, stays = skipped_during_streak(schedule, progress, pauses, calendars=calendars)
            # The end of the pause itself is no part of it: what is planned there is still open.
            before_end = pauses.last_end - _MICROSECOND
            hints = progress.hints.without_used(until=before_end)
            progress = clear_pauses(replace(progress, cursor=max(progress.cursor, before_end), hints=hints))
            decision = stays or plan_next(schedule, progress, now=before_end, calendars=calendars)
        else:
            suppressed, progress = skipped_before_hint(schedule, progress, pauses, calendars=calendars)
            decision = plan_next(schedule, progress, now=pauses.last_end, calendars=calendars)
        decision = due_after_run(schedule, progress, pauses) or decision
        if counts_from_last_start(schedule) and pauses.last_end <= progress.cursor:
            # A user skipped the end of the pause, or a later instant: a late engine plans from there too.
            base = last_base(schedule, progress)
            decision = plan_next(schedule, progress, now=pauses.last_end, base=base, calendars=calendars)
            progress = count_to(schedule, progress, decision)
        elif counts_from_last_start(schedule):
            # Another pause may have begun before an admission decided at the end of the first.
            end = pauses.first_end_after(progress.cursor)
            alive = schedule.end_at is None or end <= schedule.end_at
            at = end if alive and decision.at is not None else None
            decision = decision.override(at, Source.PAUSED, why="the pause ended")
        elif isinstance(schedule.trigger, After) and decision.at is not None and pauses.contains(decision.at):
            suppressed = (Skip(planned_at=decision.at, reason=Reason.PAUSED, source=decision.source),)
            progress = replace(progress, cursor=decision.at)
            decision = Decision(schedule.trigger.next_after(pauses.last_end), decision.source)
        elif (
            isinstance(schedule.trigger, After) and decision.at is not None and decision.at >= pauses.last_end
        ):
            suppressed, progress = skipped_after_run(schedule, progress, pauses)
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
    before_edit: bool = False,
    decided: frozenset[datetime] = frozenset(),
) -> Admission:
    due = find_due(schedule, progress, now=now, calendars=calendars, before_edit=before_edit)
    due = replace(due, decided=decided) if decided else due
    if due.occurrences or due.displaced:
        return _decide_due(
            schedule, progress, due, pauses=pauses, in_flight=in_flight, now=now, calendars=calendars
        )
    decision = Decision(progress.next_at, progress.source or Source.PAUSED, progress.trail)
    is_open = decision.at is not None and is_open_instant(progress) and decision.at > now
    if pauses.spans or not is_open:
        progress = clear_pauses(progress)
        base = last_base(schedule, progress)
        decision = due.following or plan_next(schedule, progress, now=now, base=base, calendars=calendars)
    elif progress.hints.has_expired(now=now):
        decision = decide_without_expired(schedule, progress, due, now=now, calendars=calendars)
        if isinstance(schedule.trigger, After) and not in_flight.live and not in_flight.held:
            decision = restart_after(schedule.trigger, progress, decision, now=now)
    idle = not in_flight.live and not in_flight.held
    return _complete_pass(schedule, progress, (), decision, now=now, idle=idle)


def _complete_pass(
    schedule: Schedule,
    progress: ScheduleProgress,
    verdicts: tuple[Verdict, ...],
    decision: Decision,
    *,
    now: datetime,
    idle: bool,
) -> Admission:
    """Complete a pass; a schedule with nothing in flight and no next instant is finished."""
    if progress.hints.has_expired(now=now):
        # An expired pause stays until it is recorded.
        hints = replace(progress.hints.unexpired(now=now), pause=progress.hints.pause)
        cursor = cursor_after_hint(progress, decision, now=now)
        progress = replace(progress, hints=hints, cursor=cursor)
    progress = apply_decision(schedule, progress, decision)
    if decision.at is None and idle and not isinstance(schedule.trigger, Manual | After):
        excluded = any(lost.why == ALL_EXCLUDED for lost in decision.trail)
        reason = ALL_EXCLUDED if excluded else "no further occurrences"
        progress = replace(progress, state=ScheduleState.FINISHED, reason=reason)
    return Admission(verdicts, progress, decision)


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
    runnable, skips = split_skipped(schedule, due, pauses=pauses, now=now)
    choice = choose_occurrences(schedule, runnable, in_flight=in_flight, more=due.more, now=now)
    skips += [Skip(planned_at=at, reason=Reason.MISSED, source=due.source_of(at)) for at in choice.skipped]
    displaced = displaced_drops(due.displaced, source=due.source)
    if choice.carried is not None:
        skips = [skip for skip in skips if skip.planned_at < choice.carried]
        displaced = [drop for drop in displaced if drop.last_of < choice.carried]
    started = start_verdicts(schedule, progress, due, choice, skips, in_flight=in_flight, calendars=calendars)
    progress = _advance_progress(progress, due, choice, skips, started, now=now)
    verdicts: list[Verdict] = [*skips, *displaced, *started]
    if has_used_max_runs(schedule, progress):
        last = max((v.planned_at for v in started if not isinstance(v, Skip)), default=progress.cursor)
        verdicts = [verdict for verdict in verdicts if verdict.planned_at <= last]
    elif due.more or choice.carried is not None:
        delay = SECOND if choice.carried is not None and not choice.runs else ZERO
        collapsed = collapse_skips(verdicts, decided=due.decided)
        return _carry_over(schedule, progress, due, choice.carried, collapsed, now=now, delay=delay)
    # An occurrence that jitter admits early is decided as at its instant.
    decided_at = max(now, due.last or now)
    progress = restart_interval(schedule, clear_pauses(progress), at=decided_at)
    if due.following is not None and not has_used_max_runs(schedule, progress):
        decision = due.following
    else:
        decision = plan_next(schedule, progress, now=decided_at, calendars=calendars)
    if any(skip.reason is Reason.EXCLUDED for skip in skips):
        decision = end_if_all_excluded(schedule, decision, calendars=calendars)
    idle = not in_flight.live and not in_flight.held and all(isinstance(verdict, Skip) for verdict in started)
    if isinstance(schedule.trigger, After) and idle and decision.at is None:
        # Nothing is running whose end could set the next instant.
        decision = Decision(schedule.trigger.next_after(now), due.source)
    collapsed = collapse_skips(verdicts, decided=due.decided)
    return _complete_pass(schedule, progress, collapsed, decision, now=now, idle=idle)


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
    cursor = due.last or progress.cursor
    if choice.carried is not None:
        cursor = choice.carried - _MICROSECOND
    is_complete = choice.carried is None and not due.more
    return replace(
        progress,
        cursor=max(progress.cursor, cursor),
        runs=progress.runs + runs,
        missed=0 if runs else missed,
        hints=progress.hints.without_used(until=max(now, due.last or now) if is_complete else cursor),
    )


def _carry_over(
    schedule: Schedule,
    progress: ScheduleProgress,
    due: DueInstants,
    carried: datetime | None,
    verdicts: tuple[Verdict, ...],
    *,
    now: datetime,
    delay: timedelta,
) -> Admission:
    """Complete a pass that reached a limit: the rest stays after the cursor for the next pass.

    Expired hints stay too, because they still say from when on the trigger decides.
    """
    if carried is None:
        decision = due.following or Decision(None, due.source)
    else:
        trail = due.trail if carried == progress.next_at else ()
        decision = due.decisions.get(carried) or Decision(carried, due.source, trail)
    progress = replace(apply_decision(schedule, progress, decision), wake_at=now + delay)
    return Admission(verdicts, progress, decision, more=True)
