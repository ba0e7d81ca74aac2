"""Approval of workflow versions that agents wrote."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.workflow import WorkflowSpec
from timewright.errors import Forbidden, NotAllowed
from timewright.ledger.workflow_runs.records import (
    WORKFLOW,
    HeldVersion,
    WorkflowHeader,
    read_header,
)
from timewright.operations.access.permissions import is_agent
from timewright.operations.context import OperationContext
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.workflows.workflow_schedules import (
    deploy_schedules,
    header_row,
    require_version,
    require_workflow,
)
from timewright.operations.workflows.workflows import DeployedWorkflow, Version, describe_deployment
from timewright.ports import Transaction


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


@operations.write("workflow approve", scope="write", examples=({"workflow": "draft-load", "version": 1},))
def approve_version(context: OperationContext, tx: Transaction, request: DecideVersion) -> DeployedWorkflow:
    """Approve a version that an agent wrote, so that it runs, and deploy its schedules; agents cannot."""
    now = context.now()
    head, held = _find_pending(context, request)
    spec = require_version(tx, context.namespace, request.workflow, held.version)
    approved = replace(head, held=tuple(one for one in head.held if one is not held))
    if approved.runnable == held.version:
        schedules = deploy_schedules(context, spec, owned=head.schedules, reason=request.reason, now=now)
        approved = replace(approved, schedules=schedules)
    _save(context, request, approved, held, action="approve")
    return describe_deployment("updated", spec, approved)


@operations.write(
    "workflow reject", scope="write", examples=({"workflow": "draft-load", "reason": "not needed"},)
)
def reject_version(context: OperationContext, tx: Transaction, request: DecideVersion) -> DeployedWorkflow:
    """Reject a version that an agent wrote: it stays and never runs; agents cannot."""
    head, held = _find_pending(context, request)
    spec = require_version(tx, context.namespace, request.workflow, held.version)
    rejected = replace(held, state="rejected", reason=request.reason)
    after = replace(head, held=tuple(rejected if one is held else one for one in head.held))
    _save(context, request, after, held, action="reject")
    return describe_deployment("unchanged", spec, after)


def pending_versions(tx: Transaction, namespace: str) -> list[PendingVersion]:
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


def _find_pending(context: OperationContext, request: DecideVersion) -> tuple[WorkflowHeader, HeldVersion]:
    if is_agent(context):
        raise Forbidden(
            "agents cannot approve or reject workflows",
            field="workflow",
            value=request.workflow,
            rule="a person reviews what agents wrote",
            fix=f"ask a person: workflow approve {request.workflow}",
        )
    head = context.store.read(lambda tx: require_workflow(tx, context.namespace, request.workflow))
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


def _save(
    context: OperationContext,
    request: DecideVersion,
    head: WorkflowHeader,
    held: HeldVersion,
    *,
    action: str,
) -> None:
    now = context.now()
    entry = context.actor_with_reason(request.reason).audit_entry(
        f"workflow.{action}",
        namespace=context.namespace,
        subject=request.workflow,
        now=now,
        after=f"version {held.version} of {held.author}",
    )

    def write(tx: Transaction) -> None:
        tx.put_objects([header_row(context.namespace, request.workflow, head, now=now)])
        tx.add_audit([entry])

    context.store.write(write)
