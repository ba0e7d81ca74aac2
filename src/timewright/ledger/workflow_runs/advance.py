"""Advances workflow runs: an ended step makes others ready, and the last one settles the workflow.

A workflow run is launched like any other. Settling its launch does not end it: its steps take over the
lease, with its fence, until the time limit. All of this happens in the transaction that settles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import CancelRequested, Fact, RunCancelled
from timewright.core.run.lifecycle import RunEvent, next_run_state, stop_deadline
from timewright.core.run.run import (
    TERMINAL_STATES,
    Cancelled,
    ExecutionTerms,
    Failed,
    Outcome,
    Reason,
    Run,
    RunState,
    Succeeded,
)
from timewright.core.target import Handoff
from timewright.errors import NotAllowed
from timewright.ledger.fact_builders import run_fields
from timewright.ledger.workflow_runs.records import (
    HELD_BY_WAIT,
    HELD_BY_WORKFLOW,
    WorkflowPlan,
    pinned_workflow,
    plan_of,
    step_terms,
    workflow_context,
)
from timewright.ledger.workflow_runs.stepper import WorkflowStepper
from timewright.ports import RunChange, Transaction
from timewright.ports.rows import StepRuns
from timewright.ports.workflow import StepRow

STOPPING = "stopping"
CLOSED = "closed"
PAUSED = "paused"
RUNNING = "running"

MAX_RESULT_BYTES = 64 * 1024
MAX_END_STEPS = 100

_UNREADABLE = ExecutionTerms(target=Handoff())


class FinishedWorkflow(Struct, frozen=True):
    """A workflow run, or a step that waits, that has ended, with its outcome."""

    run: Run
    outcome: Outcome


class WorkflowChanges(Struct, frozen=True):
    """The facts about workflow runs, and those that have ended."""

    facts: tuple[Fact, ...] = ()
    finished: tuple[FinishedWorkflow, ...] = ()


NO_CHANGES = WorkflowChanges()


def advance_workflows(
    tx: Transaction, ended: Sequence[Run], *, now: datetime, was_parked: bool = False
) -> WorkflowChanges:
    """Advance the workflow runs whose steps ended; the cost depends on the dependents of these steps."""
    by_parent: dict[str, list[Run]] = {}
    for run in ended:
        if run.parent:
            by_parent.setdefault(run.parent, []).append(run)
    totals = tx.lock_parents(by_parent)
    parents = tx.get_runs(totals) if totals else {}
    facts: list[Fact] = []
    finished: list[FinishedWorkflow] = []
    for parent_id, total in totals.items():
        stepper = open_stepper(tx, parents[parent_id], total, now=now) if parent_id in parents else None
        if stepper is None:
            continue
        stepper.record_ended(by_parent[parent_id], was_parked=was_parked)
        changes = save_stepper(tx, parents[parent_id], stepper)
        facts += changes.facts
        finished += changes.finished
    return WorkflowChanges(tuple(facts), tuple(finished))


def stop_workflows(
    tx: Transaction, parents: Sequence[Run], *, reason: str, now: datetime, state: str = STOPPING
) -> WorkflowChanges:
    """Stop the steps of workflow runs: waiting ones at once, leased ones by a cancel request."""
    facts: list[Fact] = []
    finished: list[FinishedWorkflow] = []
    for parent in parents:
        total = tx.lock_parents([parent.id]).get(parent.id) if parent.holder == HELD_BY_WORKFLOW else None
        stepper = open_stepper(tx, parent, total, now=now) if total is not None else None
        if stepper is None:
            continue
        stepper.starts_steps = stepper.is_stopping = state == STOPPING and stepper.plan.has_cleanup
        unfinished = tx.select(StepRuns(parent.id, unfinished=True))
        facts += _cancel(tx, stepper, unfinished, reason=reason, now=now)
        leased = [run for run in unfinished if run.state is RunState.LEASED]
        finished += [
            FinishedWorkflow(run, Cancelled(reason=reason)) for run in leased if run.holder == HELD_BY_WAIT
        ]
        leased = [run for run in leased if run.holder != HELD_BY_WAIT]
        facts += _request_cancel(tx, leased, reason=reason, now=now)
        inner = stop_workflows(tx, leased, reason=reason, now=now)
        changes = save_stepper(tx, parent, stepper, state=state)
        facts += (*inner.facts, *changes.facts)
        finished += (*inner.finished, *changes.finished)
    return WorkflowChanges(tuple(facts), tuple(finished))


def cancel_deadline(tx: Transaction, run: Run, until: datetime) -> datetime:
    """When a cancelled run must have ended: a workflow with steps that clean up keeps its own time limit."""
    plan = plan_of(tx, run) if run.holder == HELD_BY_WORKFLOW else None
    return run.lease_until or until if plan is not None and plan.has_cleanup else until


def open_stepper(tx: Transaction, parent: Run, total: StepRow, *, now: datetime) -> WorkflowStepper | None:
    """The stepper of a workflow run; None if its workflow cannot be found."""
    pin, plan = pinned_workflow(parent), plan_of(tx, parent)
    if pin is None or plan is None:
        return None
    stepper = WorkflowStepper(tx, parent, pin, plan, now=now)
    stepper.is_stopping = total.state == STOPPING and plan.has_cleanup
    stepper.starts_steps = total.state in ("", RUNNING) or stepper.is_stopping
    stepper.round = total.round
    return stepper


def save_stepper(
    tx: Transaction, parent: Run, stepper: WorkflowStepper, *, state: str = ""
) -> WorkflowChanges:
    """Write the changes of a stepper, and end the workflow run if no step is left."""
    total = stepper.write(state=state)
    outcome = _outcome(tx, parent, stepper, total)
    if outcome is None:
        return WorkflowChanges(tuple(stepper.facts))
    tx.add_to_steps([StepRow(parent=parent.id, step="", state=CLOSED)])
    return WorkflowChanges(tuple(stepper.facts), (FinishedWorkflow(parent, outcome),))


def run_to_reopen(tx: Transaction, run_id: str) -> str:
    """The id of the run to reopen: for a step, its workflow run, which must have ended."""
    run = tx.get_runs([run_id]).get(run_id)
    while run is not None and run.parent:
        parent = tx.get_runs([run.parent]).get(run.parent)
        if parent is None or parent.state not in (RunState.FAILED, RunState.CANCELLED):
            state = parent.state.value if parent is not None else "gone"
            has_ended = parent is None or parent.state in TERMINAL_STATES
            raise NotAllowed(
                f"the workflow run {run.parent} of this step is {state}",
                field="run_id",
                value=run_id,
                rule="a step is retried with its workflow, after that has failed or was cancelled",
                fix="start a new run: workflow run"
                if has_ended
                else f"wait for the end of {run.parent}, or cancel it; then: run retry {run.parent}",
            )
        run = parent
    return run.id if run is not None else run_id


def count_unparked(tx: Transaction, run: Run) -> None:
    """Count a step that was parked as live again."""
    context = workflow_context(run) if run.parent and run.state is RunState.PARKED else None
    if context is not None:
        names = ["", context.step] if context.item is not None else [""]
        tx.add_to_steps([StepRow(parent=run.parent, step=name, live=1, parked=-1) for name in names])


def _cancel(
    tx: Transaction, stepper: WorkflowStepper, unfinished: Sequence[Run], *, reason: str, now: datetime
) -> list[Fact]:
    """Cancel the steps that are not leased."""
    facts: list[Fact] = []
    for state in (RunState.READY, RunState.HELD, RunState.PARKED):
        runs = [run for run in unfinished if run.state is state]
        gone_to = next_run_state(state, RunEvent.CANCEL)
        after = [replace(run, state=gone_to, reason=reason, finished_at=now) for run in runs]
        changed = tx.change_runs([RunChange(a, state, a.fence) for a in after])
        stepper.record_ended([run for run in after if run.id in changed], was_parked=state is RunState.PARKED)
        facts += [
            RunCancelled(reason=reason, **run_fields(run, now=now)) for run in after if run.id in changed
        ]
    return facts


def _request_cancel(tx: Transaction, leased: Sequence[Run], *, reason: str, now: datetime) -> list[Fact]:
    terms = [step_terms(tx, run) or _UNREADABLE for run in leased]
    ends = [
        (run.id, cancel_deadline(tx, run, stop_deadline(run, term.target, term.lease, now=now)))
        for run, term in zip(leased, terms, strict=True)
    ]
    requested = tx.request_cancel(ends, at=now, reason=reason)
    return [
        CancelRequested(reason=reason, **run_fields(run, now=now)) for run in leased if run.id in requested
    ]


def _outcome(tx: Transaction, parent: Run, stepper: WorkflowStepper, total: StepRow) -> Outcome | None:
    if parent.state is not RunState.LEASED or parent.holder != HELD_BY_WORKFLOW or total.state == CLOSED:
        return None
    if total.state == STOPPING:
        reason = parent.reason or Reason.BY_HAND.value
        return Cancelled(reason=reason) if total.live < 1 else None
    if total.met < len(stepper.plan.steps):
        return None
    rows = tx.get_steps(parent.id)
    if total.failed:
        return Failed(error=_failures(rows, stepper.plan), final=True)
    if total.cancelled:
        return Cancelled()
    found = _result(stepper, rows)
    size = len(msgspec.json.encode(found)) if found else 0
    if size <= MAX_RESULT_BYTES:
        return Succeeded(result=found)
    if not parent.parent:
        return Succeeded()  # its steps keep their results
    # Another step may read the result, and would get nothing.
    rule = f"at most {MAX_RESULT_BYTES} bytes are passed on to another workflow; return artifacts"
    return Failed(error=f"the results of its last steps have {size} bytes; {rule}", final=True)


def _failures(rows: Mapping[str, StepRow], plan: WorkflowPlan) -> str:
    failed = [name for name in plan.steps if rows[name].state == RunState.FAILED.value]
    more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    return f"failed: {', '.join(failed[:5])}{more}"


def _result(stepper: WorkflowStepper, rows: Mapping[str, StepRow]) -> dict[str, Any] | None:
    """The results of the last steps, if there are not too many of them."""
    if len(stepper.plan.ends) > MAX_END_STEPS:
        return None
    found = stepper.results(stepper.plan.ends, rows)
    found = {name: result for name, result in found.items() if result is not None}
    return found or None
