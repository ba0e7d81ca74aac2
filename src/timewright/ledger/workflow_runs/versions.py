"""The version of a workflow that a run uses, its input, and its time limit."""

from __future__ import annotations

from datetime import datetime, timedelta

from timewright.core.policies.policies import OUTSIDE_LEASE, LeaseTerms
from timewright.core.run.run import Run
from timewright.core.target import Workflow
from timewright.core.workflow import WorkflowSpec
from timewright.errors import NotFound
from timewright.ledger.workflow_runs.records import (
    MAX_WAIT,
    MAX_WORKFLOW_DURATION,
    WorkflowContext,
    WorkflowPlan,
    find_header,
    load_plan,
    plan_of,
    read_spec,
    spec_digest,
    workflow_context,
)
from timewright.ports import Transaction

MAX_NESTING = 8


def pin_version(
    tx: Transaction, run: Run, target: Workflow, *, known: bool
) -> tuple[WorkflowContext | None, WorkflowContext, WorkflowPlan]:
    """Pin the version for a run; return its stored context, the pinned context, and the plan."""
    context = workflow_context(run) if known or not run.schedule_id else None
    pin = context.pin if context is not None else None
    if pin is None:
        pin = _pin_newest(tx, run, target, depth=context.depth + 1 if context is not None else 0)
    plan = load_plan(tx, run.namespace, pin)
    if plan is None:
        raise _unknown_workflow(target)
    return context, pin, plan


def _pin_newest(tx: Transaction, run: Run, target: Workflow, *, depth: int) -> WorkflowContext:
    header = find_header(tx, run.namespace, target.workflow)
    if header is None or header.deleted:
        raise _unknown_workflow(target)
    if depth > MAX_NESTING:
        raise NotFound(
            f"workflow {target.workflow} is nested {depth} levels deep",
            field="workflow",
            value=target.workflow,
            rule=f"workflows are nested at most {MAX_NESTING} levels deep",
            fix="check that it does not run itself",
        )
    version = target.version or header.runnable
    if version == 0 or header.find_held(version) is not None:
        raise _held_version(target, version or header.version)
    spec = read_spec(tx, run.namespace, target.workflow, version)
    if spec is None:
        raise _unknown_workflow(target)
    # The payload of a manual run of a schedule is its input, unless it is a context that we stored there.
    payload = run.payload if isinstance(run.payload, dict) and workflow_context(run) is None else {}
    return WorkflowContext(
        workflow=target.workflow,
        version=version,
        digest=spec_digest(spec),
        user=target.user or "",
        depth=depth,
        input=spec.merge_input({**target.input, **payload}),
    )


def _unknown_workflow(target: Workflow) -> NotFound:
    which = f" version {target.version}" if target.version is not None else ""
    return NotFound(
        f"no workflow {target.workflow}{which}",
        field="workflow",
        value=target.workflow,
        rule="a workflow exists and is not deleted",
        fix="see `workflow list`",
    )


def _held_version(target: Workflow, version: int) -> NotFound:
    return NotFound(
        f"workflow {target.workflow} version {version} is not approved",
        field="workflow",
        value=target.workflow,
        rule="a version that an agent wrote runs after a person approves it",
        fix=f"workflow approve {target.workflow} with version: {version}",
    )


def workflow_time_limit(spec: WorkflowSpec, lease: LeaseTerms, *, outside: bool) -> timedelta:
    """The time limit of a workflow run; an external executor must report within it."""
    if outside:
        return spec.time_limit or lease.time_limit or OUTSIDE_LEASE
    longest = MAX_WAIT if any(step.wait is not None for step in spec.steps) else MAX_WORKFLOW_DURATION
    return min(lease.time_limit or longest, spec.time_limit or longest)


def workflow_end(
    run: Run, spec: WorkflowSpec, lease: LeaseTerms, *, outside: bool, now: datetime
) -> datetime:
    """When a workflow run that starts now must have ended: after its time limit, or at its deadline."""
    end = now + workflow_time_limit(spec, lease, outside=outside)
    return min(end, run.planned_at + spec.deadline) if spec.deadline is not None else end


def is_past_deadline(tx: Transaction, run: Run) -> bool:
    """Whether a workflow run has reached its deadline."""
    plan = plan_of(tx, run)
    deadline = plan.spec.deadline if plan is not None else None
    return deadline is not None and run.lease_until == run.planned_at + deadline


def load_workflow(tx: Transaction, run_id: str, target: Workflow) -> tuple[WorkflowSpec, WorkflowContext]:
    """The definition and context of the workflow that a run is about to start."""
    run = tx.get_runs([run_id]).get(run_id)
    if run is None:
        raise _unknown_workflow(target)
    known = bool(tx.get_steps(run_id, [""]))
    _, pin, plan = pin_version(tx, run, target, known=known)
    return plan.spec, pin
