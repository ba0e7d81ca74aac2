"""Pause, resume, archive and delete schedules."""

from __future__ import annotations

from datetime import datetime

from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.replan import archive, pause, resume
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.definitions.edits import check_edit_by_hand
from timewright.operations.explain.reasons import last_audit_entry
from timewright.operations.health.pauses import check_may_lift
from timewright.operations.lookup import find_schedule
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.schedules.duplicates import remember_removal
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import ScheduleDetail
from timewright.ports import Transaction


class PauseSchedule(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, and until when; without `until`, until someone resumes it."""

    schedule: ObjectName
    until: datetime | None = None


class ScheduleAction(WriteRequest, frozen=True, kw_only=True):
    """Which schedule."""

    schedule: ObjectName


@operations.add(
    "schedule",
    "pause",
    PauseSchedule,
    scope="write",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "until": "2026-03-11T08:00:00Z", "reason": "audit"},
    ),
)
def pause_schedule(context: OperationContext, request: PauseSchedule) -> ScheduleDetail:
    """Pause a schedule until an instant, or until someone resumes it; active runs continue."""
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        schedule_id = _find_id(nested, request.schedule)
        by = nested.actor_with_reason(request.reason)
        nested.notify(pause(nested.store, schedule_id, by=by, now=now, until=request.until).facts)
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


@operations.add(
    "schedule", "resume", ScheduleAction, scope="write", examples=({"schedule": "paused-export"},)
)
def resume_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Resume a paused or parked schedule: reset its failures, skip occurrences within the pause.

    An agent resumes no schedule that a person paused.
    """
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        schedule_id = nested.store.read(lambda tx: _find_resumable(nested, tx, request.schedule, now=now))
        by = nested.actor_with_reason(request.reason)
        nested.notify(resume(nested.store, schedule_id, ids=nested.ids, by=by, now=now).facts)
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


@operations.add(
    "schedule", "archive", ScheduleAction, scope="write", examples=({"schedule": "nightly-report"},)
)
def archive_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Archive a schedule for good; its history stays, and its name can be used again."""
    return _archive(context, request)


@operations.add(
    "schedule", "delete", ScheduleAction, scope="write", examples=({"schedule": "nightly-report"},)
)
def delete_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Delete a schedule, which is the same as archiving it: its history stays."""
    return _archive(context, request)


def _find_resumable(context: OperationContext, tx: Transaction, wanted: str, *, now: datetime) -> str:
    """The id of a schedule, if the caller may end its pause."""
    record = find_schedule(tx, context.namespace, wanted)
    schedule = record.schedule
    if context.by.origin == AGENT_ORIGIN and record.progress.state is ScheduleState.PAUSED:
        entry = last_audit_entry(tx, schedule.namespace, schedule.id, "schedule.pause", by=now)
        if entry is not None:
            check_may_lift(context, entry.origin, what=f"{schedule.name} was paused by {entry.actor}")
    return schedule.id


def _find_id(context: OperationContext, wanted: str) -> str:
    return context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted)).schedule.id


def _archive(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        record = nested.store.read(lambda tx: find_schedule(tx, nested.namespace, request.schedule))
        check_edit_by_hand(nested, record.schedule)
        schedule_id = record.schedule.id
        remember_removal(nested, record.schedule, reason=request.reason, now=now)
        nested.notify(
            archive(nested.store, schedule_id, by=nested.actor_with_reason(request.reason), now=now).facts
        )
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)
