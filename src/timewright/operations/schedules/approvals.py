"""Approvals: schedules and workflow versions of agents that wait for a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import AnyTarget
from timewright.core.workflow import WorkflowSpec
from timewright.errors import Forbidden, NotAllowed
from timewright.ledger.approvals import approve, progress_after_approval, reject
from timewright.ledger.lookups import load_calendars
from timewright.ledger.replan import ChangeResult
from timewright.ledger.workflow_runs.records import WORKFLOW, HeldVersion, WorkflowHeader, read_header
from timewright.operations.access.permissions import is_agent
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.pagination import paginate
from timewright.operations.registry import (
    ListRequest,
    ObjectName,
    ScheduleAction,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.operations.schedules.agent_rules import remember_removal
from timewright.operations.schedules.writes import answer_change
from timewright.operations.views import ScheduleDetail
from timewright.operations.workflows.waits import PendingAnswer, pending_answers
from timewright.operations.workflows.workflow_schedules import (
    deploy_schedules,
    header_row,
    require_version,
    require_workflow,
)
from timewright.operations.workflows.workflows import DeployedWorkflow, Version, describe_deployment
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


class DecideVersion(WriteRequest, frozen=True, kw_only=True):
    """Which workflow, and which version; the default is the newest one that waits. And the reason."""

    workflow: ObjectName
    version: Version | None = None


class PendingVersion(Struct, frozen=True, kw_only=True):
    """A workflow version that waits for approval: its author and the whole definition."""

    workflow: str
    version: int
    author: str
    at: datetime
    spec: WorkflowSpec


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
        approvals=tuple(_pending_schedule(tx, record, now=now) for record in rows),
        workflows=() if request.cursor else tuple(_pending_versions(tx, context.namespace)),
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
    _require_person(context, "schedule", f"approval approve {schedule.name}", value=schedule.name)
    if change is reject:
        remember_removal(context, schedule, now=now)
    return answer_change(context, change(context.store, schedule.id, by=context.by, now=now))


def _require_person(context: OperationContext, noun: str, command: str, *, value: str) -> None:
    if is_agent(context):
        raise Forbidden(
            f"agents cannot approve or reject {noun}s",
            field=noun,
            value=value,
            rule="a person reviews what agents wrote",
            fix=f"ask a person: {command}",
        )


def _pending_schedule(tx: Transaction, record: ScheduleRecord, *, now: datetime) -> PendingSchedule:
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


@operations.write("workflow approve", scope="write", examples=({"workflow": "draft-load", "version": 1},))
def approve_version(context: OperationContext, tx: Transaction, request: DecideVersion) -> DeployedWorkflow:
    """Approve a version that an agent wrote, so that it runs, and deploy its schedules; agents cannot."""
    now = context.now()
    head, held = _find_held(tx, context, request)
    spec = require_version(tx, context.namespace, request.workflow, held.version)
    approved = replace(head, held=tuple(one for one in head.held if one is not held))
    if approved.runnable == held.version:
        schedules = deploy_schedules(context, spec, owned=head.schedules, now=now)
        approved = replace(approved, schedules=schedules)
    _save_header(tx, context, request, approved, held, action="workflow.approve")
    return describe_deployment("updated", spec, approved)


@operations.write(
    "workflow reject", scope="write", examples=({"workflow": "draft-load", "reason": "not needed"},)
)
def reject_version(context: OperationContext, tx: Transaction, request: DecideVersion) -> DeployedWorkflow:
    """Reject a version that an agent wrote: it stays and never runs; agents cannot."""
    head, held = _find_held(tx, context, request)
    spec = require_version(tx, context.namespace, request.workflow, held.version)
    rejected = replace(held, state="rejected", reason=request.reason)
    after = replace(head, held=tuple(rejected if one is held else one for one in head.held))
    _save_header(tx, context, request, after, held, action="workflow.reject")
    return describe_deployment("unchanged", spec, after)


def _pending_versions(tx: Transaction, namespace: str) -> list[PendingVersion]:
    """The workflow versions of a namespace that wait for approval, by workflow."""
    heads = [(row.name, read_header(row)) for row in tx.get_objects(WORKFLOW, namespace=namespace)]
    return [
        PendingVersion(
            workflow=name,
            version=held.version,
            author=held.author,
            at=held.at,
            spec=require_version(tx, namespace, name, held.version),
        )
        for name, head in heads
        for held in head.held
        if held.state == "pending_approval" and not head.deleted
    ]


def _find_held(
    tx: Transaction, context: OperationContext, request: DecideVersion
) -> tuple[WorkflowHeader, HeldVersion]:
    _require_person(context, "workflow", f"workflow approve {request.workflow}", value=request.workflow)
    head = require_workflow(tx, context.namespace, request.workflow)
    waiting = [one for one in head.held if one.state == "pending_approval"]
    for held in reversed(waiting):
        if request.version in (None, held.version):
            return head, held
    raise NotAllowed(
        f"no such version of workflow {request.workflow} waits for approval",
        field="version",
        value=request.version,
        rule=f"one of: {', '.join(str(one.version) for one in waiting) or 'none waits'}",
        fix="approval list shows what waits",
    )


def _save_header(
    tx: Transaction,
    context: OperationContext,
    request: DecideVersion,
    head: WorkflowHeader,
    held: HeldVersion,
    *,
    action: str,
) -> None:
    now = context.now()
    tx.put_objects([header_row(context.namespace, request.workflow, head, now=now)])
    after = f"version {held.version} of {held.author}"
    context.audit(tx, action, request.workflow, after=after)
