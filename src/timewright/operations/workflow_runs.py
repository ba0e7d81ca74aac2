"""Runs of workflows: started, drawn, held up and let go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from timewright.core.run import Run
from timewright.core.workflow import WorkflowSpec, graph, layers
from timewright.errors import InvalidInput
from timewright.ledger.unfold_parts import Part, digest_of, part_of
from timewright.ledger.unfold_start import pause, resume, start
from timewright.operations.context import Context, together
from timewright.operations.examples import WORKFLOW_RUN
from timewright.operations.find import find_run
from timewright.operations.registry import Named, Request, Write, operations
from timewright.operations.views import RunDetail, run_detail
from timewright.operations.workflow_shelf import must_find, must_read
from timewright.operations.workflows import Version
from timewright.ports import Transaction
from timewright.ports.steps import StepRow

MOST_STEPS_SHOWN = 1000


class RunWorkflow(Write, frozen=True, kw_only=True):
    """Which workflow to run now, with what; `like` repeats the version and input of an earlier run."""

    workflow: Named
    version: Version | None = None
    input: dict[str, Any] = field(default_factory=dict)
    user: Annotated[str, Meta(max_length=255)] = ""
    like: Annotated[str, Meta(max_length=64)] = ""
    client_key: Annotated[str, Meta(max_length=255)] = ""


class Graph(Request, frozen=True, kw_only=True):
    """Which workflow to draw; with a run, as it stands in that run."""

    workflow: Named
    version: Version | None = None
    run: Annotated[str, Meta(max_length=64)] = ""


class StepView(Struct, frozen=True, kw_only=True):
    """A step where it stands in the drawing, and in a run; `left` are its items that are not over."""

    step: str
    layer: int
    needs: tuple[str, ...]
    state: str = ""
    run: str = ""
    left: int = 0
    reason: str = ""


class Drawn(Struct, frozen=True, kw_only=True):
    """A workflow as text, layer by layer, and its steps, the first thousand."""

    workflow: str
    version: int
    run: str
    text: str
    steps: tuple[StepView, ...]


class Ask(Write, frozen=True, kw_only=True):
    """Which run of a workflow."""

    run: Named


@operations.add(
    "workflow",
    "run",
    RunWorkflow,
    scope="trigger",
    examples=(
        {"workflow": "nightly-load"},
        {"workflow": "nightly-load", "input": {"day": "2026-03-09"}, "client_key": "ticket-17"},
        {"workflow": "nightly-load", "like": WORKFLOW_RUN},
    ),
)
def run_workflow(context: Context, ask: RunWorkflow) -> RunDetail:
    """Run a workflow now; its run remembers the version and the input it was started with."""
    now = context.now()

    def work(inside: Context) -> RunDetail:
        part = inside.store.read(lambda tx: _part(tx, inside, ask))
        made = start(
            inside.store,
            part,
            namespace=inside.namespace,
            ids=inside.ids,
            by=inside.because(ask.reason),
            now=now,
            client_key=ask.client_key,
        )
        inside.tell(made.facts)
        return inside.store.read(lambda tx: run_detail(tx, made.runs[0]))

    return together(context, work)


@operations.add(
    "workflow",
    "graph",
    Graph,
    scope="read",
    examples=({"workflow": "nightly-load"}, {"workflow": "nightly-load", "run": WORKFLOW_RUN}),
)
def draw_workflow(context: Context, ask: Graph) -> Drawn:
    """Draw a workflow as text, layer by layer; with a run, with the state of each step."""

    def work(tx: Transaction) -> Drawn:
        head = must_find(tx, context.namespace, ask.workflow)
        if not ask.run:
            version = ask.version or head.version
            return _drawn(must_read(tx, context.namespace, ask.workflow, version), run="", states={})
        run = find_run(tx, context.namespace, ask.run)
        pin = _pin_of(run, ask.workflow)
        spec = must_read(tx, context.namespace, pin.workflow, pin.version)
        return _drawn(spec, run=run.id, states=_states(tx, run, tx.get_steps(run.id)))

    return context.store.read(work)


@operations.add("workflow", "pause", Ask, scope="trigger", examples=({"run": WORKFLOW_RUN},))
def pause_workflow(context: Context, ask: Ask) -> RunDetail:
    """Start no further steps of a workflow run; what is under way goes on, its time limit stands still."""

    def act(inside: Context, run: Run) -> None:
        pause(inside.store, run, by=inside.because(ask.reason), now=inside.now())

    return _changed(context, ask, act)


@operations.add("workflow", "resume", Ask, scope="trigger", examples=({"run": WORKFLOW_RUN},))
def resume_workflow(context: Context, ask: Ask) -> RunDetail:
    """Let a paused workflow run go on; one that is not paused stays as it is."""

    def act(inside: Context, run: Run) -> None:
        inside.tell(resume(inside.store, run, by=inside.because(ask.reason), now=inside.now()))

    return _changed(context, ask, act)


def _changed(context: Context, ask: Ask, act: Callable[[Context, Run], None]) -> RunDetail:
    def work(inside: Context) -> RunDetail:
        run = inside.store.read(lambda tx: find_run(tx, inside.namespace, ask.run))
        act(inside, run)
        return inside.store.read(lambda tx: run_detail(tx, find_run(tx, inside.namespace, run.id)))

    return together(context, work)


def _part(tx: Transaction, context: Context, ask: RunWorkflow) -> Part:
    head = must_find(tx, context.namespace, ask.workflow)
    version, given, user = ask.version or head.version, dict(ask.input), ask.user
    if ask.like:
        pin = _pin_of(find_run(tx, context.namespace, ask.like), ask.workflow)
        version, given, user = ask.version or pin.version, {**pin.input, **given}, user or pin.user
    spec = must_read(tx, context.namespace, ask.workflow, version)
    return Part(
        workflow=ask.workflow, version=version, digest=digest_of(spec), user=user, input=spec.given(given)
    )


def _pin_of(run: Run, workflow: str) -> Part:
    part = part_of(run)
    pin = part.pin if part is not None else None
    if pin is None or pin.workflow != workflow:
        raise InvalidInput(
            f"run {run.id} is not one of workflow {workflow}",
            field="run",
            value=run.id,
            rule="a run of this workflow that was started",
            fix="run list shows the runs, run get what each remembers",
        )
    return pin


def _drawn(spec: WorkflowSpec, *, run: str, states: Mapping[str, StepView]) -> Drawn:
    rows = [(n, step) for n, layer in enumerate(layers(spec), start=1) for step in layer]
    views = []
    for layer, step in rows[:MOST_STEPS_SHOWN]:
        seen = states.get(step.name, StepView(step=step.name, layer=layer, needs=step.needs))
        views.append(
            StepView(
                step=step.name,
                layer=layer,
                needs=step.needs,
                state=seen.state or ("waiting" if run else ""),
                run=seen.run,
                left=seen.left,
                reason=seen.reason,
            )
        )
    marks = {view.step: view.state + (f" ({view.left} left)" if view.left else "") for view in views}
    text = graph(spec, states=marks if run else None)
    return Drawn(workflow=spec.name, version=spec.version, run=run, text=text, steps=tuple(views))


def _states(tx: Transaction, run: Run, rows: Mapping[str, StepRow]) -> dict[str, StepView]:
    """How the steps of a run stand; one that has started is as its own run is."""
    newest = {part.step: one for one in tx.child_runs(run.id) if (part := part_of(one)) is not None}
    found: dict[str, StepView] = {}
    for name, row in rows.items():
        own = newest.get(name)
        state = row.state
        if state == "started":
            state = own.state.value if own is not None and row.run_id else "running"
        found[name] = StepView(
            step=name,
            layer=0,
            needs=(),
            state=state,
            run=own.id if own is not None else "",
            left=row.live,
            reason=own.reason or own.error if own is not None else "",
        )
    return found
