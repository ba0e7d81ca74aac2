"""Workflow runs: start, draw as a graph, pause and resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.run.run import Run, RunState
from timewright.core.workflow import WorkflowSpec, layers, render_graph
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.workflow_runs.advance import PAUSED
from timewright.ledger.workflow_runs.control import pause_workflow_run, resume_workflow_run, start_workflow
from timewright.ledger.workflow_runs.launch import REPEAT
from timewright.ledger.workflow_runs.records import (
    WorkflowContext,
    WorkflowHeader,
    spec_digest,
    workflow_context,
)
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_run
from timewright.operations.registry import (
    WORKFLOW_RUN,
    ObjectName,
    OperationRequest,
    RunAction,
    WriteRequest,
    answer_from,
    operations,
)
from timewright.operations.views import RunDetail, build_run_detail, first_starts_of
from timewright.operations.workflows.workflow_schedules import require_version, require_workflow
from timewright.operations.workflows.workflows import Version
from timewright.ports import Transaction
from timewright.ports.rows import StepRuns
from timewright.ports.workflow import StepRow

MAX_STEPS_SHOWN = 1000


class RunWorkflow(WriteRequest, frozen=True, kw_only=True):
    """Which workflow to run now, and its input; `like` uses the version and input of an earlier run."""

    workflow: ObjectName
    version: Version | None = None
    input: dict[str, Any] = field(default_factory=dict)
    user: Annotated[str, Meta(max_length=255)] = ""
    like: Annotated[str, Meta(max_length=64)] = ""
    client_key: Annotated[str, Meta(max_length=255)] = ""


class DrawWorkflow(OperationRequest, frozen=True, kw_only=True):
    """Which workflow to draw; with `run`, with the states of its steps in that run."""

    workflow: ObjectName
    version: Version | None = None
    run: Annotated[str, Meta(max_length=64)] = ""


class StepRun(Struct, frozen=True, kw_only=True):
    """The run of a step, or of one item of a step with `each`: when it was created, started and ended."""

    run: str
    step: str
    item: int | None
    state: str
    created_at: datetime
    first_started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    reason: str


class StepStatus(Struct, frozen=True, kw_only=True):
    """A step: its layer in the drawing, and its state in a run; `left` counts its unfinished items.

    `items` counts the runs of a step with `each` by state.
    """

    step: str
    layer: int
    needs: tuple[str, ...]
    state: str = ""
    run: str = ""
    left: int = 0
    reason: str = ""
    items: dict[str, int] = {}


class WorkflowDrawing(Struct, frozen=True, kw_only=True):
    """A workflow as text, layer by layer, and its first thousand steps and step runs."""

    workflow: str
    version: int
    run: str
    text: str
    steps: tuple[StepStatus, ...]
    runs: tuple[StepRun, ...] = ()
    """The newest run of each step and item, in the order they were created."""
    more: bool = False
    """Whether there are more step runs than are listed."""
    paused: bool = False
    """Whether the run is paused, so that no further step starts."""


@operations.write(
    "workflow run",
    scope="trigger",
    examples=(
        {"workflow": "nightly-load"},
        {"workflow": "nightly-load", "input": {"day": "2026-03-09"}, "client_key": "ticket-17"},
        {"workflow": "nightly-load", "like": WORKFLOW_RUN},
    ),
)
def run_workflow(context: OperationContext, tx: Transaction, request: RunWorkflow) -> RunDetail:
    """Run a workflow now; the run stores the version and input it was started with."""
    now = context.now()
    part = _build_workflow_context(tx, context, request)
    result = start_workflow(
        context.store,
        part,
        namespace=context.namespace,
        ids=context.ids,
        by=context.by,
        now=now,
        client_key=request.client_key,
    )
    context.notify(result.facts)
    return build_run_detail(tx, result.runs[0])


@operations.read(
    "workflow graph",
    scope="read",
    examples=({"workflow": "nightly-load"}, {"workflow": "nightly-load", "run": WORKFLOW_RUN}),
)
def draw_workflow(context: OperationContext, tx: Transaction, request: DrawWorkflow) -> WorkflowDrawing:
    """Draw a workflow as text, layer by layer; with `run`, with the state of each step."""
    head = require_workflow(tx, context.namespace, request.workflow)
    if not request.run:
        version = request.version or head.version
        return _draw(require_version(tx, context.namespace, request.workflow, version), run="", states={})
    run = find_run(tx, context.namespace, request.run)
    pin = _workflow_context_of(run, request.workflow)
    spec = require_version(tx, context.namespace, pin.workflow, pin.version)
    newest = _newest_step_runs(tx, run)
    rows = tx.get_steps(run.id)
    drawing = _draw(spec, run=run.id, states=_step_states(newest, rows))
    paused = run.state is RunState.LEASED and "" in rows and rows[""].state == PAUSED
    shown = newest[:MAX_STEPS_SHOWN]
    starts = first_starts_of(tx, [one for _, one in shown])
    runs = tuple(_step_run(context, one, starts.get(one.id)) for context, one in shown)
    return replace(drawing, runs=runs, more=len(newest) > len(shown), paused=paused)


@operations.write("workflow pause", scope="trigger", examples=({"run": WORKFLOW_RUN},))
def pause_workflow(context: OperationContext, tx: Transaction, request: RunAction) -> RunDetail:
    """Pause a workflow run: no further steps start, active ones continue, its time limit stops."""
    run = find_run(tx, context.namespace, request.run)
    pause_workflow_run(context.store, run, by=context.by, now=context.now())
    return build_run_detail(tx, find_run(tx, context.namespace, run.id))


@operations.write("workflow resume", scope="trigger", examples=({"run": WORKFLOW_RUN},))
def resume_workflow(context: OperationContext, tx: Transaction, request: RunAction) -> RunDetail:
    """Resume a paused workflow run; one that is not paused does not change."""
    run = find_run(tx, context.namespace, request.run)
    context.notify(resume_workflow_run(context.store, run, by=context.by, now=context.now()))
    return build_run_detail(tx, find_run(tx, context.namespace, run.id))


def _build_workflow_context(
    tx: Transaction, context: OperationContext, request: RunWorkflow
) -> WorkflowContext:
    head = require_workflow(tx, context.namespace, request.workflow)
    version, given, user = request.version or head.runnable or head.version, dict(request.input), request.user
    if request.like:
        pin = _workflow_context_of(find_run(tx, context.namespace, request.like), request.workflow)
        version, given, user = request.version or pin.version, {**pin.input, **given}, user or pin.user
    _check_approved(request.workflow, head, version)
    spec = require_version(tx, context.namespace, request.workflow, version)
    return WorkflowContext(
        workflow=request.workflow,
        version=version,
        digest=spec_digest(spec),
        user=user,
        input=spec.merge_input(given),
    )


def _check_approved(workflow: str, head: WorkflowHeader, version: int) -> None:
    held = head.find_held(version)
    if held is not None:
        rejected = held.state == "rejected"
        raise NotAllowed(
            f"workflow {workflow} version {version} {'was rejected' if rejected else 'waits for approval'}",
            field="version",
            value=version,
            rule="a version that an agent wrote runs after a person approves it",
            fix="run another version" if rejected else f"workflow approve {workflow} with version: {version}",
        )


def _workflow_context_of(run: Run, workflow: str) -> WorkflowContext:
    part = workflow_context(run)
    pin = part.pin if part is not None else None
    if pin is None or pin.workflow != workflow:
        raise InvalidInput(
            f"run {run.id} is not a run of workflow {workflow}",
            field="run",
            value=run.id,
            rule="a started run of this workflow",
            fix="run list shows the runs, run get the workflow of each",
        )
    return pin


def _draw(spec: WorkflowSpec, *, run: str, states: Mapping[str, StepStatus]) -> WorkflowDrawing:
    rows = [(n, step) for n, layer in enumerate(layers(spec), start=1) for step in layer]
    views = []
    for layer, step in rows[:MAX_STEPS_SHOWN]:
        seen = states.get(step.name, StepStatus(step=step.name, layer=layer, needs=step.needs))
        state = seen.state or ("waiting" if run else "")
        views.append(replace(seen, layer=layer, needs=step.needs, state=state))
    marks = {view.step: view.state + (f" ({view.left} left)" if view.left else "") for view in views}
    text = render_graph(spec, states=marks if run else None)
    return WorkflowDrawing(workflow=spec.name, version=spec.version, run=run, text=text, steps=tuple(views))


def _newest_step_runs(tx: Transaction, run: Run) -> list[tuple[WorkflowContext, Run]]:
    """Return the newest run of each step and item with its context, in the order they were created."""
    found: dict[tuple[str, int | None], tuple[WorkflowContext, Run]] = {}
    for one in tx.select(StepRuns(run.id)):
        part = workflow_context(one)
        if part is not None:
            found.pop((part.step, part.item), None)
            found[part.step, part.item] = (part, one)
    return list(found.values())


def _step_run(context: WorkflowContext, run: Run, first_started_at: datetime | None) -> StepRun:
    return answer_from(
        StepRun,
        run,
        context,
        run=run.id,
        state=run.state.value,
        first_started_at=first_started_at or run.started_at,
        reason=run.reason or run.error,
    )


def _step_states(
    runs: Sequence[tuple[WorkflowContext, Run]], rows: Mapping[str, StepRow]
) -> dict[str, StepStatus]:
    """Return the states of a run's steps; a started step has the state of its own run."""
    newest = {context.step: one for context, one in runs}
    items: dict[str, Counter[str]] = {}
    for context, one in runs:
        if context.item is not None:
            items.setdefault(context.step, Counter())[one.state.value] += 1
    found: dict[str, StepStatus] = {}
    for name, row in rows.items():
        step_run = newest.get(name)
        state = "waiting" if row.state == REPEAT else row.state
        if state == "started":
            state = step_run.state.value if step_run is not None and row.run_id else "running"
        found[name] = StepStatus(
            step=name,
            layer=0,
            needs=(),
            state=state,
            run=step_run.id if step_run is not None else "",
            left=row.live,
            reason=step_run.reason or step_run.error if step_run is not None else "",
            items=dict(items.get(name, {})),
        )
    return found
