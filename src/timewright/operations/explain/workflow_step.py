"""Explain a workflow run or step run: which workflow and step it is, and what it waited for."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.core.moments import format_instant
from timewright.core.run.run import Run, RunState
from timewright.ledger.workflow_runs.records import (
    HELD_BY_EXECUTOR,
    HELD_BY_WAIT,
    HELD_BY_WORKFLOW,
    WorkflowContext,
    load_plan,
    workflow_context,
)
from timewright.ledger.workflow_runs.waits import WaitingStep, find_waiting_step
from timewright.ports import Transaction
from timewright.ports.workflow import StepRow

MAX_NAMES_SHOWN = 10


def run_label(run: Run) -> str:
    """Return the label of a run without a schedule: its workflow and step, or its queue."""
    part = workflow_context(run) if run.parent or not run.queue else None
    if part is None:
        return f"queue {run.queue}"
    return f"{part.workflow}.{part.step}" if part.step else part.workflow


def explain_workflow_step(tx: Transaction, run: Run) -> list[str]:
    """Explain the role of a run in its workflow; empty if it has none."""
    part = workflow_context(run)
    if part is None:
        return []
    sentences = _explain_step(tx, run, part) if run.parent and part.step else []
    if run.state is RunState.LEASED and run.holder == HELD_BY_EXECUTOR:
        until = f" by {format_instant(run.lease_until)}" if run.lease_until is not None else ""
        sentences.append(f"the executor of workflow {part.workflow} runs it, and may report{until}")
    if run.state is RunState.LEASED and run.holder == HELD_BY_WAIT:
        sentences.append(_explain_wait(find_waiting_step(tx, run)))
    if run.state is RunState.LEASED and run.holder == HELD_BY_WORKFLOW and part.pin is not None:
        sentences += _explain_workflow_run(tx, run, part.pin)
    return sentences


def _explain_wait(waiting: WaitingStep) -> str:
    wait, ways = waiting.wait, []
    if wait.answer is not None:
        ways.append(f"an answer{f' from {wait.answer.to}' if wait.answer.to else ''}")
    if wait.event is not None:
        ways.append(f"the event {wait.event.name}")
    until = f" until {format_instant(waiting.until)}" if waiting.until is not None else ""
    return f"it waits for {' or '.join(ways) or 'time to pass'}{until}; no worker has it"


def _explain_step(tx: Transaction, run: Run, part: WorkflowContext) -> list[str]:
    item = f", item {part.item}" if part.item is not None else ""
    sentences = [
        f"it is step {part.step}{item} of workflow {part.workflow} version {part.version}, in {run.parent}"
    ]
    plan = load_plan(tx, run.namespace, part)
    needs = plan.steps[part.step].needs if plan is not None else ()
    if not needs:
        return [*sentences, "it needs no other step"]
    rows = tx.get_steps(run.parent, needs)
    ends = tx.get_runs([row.run_id for row in rows.values() if row.run_id])
    named = ", ".join(_need(name, rows, ends) for name in needs[:MAX_NAMES_SHOWN])
    more = f" and {len(needs) - MAX_NAMES_SHOWN} more" if len(needs) > MAX_NAMES_SHOWN else ""
    return [*sentences, f"it waited for {named}{more}"]


def _need(name: str, rows: Mapping[str, StepRow], ends: Mapping[str, Run]) -> str:
    row = rows.get(name)
    run = ends.get(row.run_id) if row is not None else None
    at = f" at {format_instant(run.finished_at)}" if run is not None and run.finished_at is not None else ""
    return f"{name} ({row.state if row is not None else 'waiting'}{at})"


def _explain_workflow_run(tx: Transaction, run: Run, pin: WorkflowContext) -> list[str]:
    totals = tx.get_steps(run.id, [""]).get("")
    plan = load_plan(tx, run.namespace, pin)
    if totals is None or plan is None:
        return []
    sentences = [f"{totals.met} of {len(plan.steps)} steps are settled, {totals.live} step runs are active"]
    if totals.parked:
        sentences.append(f"{totals.parked} step runs are parked and wait for a person")
    if totals.state in ("paused", "stopping"):
        sentences.append(f"the workflow is {totals.state}")
    return sentences
