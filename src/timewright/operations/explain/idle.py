"""Explain why a schedule has no next occurrence, and forecast what is not decided yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import NO_CALENDARS, Calendar, allowed_after
from timewright.core.moments import format_instant
from timewright.core.recurrence.triggers import Manual
from timewright.core.run.following import follows_upstream
from timewright.core.schedule.adjustments import AdjustmentKind
from timewright.core.schedule.forecast import MAX_PREVIEWS, Preview, forecast, preview_run
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ledger.lookups import load_calendars
from timewright.ledger.records.notes import occurrence_notes
from timewright.ledger.schedule_progress import pass_decided
from timewright.operations.explain.dependencies import explain_awaited
from timewright.operations.explain.reasons import (
    Remedy,
    actor_and_reason,
    last_adjustment,
    last_audit_entry,
    remedy,
    update_remedy,
)
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.objects import AdjustmentsOf
from timewright.ports.rows import FutureManualRuns

MAX_MANUAL_RUNS = 1_000

_MICROSECOND = timedelta(microseconds=1)


class UnrecordedOccurrence(Struct, frozen=True, kw_only=True):
    """What is known about an instant without a run, and why."""

    at: datetime | None
    status: str
    summary: str
    reason: str = ""
    because: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    previous_at: datetime | None = None
    next_at: datetime | None = None


def explain_no_next_time(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> UnrecordedOccurrence:
    """Explain why a schedule has no next occurrence: paused, parked, finished, or manual only."""
    schedule, progress = record.schedule, record.progress
    name = ("schedule", schedule.name)
    if progress.state is ScheduleState.PAUSED:
        return UnrecordedOccurrence(
            at=None,
            status="paused",
            summary="nothing is planned: it is paused until someone resumes it",
            reason=progress.reason,
            because=(pause_sentence(tx, record, now=now),),
            remedies=(remedy("schedule resume", name),),
        )
    if progress.state in _EXPLAINERS:
        return _EXPLAINERS[progress.state](tx, record, now)
    if isinstance(schedule.trigger, Manual):
        why = ("its trigger is manual, so it runs only when someone starts it",)
        remedies = (remedy("schedule run", name),)
        return UnrecordedOccurrence(
            at=None, status="ended", summary="nothing is planned", because=why, remedies=remedies
        )
    if progress.state is ScheduleState.ACTIVE and follows_upstream(schedule.trigger):
        awaited = explain_awaited(tx, schedule)
        words = f"nothing is planned yet: it runs {schedule.trigger.describe()}"
        return UnrecordedOccurrence(
            at=None, status="undecided", summary=words, because=awaited, policy=("trigger",)
        )
    return _finished(tx, record, now)


def _finished(_tx: Transaction, record: ScheduleRecord, now: datetime) -> UnrecordedOccurrence:
    """Explain a finished schedule: max_runs reached, end_at passed, or a trigger without further times."""
    schedule, progress = record.schedule, record.progress
    why = progress.reason or f"{schedule.trigger.describe()} has no further time"
    remedies: tuple[Remedy, ...] = ()
    if schedule.max_runs is not None and progress.runs >= schedule.max_runs:
        why = f"it has reached max_runs, {schedule.max_runs}"
        remedies = (update_remedy(schedule, max_runs=progress.runs + 1),)
    elif schedule.end_at is not None and schedule.end_at <= now:
        why = f"its end_at, {format_instant(schedule.end_at)}, has passed"
        remedies = (update_remedy(schedule, end_at=None),)
    return UnrecordedOccurrence(
        at=None,
        status="ended",
        summary=f"nothing is planned: it is {progress.state.value}",
        reason=progress.reason,
        because=(why,),
        policy=("end_at", "max_runs"),
        remedies=remedies,
    )


def _archived(tx: Transaction, record: ScheduleRecord, now: datetime) -> UnrecordedOccurrence:
    schedule = record.schedule
    entries = [
        last_audit_entry(tx, schedule.namespace, schedule.id, action, by=now) for action in _ARCHIVE_ACTIONS
    ]
    who = max((entry for entry in entries if entry is not None), key=lambda entry: entry.at, default=None)
    return UnrecordedOccurrence(
        at=None,
        status="ended",
        summary="nothing is planned: it is archived",
        reason=record.progress.reason,
        because=(
            f"it was archived{actor_and_reason(who)}",
            "its history stays, and its name can be used again",
        ),
    )


def _pending(_tx: Transaction, record: ScheduleRecord, _now: datetime) -> UnrecordedOccurrence:
    schedule = record.schedule
    name = ("schedule", schedule.name)
    return UnrecordedOccurrence(
        at=None,
        status="pending_approval",
        summary="nothing is planned: it waits for approval",
        reason=record.progress.reason,
        because=(f"{schedule.created_by} ({schedule.origin}) created it, and it is not approved yet",),
        remedies=(remedy("approval approve", name), remedy("approval reject", name)),
    )


def pause_sentence(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> str:
    """Return who paused the schedule, since when and why."""
    is_manual = record.progress.state is ScheduleState.PAUSED
    kind = AdjustmentKind.PAUSE if is_manual else AdjustmentKind.HINT_PAUSE
    entry = last_adjustment(tx, record.schedule.id, kind, by=now)
    return f"it was paused{actor_and_reason(entry)}"


def explain_timed_pause(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> UnrecordedOccurrence:
    """Explain a pause with an end: until when, who requested it, and the first occurrence after it."""
    schedule, progress = record.schedule, record.progress
    is_manual = progress.state is ScheduleState.PAUSED
    calendars = load_calendars(tx, [schedule]).for_schedule(schedule)
    ahead = forecast(schedule, progress, now=now, count=1000, calendars=calendars)
    until = format_instant(progress.next_at) if progress.next_at is not None else "its end"
    return UnrecordedOccurrence(
        at=progress.next_at,
        status="paused",
        summary=f"nothing runs before: it is paused until {until}",
        reason=progress.reason,
        because=(pause_sentence(tx, record, now=now), "occurrences within a pause are not caught up"),
        remedies=(remedy("schedule resume" if is_manual else "hint clear", ("schedule", schedule.name)),),
        next_at=next((one.planned_at for one in ahead if one.fire_at is not None), None),
    )


def _parked(_tx: Transaction, record: ScheduleRecord, _now: datetime) -> UnrecordedOccurrence:
    reason = record.progress.reason
    return UnrecordedOccurrence(
        at=None,
        status="parked",
        summary="nothing is planned: it is parked and waits for a person",
        reason=reason,
        because=(reason or "no reason was recorded",),
        policy=("disable_after",),
        remedies=(remedy("schedule resume", ("schedule", record.schedule.name)),),
    )


_ARCHIVE_ACTIONS = ("schedule.archive", "schedule.delete")
_EXPLAINERS: Mapping[
    ScheduleState, Callable[[Transaction, ScheduleRecord, datetime], UnrecordedOccurrence]
] = {
    ScheduleState.PARKED: _parked,
    ScheduleState.FINISHED: _finished,
    ScheduleState.ARCHIVED: _archived,
    ScheduleState.PENDING_APPROVAL: _pending,
}


def has_decided_ahead(tx: Transaction, schedule: Schedule, *, now: datetime) -> bool:
    """Whether someone has decided about a later occurrence, so that the forecast may have a row already."""
    return any(one.planned_at and one.planned_at > now for one in tx.select(AdjustmentsOf(schedule.id)))


def forecast_undecided(
    tx: Transaction,
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    count: int,
    until: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[Preview, ...]:
    """Return the forecast without occurrences that have a row already.

    After an edit the cursor may lie before occurrences that were skipped by hand.
    """
    found = forecast(schedule, progress, now=now, count=count, until=until, calendars=calendars)
    if not has_decided_ahead(tx, schedule, now=now):
        return found
    decided = sum(tx.find_occurrence(schedule.id, one.planned_at) is not None for one in found)
    if not decided:
        return found
    wider = min(count + decided, MAX_PREVIEWS)
    found = forecast(schedule, progress, now=now, count=wider, until=until, calendars=calendars)
    return tuple(one for one in found if tx.find_occurrence(schedule.id, one.planned_at) is None)


def without_skipped(
    tx: Transaction, record: ScheduleRecord, *, now: datetime, count: int
) -> tuple[ScheduleRecord, tuple[Preview, ...]]:
    """Return a schedule and its forecast without occurrences that were skipped by hand before an edit."""
    schedule, calendars = record.schedule, load_calendars(tx, [record.schedule])
    progress = pass_decided(tx, schedule, record.progress, calendars)
    named = calendars.for_schedule(schedule)
    found = forecast_undecided(tx, schedule, progress, now=now, count=count, calendars=named)
    return replace(record, progress=progress), found


def add_manual_runs_and_notes(
    tx: Transaction,
    schedule: Schedule,
    previews: Sequence[Preview],
    *,
    now: datetime,
    count: int,
    until: datetime | None = None,
) -> tuple[Preview, ...]:
    """Return the forecast with moved and manually added runs in order, and with notes."""
    manual_runs = [
        run for run in tx.select(FutureManualRuns([schedule.id], limit=MAX_MANUAL_RUNS)) if not run.fence
    ]
    manual = [
        preview_run(schedule, run)
        for run in manual_runs
        if run.fire_at > now and (until is None or run.planned_at <= until)
    ]
    upcoming = tuple(previews)
    if manual:
        upcoming = tuple(sorted([*previews, *manual], key=lambda one: one.planned_at)[:count])
    notes = occurrence_notes(
        tx, schedule.id, {one.planned_at for one in upcoming}, namespace=schedule.namespace
    )
    if not notes:
        return upcoming
    return tuple(
        replace(one, note=notes[one.planned_at].text) if one.planned_at in notes else one for one in upcoming
    )


def excluding_calendars(tx: Transaction, record: ScheduleRecord) -> str:
    """Return the calendars of an active schedule if they exclude its every future occurrence, else ""."""
    schedule, progress = record.schedule, record.progress
    if schedule.calendar is None or progress.state is not ScheduleState.ACTIVE or progress.next_at is None:
        return ""
    before, calendars = progress.next_at - _MICROSECOND, load_calendars(tx, [schedule]).for_schedule(schedule)
    allowed = allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars)
    return ", ".join(schedule.calendar.names) if allowed is None else ""


def fully_excluded_warning(tx: Transaction, record: ScheduleRecord) -> tuple[str, ...]:
    """Return a warning if calendars exclude every future occurrence of a schedule, else nothing."""
    names = excluding_calendars(tx, record)
    warning = f"{record.schedule.name} will not run again: {names} exclude every future occurrence"
    return (warning,) if names else ()
