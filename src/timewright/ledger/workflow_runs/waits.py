"""Steps that wait: what they wait for, and what happens when nothing came in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from timewright.core.run.run import Failed, Outcome, Run, RunState, Succeeded
from timewright.core.workflow import Wait
from timewright.core.workflow.step_input import render_question
from timewright.errors import NotAllowed
from timewright.ledger.workflow_runs.records import (
    HELD_BY_WAIT,
    WorkflowContext,
    pinned_workflow,
    step_of,
    workflow_context,
)
from timewright.ports import Transaction
from timewright.ports.rows import WaitingSteps


class WaitingStep(Struct, frozen=True):
    """A step that waits: its run, its place in the workflow, and what it waits for."""

    run: Run
    context: WorkflowContext
    wait: Wait
    question: str = ""

    @property
    def until(self) -> datetime | None:
        """When the wait ends by itself, if it does."""
        return self.run.lease_until if self.wait.until is not None else None


def find_waiting_step(tx: Transaction, run: Run) -> WaitingStep:
    """The step that a run is, which must still wait."""
    context, step = workflow_context(run), step_of(tx, run)
    if step is None or step.wait is None or context is None:
        raise NotAllowed(
            f"run {run.id} does not wait for an answer",
            field="run",
            value=run.id,
            rule="a step with `wait` takes an answer",
            fix="approval list shows what waits",
        )
    if run.state is not RunState.LEASED or run.holder != HELD_BY_WAIT:
        raise NotAllowed(
            f"run {run.id} is {run.state.value}: it no longer waits for an answer",
            field="run",
            value=run.id,
            rule="an answer is taken once, while the step waits",
            fix=f"run get {run.id} shows its result",
        )
    return WaitingStep(run, context, step.wait, render_question(step, context.values))


def list_waiting_steps(tx: Transaction, namespace: str, *, event: str | None = None) -> list[WaitingStep]:
    """The steps of a namespace that wait for an event, or without one for an answer, oldest first.

    Those of unreadable workflows are left out.
    """
    found: list[WaitingStep] = []
    for run in tx.select(WaitingSteps(namespace, event=event)):
        try:
            found.append(find_waiting_step(tx, run))
        except NotAllowed:
            continue
    return found


def event_scopes(tx: Transaction, waiting: Sequence[WaitingStep], event: Any) -> list[dict[str, Any]]:
    """What the `match` of each waiting step sees: the event, the input of its workflow run, and its item."""
    matched = {one.run.parent for one in waiting if one.wait.event and one.wait.event.match is not None}
    parents = tx.get_runs(matched) if matched else {}
    scopes: list[dict[str, Any]] = []
    for one in waiting:
        parent = parents.get(one.run.parent)
        pin = pinned_workflow(parent) if parent is not None else None
        scope = {"event": event, "input": pin.input if pin is not None else {}}
        scopes.append(scope | {"item": one.context.values.get("item")})
    return scopes


def wait_over(tx: Transaction, run: Run) -> Outcome:
    """The outcome of a step when its time is over and nothing came."""
    step = step_of(tx, run)
    wait = step.wait if step is not None else None
    if wait is not None and isinstance(wait.otherwise, dict):
        return Succeeded(result=wait.otherwise, outcome_label="noop")
    what = "event" if wait is not None and wait.answer is None else "answer"
    return Failed(error=f"no {what} came in time", final=True)
