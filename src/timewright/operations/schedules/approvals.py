"""Approvals: schedules created by agents that wait for a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import AnyTarget
from timewright.errors import Forbidden
from timewright.ledger.approvals import approve, progress_after_approval, reject
from timewright.ledger.lookups import load_calendars
from timewright.ledger.replan import ChangeResult
from timewright.operations.access.permissions import is_agent
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ScheduleAction, answer_from, operations
from timewright.operations.schedules.agent_rules import remember_removal
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import ScheduleDetail
from timewright.operations.workflows.waits import (
    PendingAnswer,
    PendingVersion,
    pending_answers,
    pending_versions,
)
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Transaction

SHOWN_OCCURRENCES = 5


class ListApprovals(ListRequest, frozen=True, kw_only=True):
    """List the schedules of the namespace that wait for approval."""


class PendingSchedule(Struct, frozen=True, kw_only=True):
    """A schedule that waits for approval: its creator, trigger, whole target, budgets and first occurrences.

    `next` are the occurrences if it is approved now, at most five; `first_at` is the first of them.
    """

    id: str
    name: str
    description: str
    created_by: str
    created_at: datetime
    trigger: str
    target: AnyTarget
    budgets: tuple[str, ...]
    end_at: datetime | None
    first_at: datetime | None
    next: tuple[datetime, ...]


class ApprovalList(Struct, frozen=True, kw_only=True):
    """All that waits for a person: a page of schedules; the first page also has versions and answers."""

    approvals: tuple[PendingSchedule, ...]
    workflows: tuple[PendingVersion, ...] = ()
    answers: tuple[PendingAnswer, ...] = ()
    cursor: str = ""


@operations.read("approval list", scope="read", examples=({},))
def list_approvals(context: OperationContext, tx: Transaction, request: ListApprovals) -> ApprovalList:
    """List what waits for a person: schedules and workflow versions of agents, and steps that ask."""
    now = context.now()

    def find(limit: int, place: str) -> Page:
        which = ScheduleFilter(
            namespace=context.namespace, state=ScheduleState.PENDING_APPROVAL, limit=limit, cursor=place
        )
        return tx.find(which)

    rows, cursor = paginate(context, request, find)
    return ApprovalList(
        approvals=tuple(_pending(tx, record, now=now) for record in rows),
        workflows=() if request.cursor else tuple(pending_versions(tx, context.namespace)),
        answers=() if request.cursor else tuple(pending_answers(tx, context.namespace)),
        cursor=cursor,
    )


@operations.write(
    "approval approve", scope="write", examples=({"schedule": "digest", "reason": "looks right"},)
)
def approve_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Approve a schedule, so that it starts; agents cannot approve."""
    return _decide(context, tx, request, approve)


@operations.write(
    "approval reject", scope="write", examples=({"schedule": "digest", "reason": "not needed"},)
)
def reject_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Reject a schedule: it is archived with the reason; agents cannot reject."""
    return _decide(context, tx, request, reject)


def _decide(
    context: OperationContext,
    tx: Transaction,
    request: ScheduleAction,
    change: Callable[..., ChangeResult],
) -> ScheduleDetail:
    now = context.now()
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    if is_agent(context):
        raise Forbidden(
            "agents cannot approve or reject schedules",
            field="schedule",
            value=schedule.name,
            rule="a person reviews schedules created by agents",
            fix=f"ask a person: approval approve {schedule.name}",
        )
    if change is reject:
        remember_removal(context, schedule, reason=request.reason, now=now)
    by = context.actor_with_reason(request.reason)
    context.notify(change(context.store, schedule.id, by=by, now=now).facts)
    return read_schedule_detail(context, schedule.id, now=now)


def _pending(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> PendingSchedule:
    schedule = record.schedule
    calendars = load_calendars(tx, [schedule])
    progress = progress_after_approval(record, calendars, now=now)
    occurrences = forecast(
        schedule, progress, now=now, count=SHOWN_OCCURRENCES, calendars=calendars.for_schedule(schedule)
    )
    return answer_from(
        PendingSchedule,
        schedule,
        trigger=schedule.trigger.describe(),
        first_at=progress.next_at,
        next=tuple(one.planned_at for one in occurrences),
    )
