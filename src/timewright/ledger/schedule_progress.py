"""The progress of a schedule after a change to it; pure decisions, nothing is written."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from timewright.core.calendars import check_calendar_rule
from timewright.core.moments import format_duration, format_instant
from timewright.core.recurrence.triggers import After, Manual
from timewright.core.run.admission import InFlightCounts
from timewright.core.run.following import follows_other_ends
from timewright.core.run.replaced import at_reopened, has_reopened, keep_reopened
from timewright.core.schedule.adjustments import AdjustmentKind
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.due import is_planned_by_trigger, replaced_at
from timewright.core.schedule.governor import (
    count_to,
    counts_from_last_start,
    decide_pause,
    is_in_streak,
    is_requested,
    is_trigger_only,
    last_base,
    max_early,
    pause_end,
    plan_next,
    pull_forward,
)
from timewright.core.schedule.hints import EndedPause, Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    initial_progress,
    next_schedule_state,
)
from timewright.errors import NotAllowed
from timewright.ledger.lookups import CalendarLookup
from timewright.ports import ScheduleRecord, Transaction

_MICROSECOND = timedelta(microseconds=1)
# The fields that decide when a schedule runs.
_PLAN_FIELDS = ("trigger", "start_at", "end_at", "calendar")

HintRequest = IntervalHint | OneShotHint | PauseHint


def progress_when_created(
    schedule: Schedule, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """The progress of a new schedule, with its first decision."""
    _check_calendar(schedule, calendars, now=now)
    progress = initial_progress(schedule)
    # From the cursor on: the creation, or earlier if a past start was given on purpose.
    progress = _plan(schedule, progress, calendars, now=min(now, progress.cursor))
    return finish_if_nothing_left(schedule, progress, in_flight=InFlightCounts())


def progress_when_revised(
    record: ScheduleRecord, schedule: Schedule, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """The progress after an edit: decisions stay; the new definition holds from the first open instant."""
    _check_calendar(schedule, calendars, now=now)
    before = record.progress
    if is_in_streak(schedule, before) and not is_in_streak(record.schedule, before):
        # A cadence that an edit adds decides from the edit on, also after earlier failures.
        before = replace(before, failing_since=now)
        record = replace(record, progress=before)
    if has_reopened(record.schedule, before):
        # The first open instant lies before the cursor, and so does the start of the new plan.
        record = replace(record, progress=at_reopened(before))
        progress = progress_when_revised(record, schedule, calendars, now=now)
        return keep_reopened(progress, cursor=min(before.cursor, now))
    # What a cadence replaced before the edit stays so.
    progress = replace(before, replaced_after=None)
    if (
        follows_other_ends(record.schedule.trigger, schedule.trigger)
        and before.source is Source.BASELINE_AFTER
    ):
        # The ends that were open are no longer followed, and so none of them is due.
        progress = replace(progress, next_at=None)
    if progress.state is ScheduleState.FINISHED:
        progress = replace(
            progress, state=next_schedule_state(progress.state, ScheduleEvent.REVIVE), reason=""
        )
    if progress.state is not ScheduleState.ACTIVE:
        begins = _cursor_of_new_plan(record, schedule, now=now)
        # What was decided before a pause is not in the new plan.
        return replace(progress, cursor=progress.cursor if begins is None else begins, trail=())
    looks_from = now if progress.next_at is None else min(now, progress.next_at - _MICROSECOND)
    progress = replace(progress, cursor=_cursor_after_edit(record, schedule, at=looks_from, now=now))
    if _is_due(progress, now=now) and is_requested(progress.source, progress.trail):
        # A limit carries over an instant that a hint decided.
        return progress
    is_replaced = is_in_streak(schedule, progress) and not counts_from_last_start(schedule)
    if is_replaced and progress.cursor >= (progress.failing_since or progress.cursor):
        # From here on the cadence replaces instants of the new plan.
        progress = replace(progress, replaced_after=progress.cursor)
    progress = _plan_from(schedule, progress, calendars, now=looks_from)
    return finish_if_nothing_left(schedule, progress, in_flight=record.in_flight)


def has_undecided_instant(record: ScheduleRecord, schedule: Schedule, *, now: datetime) -> bool:
    """Whether an instant is due that the new definition cannot plan, because it counts from elsewhere."""
    progress = record.progress
    moved = bool(record.schedule.clamp.min) or has_reopened(record.schedule, progress)
    is_due = progress.state is ScheduleState.ACTIVE and has_due_instant(record, now=now)
    return is_due and (moved or not is_trigger_only(schedule, progress))


def has_due_instant(record: ScheduleRecord, *, now: datetime) -> bool:
    """Whether an instant is due and not decided yet, or was displaced by the clamp."""
    progress = record.progress
    is_over = progress.state is ScheduleState.PAUSED and progress.paused_until is not None
    if progress.state is not ScheduleState.ACTIVE and not is_over:
        return False
    if record.schedule.clamp.min and progress.source is Source.CLAMPED_MIN and progress.cursor < now:
        return True
    waits = progress.wake_at is not None and progress.wake_at <= now
    return waits and (_is_due(progress, now=now) or progress.hints.has_expired(now=now))


def pass_decided(
    tx: Transaction, schedule: Schedule, progress: ScheduleProgress, calendars: CalendarLookup
) -> ScheduleProgress:
    """The progress whose next time has no row yet: instants that were skipped by hand are passed."""
    while progress.next_at is not None and progress.source is not Source.PAUSED:
        if tx.find_occurrence(schedule.id, progress.next_at) is None:
            break
        at = progress.next_at
        progress = _plan(schedule, replace(progress, cursor=max(progress.cursor, at)), calendars, now=at)
    return progress


def keep_undecided(
    tx: Transaction, record: ScheduleRecord, progress: ScheduleProgress, *, now: datetime
) -> ScheduleProgress:
    """The progress after a hint; if a user skipped the instant it requests, the decision before it stays."""
    before, one_shot = record.progress, progress.hints.one_shot
    if progress.cursor <= now:
        return progress
    # The end of a pause is no occurrence.
    requested = progress.next_at if progress.source is not Source.PAUSED else None
    wanted = requested if one_shot is None else one_shot.at
    if wanted is None or tx.find_occurrence(record.schedule.id, wanted) is None:
        return progress
    progress = replace(progress, hints=replace(progress.hints, one_shot=None))
    decision = Decision(before.next_at, before.source or Source.MANUAL, before.trail)
    return apply_decision(record.schedule, progress, decision)


def progress_after_clock_return(
    record: ScheduleRecord, calendars: CalendarLookup, *, decided: datetime
) -> ScheduleProgress:
    """The progress of a schedule whose decisions after an instant were made at a time that never was.

    It goes on from there, so that catch-up decides what came due since.
    """
    progress = replace(record.progress, cursor=decided, replaced_after=None)
    if progress.state is not ScheduleState.ACTIVE:
        return progress
    return _plan(record.schedule, progress, calendars, now=decided)


def _cursor_after_edit(
    record: ScheduleRecord, schedule: Schedule, *, at: datetime, now: datetime
) -> datetime:
    """The cursor from which a new definition holds.

    During a hinted pause it does not move: the end of the pause records all its occurrences.
    """
    begins, cursor = _cursor_of_new_plan(record, schedule, now=now), record.progress.cursor
    if begins is not None:
        return begins
    return cursor if record.progress.source is Source.PAUSED else max(cursor, at)


def _cursor_of_new_plan(record: ScheduleRecord, schedule: Schedule, *, now: datetime) -> datetime | None:
    """The cursor for a new plan if it does not follow the old one, else None.

    If future occurrences were skipped by hand, the cursor lies behind them, and the new plan may have others
    before it. A manual schedule has no occurrences, and its cursor stays at its creation.
    """
    cursor = record.progress.cursor
    is_ahead = cursor > now + max_early(record.schedule)
    begins_now = is_ahead or isinstance(record.schedule.trigger, Manual)
    differs = any(getattr(schedule, field) != getattr(record.schedule, field) for field in _PLAN_FIELDS)
    if not (begins_now and differs):
        return None
    begins = max(now, initial_progress(schedule).cursor)
    # What a hint had admitted early keeps its row.
    return begins if is_ahead else max(begins, cursor)


def progress_when_paused(
    record: ScheduleRecord, *, until: datetime | None, reason: str, now: datetime
) -> ScheduleProgress:
    """The progress after a pause by hand; a second pause continues one that has not ended."""
    before = record.progress
    state = before.state
    if state is not ScheduleState.PAUSED:
        state = next_schedule_state(state, ScheduleEvent.PAUSE)
    ended, hints = before.paused_until, before.hints
    began = now if before.paused_at is None else before.paused_at
    if ended is not None and ended <= now:
        # What lies between the pauses is no part of them. An admission may not have recorded the first yet.
        hints = replace(hints, ended_pauses=(*hints.ended_pauses, EndedPause(began, ended)))
        began = now
    progress = replace(before, state=state, reason=reason, paused_at=began, paused_until=until, hints=hints)
    end = pause_end(progress, now=now) if until is not None else None
    return apply_decision(record.schedule, progress, decide_pause(progress, until=end))


def as_paused(schedule: Schedule, progress: ScheduleProgress, *, now: datetime) -> ScheduleProgress:
    """The progress of a schedule that may be resumed, as a paused one; any other state is an error.

    Nothing was decided while it was parked: its occurrences are recorded like those of a pause. With
    `align: now` it has none before the failure that parked it, also if an instance was late.
    """
    if progress.state is ScheduleState.ACTIVE and pause_end(progress, now=now) is not None:
        return progress
    next_schedule_state(progress.state, ScheduleEvent.RESUME)
    failed_at = progress.last_finished_at if progress.state is ScheduleState.PARKED else None
    if failed_at is not None and counts_from_last_start(schedule):
        # What a hint that was over by then asked for is replaced by the end of that run (ruling 3).
        hints = replace(progress.hints.unexpired(now=failed_at), pause=progress.hints.pause)
        progress = replace(progress, cursor=max(progress.cursor, failed_at), hints=hints)
    began = progress.paused_at or progress.cursor
    until = None if progress.state is ScheduleState.PARKED else progress.paused_until
    return replace(
        progress, state=ScheduleState.PAUSED, source=Source.PAUSED, paused_at=began, paused_until=until
    )


def check_adaptive(schedule: Schedule) -> None:
    """Raise if the schedule does not accept hints."""
    if not schedule.adaptive:
        raise NotAllowed(
            f"schedule {schedule.name} does not accept hints",
            field="adaptive",
            value=False,
            rule="only adaptive schedules accept hints",
            fix=f"schedule update {schedule.name} with adaptive: true",
        )


def progress_with_hint(
    record: ScheduleRecord, request: HintRequest, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """The progress after a hint: it may bring the next time forward; a pause moves it to its end."""
    schedule = record.schedule
    check_adaptive(schedule)
    progress = replace(record.progress, hints=_add_hint(record.progress.hints, request, now=now))
    prolongs_pause = isinstance(request, PauseHint) and progress.paused_until is not None
    if progress.state is not ScheduleState.ACTIVE and not prolongs_pause:
        return progress
    end = pause_end(progress, now=now) if isinstance(request, PauseHint) else None
    if end is not None:
        return apply_decision(schedule, progress, decide_pause(progress, until=end))
    current = Decision(progress.next_at, progress.source or Source.MANUAL, progress.trail)
    # A new interval counts from now; a one-shot hint leaves the interval of the trigger as it was decided.
    keeps_base = isinstance(request, OneShotHint) and progress.hints.unexpired(now=now).interval is None
    base = last_base(schedule, count_to(schedule, progress, current)) if keeps_base else None
    proposal = plan_next(schedule, progress, now=now, base=base, calendars=calendars.for_schedule(schedule))
    return apply_decision(schedule, progress, pull_forward(current, proposal))


def describe_hint(request: HintRequest) -> str:
    """The text of a hint in the audit log."""
    if isinstance(request, IntervalHint):
        interval, until = format_duration(request.interval), format_instant(request.expires_at)
        return f"interval {interval} until {until}"
    if isinstance(request, OneShotHint):
        return f"once at {format_instant(request.at)} until {format_instant(request.expires_at)}"
    return f"pause until {format_instant(request.until)}"


def adjustment_by_hint(request: HintRequest) -> dict[str, Any]:
    """The fields of a hint's adjustment."""
    if isinstance(request, IntervalHint):
        fields = {"kind": AdjustmentKind.INTERVAL, "until": request.expires_at, "interval": request.interval}
    elif isinstance(request, OneShotHint):
        fields = {"kind": AdjustmentKind.ONE_SHOT, "until": request.expires_at, "planned_at": request.at}
    else:
        fields = {"kind": AdjustmentKind.HINT_PAUSE, "until": request.until}
    return fields | {"reason": request.reason}


def progress_without_hints(
    record: ScheduleRecord, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """The progress without hints; a hinted pause ends now."""
    pause = record.progress.hints.pause
    ended_pause = replace(pause, until=min(pause.until, now)) if pause is not None else None
    hints, progress = record.progress.hints, record.progress
    is_due = _is_due(progress, now=now)
    is_paused = pause is not None or progress.paused_at is not None
    # What a hint asked for and is due keeps its row, also if a pause suppresses it.
    due = hints.one_shot.due_by(now) if hints.one_shot is not None and (is_due or is_paused) else None
    hints = Hints(one_shot=due, pause=ended_pause, ended_pauses=hints.ended_pauses)
    progress = replace(progress, hints=hints)
    if progress.state is not ScheduleState.ACTIVE:
        if progress.paused_until is None or (is_due and progress.paused_until <= now):
            return progress
        # A pause by hand goes on, perhaps to an earlier end than the hinted one, or ends now.
        decision = decide_pause(progress, until=max(progress.paused_until, now))
        return apply_decision(record.schedule, progress, decision)
    interval = record.progress.hints.interval
    if is_due or replaced_at(record.schedule, record.progress) is not None:
        # The next admission needs to know until when the interval hint replaced the trigger.
        ended = replace(interval, expires_at=min(interval.expires_at, now)) if interval is not None else None
        progress = replace(progress, hints=replace(progress.hints, interval=ended))
        if is_due:
            return progress
        # Instants before the interval hint are undecided because of the hinted pause, which ends now.
        return apply_decision(record.schedule, progress, decide_pause(progress, until=now))
    if interval is not None:
        # The hint replaced the trigger's instants before now. A clamp counts from now.
        replaced_to = now if record.schedule.clamp.min else min(interval.expires_at, now) - _MICROSECOND
        progress = replace(progress, cursor=max(progress.cursor, replaced_to))
    elif ended_pause is None and is_planned_by_trigger(progress):
        # No hint decided the next time, so it stays, with the instants that a clamp moved to it.
        decision = Decision(progress.next_at, progress.source or Source.MANUAL, progress.trail)
        return apply_decision(record.schedule, progress, decision)
    if ended_pause is not None:
        # At the end of the pause, the next admission records its occurrences and plans the next time.
        return apply_decision(record.schedule, progress, decide_pause(progress, until=now))
    return _plan(record.schedule, progress, calendars, now=now)


def finish_if_nothing_left(
    schedule: Schedule, progress: ScheduleProgress, *, in_flight: InFlightCounts
) -> ScheduleProgress:
    """Finish a schedule that has no next time and no run in flight."""
    waits = progress.next_at is not None or isinstance(schedule.trigger, Manual | After)
    if waits or in_flight != InFlightCounts() or progress.state is not ScheduleState.ACTIVE:
        return progress
    return replace(progress, state=ScheduleState.FINISHED, reason="no further occurrences")


def _plan(
    schedule: Schedule, progress: ScheduleProgress, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    base = last_base(schedule, progress)
    decision = plan_next(schedule, progress, now=now, base=base, calendars=calendars.for_schedule(schedule))
    return apply_decision(schedule, count_to(schedule, progress, decision), decision)


def _plan_from(
    schedule: Schedule, progress: ScheduleProgress, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """Plan a backlog from `now`: the trigger decides it until the start of a hint or a cadence after that."""
    hint = progress.hints.interval if schedule.adaptive else None
    starts = [hint.began] if hint is not None else []
    starts += [progress.failing_since] if is_in_streak(schedule, progress) else []
    start = min((at for at in starts if at is not None), default=now)
    if start <= now or counts_from_last_start(schedule):
        return _plan(schedule, progress, calendars, now=now)
    by_trigger = replace(progress, failures=0, hints=replace(progress.hints, interval=None))
    planned = _plan(schedule, by_trigger, calendars, now=now)
    if planned.next_at is not None and planned.next_at <= start:
        return replace(planned, failures=progress.failures, hints=progress.hints)
    return _plan(schedule, progress, calendars, now=start)


def _is_due(progress: ScheduleProgress, *, now: datetime) -> bool:
    """Whether an instant is due and not decided yet; it stays due whatever changes."""
    return progress.next_at is not None and progress.next_at <= now


def _check_calendar(schedule: Schedule, calendars: CalendarLookup, *, now: datetime) -> None:
    if schedule.calendar is not None:
        check_calendar_rule(
            schedule.trigger, schedule.calendar, calendars=calendars.for_schedule(schedule), now=now
        )


def _add_hint(hints: Hints, request: HintRequest, *, now: datetime) -> Hints:
    """Add a hint with the time it was made: instants that came due before it still need their rows."""
    made_at = request.created_at or now
    if isinstance(request, IntervalHint):
        last = hints.interval if hints.interval and hints.interval.expires_at >= made_at else None
        since = last.began if last is not None else None
        return replace(hints, interval=replace(request, created_at=made_at, since=since))
    if isinstance(request, OneShotHint):
        before = hints.one_shot.due_by(made_at) if hints.one_shot is not None else None
        due = before.instants if before is not None else ()
        return replace(hints, one_shot=replace(request, created_at=made_at, due=due))
    # A pause that follows another without a gap continues it.
    last_pause = hints.pause
    began = last_pause.created_at if last_pause is not None else None
    if last_pause is not None and began is not None and last_pause.until < made_at:
        hints = replace(hints, ended_pauses=(*hints.ended_pauses, EndedPause(began, last_pause.until)))
        began = made_at
    return replace(hints, pause=replace(request, created_at=began or made_at))
