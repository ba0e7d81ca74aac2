"""Which version of a workflow a run runs, with what input, and for how long it may."""

from __future__ import annotations

from datetime import timedelta

from timewright.core.policies import LeaseTerms
from timewright.core.run import Run
from timewright.core.target import Workflow
from timewright.core.workflow import WorkflowSpec
from timewright.errors import NotFound
from timewright.ledger.unfold_parts import (
    LONGEST_RUN,
    Part,
    Plan,
    digest_of,
    find_head,
    part_of,
    plan_of,
    read_spec,
)
from timewright.ports import Transaction

DEEPEST = 8


def pinned(tx: Transaction, run: Run, target: Workflow, *, known: bool) -> tuple[Part | None, Part, Plan]:
    """What the run remembers, the version it runs from now on, and its plan."""
    part = part_of(run) if known or not run.schedule_id else None
    pin = part.pin if part is not None else None
    if pin is None:
        pin = _pin(tx, run, target, depth=part.depth + 1 if part is not None else 0)
    plan = plan_of(tx, run.namespace, pin)
    if plan is None:
        raise _no_workflow(target)
    return part, pin, plan


def _pin(tx: Transaction, run: Run, target: Workflow, *, depth: int) -> Part:
    head = find_head(tx, run.namespace, target.workflow)
    if head is None or head.deleted:
        raise _no_workflow(target)
    if depth > DEEPEST:
        raise NotFound(
            f"workflow {target.workflow} would be {depth} workflows deep",
            field="workflow",
            value=target.workflow,
            rule=f"at most {DEEPEST} workflows inside each other",
            fix="does it run itself?",
        )
    version = target.version or head.version
    spec = read_spec(tx, run.namespace, target.workflow, version)
    if spec is None:
        raise _no_workflow(target)
    # What someone handed to a run of a schedule is its input; what we wrote there ourselves is not.
    handed = run.payload if isinstance(run.payload, dict) and part_of(run) is None else {}
    return Part(
        workflow=target.workflow,
        version=version,
        digest=digest_of(spec),
        user=target.user or "",
        depth=depth,
        input=spec.given({**target.input, **handed}),
    )


def _no_workflow(target: Workflow) -> NotFound:
    which = f" version {target.version}" if target.version is not None else ""
    return NotFound(
        f"no workflow {target.workflow}{which}",
        field="workflow",
        value=target.workflow,
        rule="a workflow that was put and not deleted",
        fix="workflow list shows what there is",
    )


def time_limit(spec: WorkflowSpec, lease: LeaseTerms, *, outside: bool) -> timedelta:
    """How long a workflow may take; an executor is given up as soon as the schedule says."""
    if outside:
        return spec.time_limit or lease.time_limit
    # The usual limit of a run is meant for one piece of work, not for all the steps together.
    said = lease.time_limit if lease.time_limit != LeaseTerms().time_limit else LONGEST_RUN
    return min(said, spec.time_limit or LONGEST_RUN)


def dag_of(tx: Transaction, run_id: str, target: Workflow) -> tuple[WorkflowSpec, Part]:
    """The workflow that a run is about to start, for whoever starts it."""
    run = tx.get_runs([run_id]).get(run_id)
    if run is None:
        raise _no_workflow(target)
    known = bool(tx.get_steps(run_id, [""]))
    _, pin, plan = pinned(tx, run, target, known=known)
    return plan.spec, pin
