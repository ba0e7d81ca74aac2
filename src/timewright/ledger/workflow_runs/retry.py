"""Retries a workflow run: succeeded steps stay, the others run again; or all from one step on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from timewright.core.facts import RunReset
from timewright.core.run.lifecycle import RunEvent, restart_run
from timewright.core.run.run import Run, RunState
from timewright.errors import NotAllowed
from timewright.ledger.fact_builders import run_fields
from timewright.ledger.workflow_runs.records import WorkflowContext, WorkflowPlan, workflow_context
from timewright.ledger.workflow_runs.stepper import STARTED, WorkflowStepper, fan_out_state
from timewright.ports import AuditEntry, RunChange, StoredObject, Transaction
from timewright.ports.workflow import StepRow

# Input that a retry from a step sets; kept from the request until the workflow run starts again.
CHANGED_INPUT = "changed_input"
WORKFLOW_ACTOR = "workflow"
# The state of a step row from which on the next retry runs the steps again, also if they succeeded.
REPEAT = "repeat"

_LIVE = (RunState.READY, RunState.LEASED, RunState.HELD)
_EVENTS = {
    RunState.FAILED: RunEvent.REOPEN,
    RunState.CANCELLED: RunEvent.REOPEN,
    RunState.PARKED: RunEvent.RESET,
}


def retry_workflow(
    tx: Transaction,
    parent: Run,
    stepper: WorkflowStepper,
    plan: WorkflowPlan,
    *,
    round_number: int,
    now: datetime,
) -> None:
    """Rebuild the step counts from the existing runs: failed runs become ready, skipped steps undecided."""
    newest = {run.dedupe_scope.partition("~")[0]: run for run in tx.child_runs(parent.id)}
    repeated = _steps_to_repeat(tx, parent, plan)
    kept = [
        run
        for run in newest.values()
        if run.state is not RunState.SKIPPED and not _starts_anew(run, plan, repeated)
    ]
    after = _reopened(tx, kept, now=now)
    stepper.facts += [
        RunReset(actor=WORKFLOW_ACTOR, **run_fields(run, now=now))
        for run in after
        if run.state is RunState.READY
    ]
    tx.delete_steps([parent.id])
    stepper.round = round_number
    stepper.add_counts(round=round_number, live=sum(run.state in _LIVE for run in after))
    ends = _write_steps(tx, parent, _by_step(after), plan)
    stepper.settle_steps(ends)
    known = _by_step(after)
    stepper.start_steps([name for name in plan.roots if name not in known])


def mark_to_repeat(tx: Transaction, run: Run, *, changed: dict[str, Any], now: datetime) -> None:
    """Let the next retry run a step again, with changed input, and all steps that need it."""
    context = workflow_context(run)
    parent = tx.get_runs([run.parent]).get(run.parent) if run.parent else None
    if context is None or not context.step or parent is None or parent.parent:
        raise NotAllowed(
            f"run {run.id} is not a step of a workflow run that stands alone",
            field="from_step",
            value=True,
            rule="retry from a step of a workflow that is not itself a step",
            fix=f"run retry {run.id} without from_step",
        )
    tx.add_to_steps([StepRow(parent=run.parent, step=context.step, state=REPEAT)])
    if changed:
        body = msgspec.json.encode({context.step: changed})
        row = StoredObject(kind=CHANGED_INPUT, namespace=run.namespace, name=run.parent, body=body, at=now)
        tx.put_objects([row])


def take_changed_input(tx: Transaction, parent: Run, pin: WorkflowContext) -> WorkflowContext:
    """Move the input that was changed for this retry into the context of the workflow run."""
    rows = tx.get_objects(CHANGED_INPUT, namespace=parent.namespace, names=[parent.id])
    if not rows:
        return pin
    tx.delete_object(CHANGED_INPUT, namespace=parent.namespace, name=parent.id)
    return replace(pin, changed={**pin.changed, **msgspec.json.decode(rows[0].body)})


def _steps_to_repeat(tx: Transaction, parent: Run, plan: WorkflowPlan) -> set[str]:
    """The marked steps and every step behind them."""
    found: set[str] = set()
    todo = [name for name, row in tx.get_steps(parent.id).items() if row.state == REPEAT]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += plan.successors.get(name, ())
    return found


def _starts_anew(run: Run, plan: WorkflowPlan, repeated: Collection[str]) -> bool:
    """Whether the step gets a new run: it is repeated, could not be started, or waited and nothing came."""
    context = workflow_context(run)
    if run.state not in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
        return False
    if context is not None and context.step in repeated:
        return True
    if run.state is RunState.SUCCEEDED:
        return False
    step = plan.steps.get(context.step) if context is not None else None
    return (run.fence == 0 and run.state is RunState.FAILED) or (step is not None and step.wait is not None)


def _reopened(tx: Transaction, runs: Iterable[Run], *, now: datetime) -> list[Run]:
    changes: list[RunChange] = []
    after: list[Run] = []
    for run in runs:
        event = _EVENTS.get(run.state)
        if event is None:
            after.append(run)
        else:
            fresh = restart_run(run, event, now=now)
            changes.append(RunChange(fresh, run.state, run.fence))
            after.append(fresh)
    tx.change_runs(changes)
    tx.add_audit([_audit_entry(change, now=now) for change in changes])
    return after


def _audit_entry(change: RunChange, *, now: datetime) -> AuditEntry:
    """An audit entry for each reopened run; the actor is in the entry of the workflow run."""
    run, event = change.run, _EVENTS[change.expected_state]
    return AuditEntry(
        at=now,
        namespace=run.namespace,
        actor=WORKFLOW_ACTOR,
        origin="workflow",
        action=f"run.{event}",
        subject=run.id,
        before=change.expected_state.value,
        reason=f"retry of {run.parent}",
    )


def _by_step(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        context = workflow_context(run)
        if context is not None:
            found.setdefault(context.step, []).append(run)
    return found


def _write_steps(
    tx: Transaction, parent: Run, runs: dict[str, list[Run]], plan: WorkflowPlan
) -> list[tuple[str, RunState]]:
    """Write a row for every step that has runs; return the steps that are already settled."""
    rows: list[StepRow] = []
    ends: list[tuple[str, RunState]] = []
    for name, own in runs.items():
        live = sum(run.state in _LIVE for run in own)
        fan = plan.steps[name].each is not None
        row = StepRow(
            parent=parent.id,
            step=name,
            state=STARTED,
            live=live if fan else 0,
            run_id="" if fan else own[-1].id,
        )
        rows.append(row)
        if not live:
            ends.append((name, fan_out_state(row)))
    tx.add_to_steps(rows)
    return ends
