"""A workflow while it runs: what may start, what is left out, what each step is given, how it ends.

A step is looked at when everything it needs is settled. It runs if what its `run_if` asks became of its
needs and its `when` holds; otherwise it is skipped, and that settles it for those who need it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from timewright.core.run import TERMINAL, RunState
from timewright.core.workflow.checks import decode_workflow, validate
from timewright.core.workflow.expression import holds
from timewright.core.workflow.grammar import parse_condition
from timewright.core.workflow.input import items_of, resolve_input, with_input
from timewright.core.workflow.spec import (
    MAX_EDGES,
    MAX_STEPS,
    Each,
    RunIf,
    Step,
    WorkflowSpec,
    layers,
    successors,
)
from timewright.errors import NotFound

__all__ = [
    "MAX_EDGES",
    "MAX_STEPS",
    "Advance",
    "Each",
    "Progress",
    "RunIf",
    "Skipped",
    "Step",
    "Verdict",
    "WorkflowSpec",
    "decode_workflow",
    "fate",
    "graph",
    "items_of",
    "layers",
    "ready",
    "resolve_input",
    "successors",
    "validate",
    "verdict",
    "with_input",
]

MOST_DRAWN = 200
NOTHING: Mapping[str, Any] = {}


class Verdict(StrEnum):
    """How a workflow run stands; parked means that only a person can move it on."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PARKED = "parked"


class Skipped(Struct, frozen=True):
    """A step that will not run, and why."""

    name: str
    why: str


class Advance(Struct, frozen=True):
    """What a change sets free: steps to start, and steps to record as skipped, in order."""

    start: tuple[Step, ...] = ()
    skip: tuple[Skipped, ...] = ()


class Progress:
    """Where a run of a workflow stands.

    It counts what each step still waits for, so a finished step costs as much as it has successors,
    and a whole run as much as there are steps and needs.
    """

    def __init__(
        self,
        spec: WorkflowSpec,
        states: Mapping[str, RunState] = NOTHING,
        results: Mapping[str, Any] = NOTHING,
        *,
        given: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.spec = spec
        self.successors = successors(spec)
        self._steps = {step.name: step for step in spec.steps}
        self.states = {name: state for name, state in states.items() if name in self._steps}
        told = {name: {"state": state.value, "result": results.get(name)} for name, state in states.items()}
        self._scope: dict[str, Any] = {"steps": told, "input": spec.given(given)}
        self._waits = {step.name: sum(self._is_open(need) for need in step.needs) for step in spec.steps}

    def ready(self) -> Advance:
        """Everything that may start now and has not, and everything that never will."""
        return self._look_at(step.name for step in self.spec.steps)

    def ready_after(self, name: str, state: RunState, result: Any = None) -> Advance:
        """What the new state of one step sets free; a step that was settled before sets nothing free."""
        if name not in self._steps:
            raise NotFound(f"no step {name!r}", field="step", value=name, rule="a step of this workflow")
        if not self._note(name, state, result):
            return Advance()
        return self._look_at(self.successors[name])

    @property
    def verdict(self) -> Verdict:
        """How the run stands."""
        return _verdict(Counter(self.states.values()), len(self._steps))

    def _is_open(self, name: str) -> bool:
        return self.states.get(name) not in TERMINAL

    def _note(self, name: str, state: RunState, result: Any) -> bool:
        """Write down a state; whether this settled the step."""
        if not self._is_open(name):
            return False
        self.states[name] = state
        self._scope["steps"][name] = {"state": state.value, "result": result}
        if state not in TERMINAL:
            return False
        for later in self.successors[name]:
            self._waits[later] -= 1
        return True

    def _look_at(self, names: Iterable[str]) -> Advance:
        start: list[Step] = []
        skip: list[Skipped] = []
        pending = deque(names)
        seen: set[str] = set()
        while pending:
            step = self._steps[pending.popleft()]
            if self._waits[step.name] or step.name in self.states or step.name in seen:
                continue
            seen.add(step.name)
            why = fate(step, self.states, self._scope)
            if why is None:
                start.append(step)
            else:
                skip.append(Skipped(step.name, why))
                self._note(step.name, RunState.SKIPPED, None)
                pending.extend(self.successors[step.name])
        return Advance(tuple(start), tuple(skip))


def fate(step: Step, states: Mapping[str, RunState], scope: Mapping[str, Any]) -> str | None:
    """Why a step whose needs are all settled is skipped; nothing if it may start."""
    unlike = next((need for need in step.needs if states[need] is not RunState.SUCCEEDED), None)
    if step.run_if is RunIf.SUCCEEDED and unlike is not None:
        return f"needs {unlike}, which is {states[unlike]}"
    if step.run_if is RunIf.ANY and all(states[need] is not RunState.SUCCEEDED for need in step.needs):
        return "none of its needs succeeded"
    if step.when is not None and not holds(parse_condition(step.when), scope):
        return f"when {step.when} does not hold"
    return None


def ready(
    spec: WorkflowSpec,
    states: Mapping[str, RunState],
    results: Mapping[str, Any] = NOTHING,
    *,
    given: Mapping[str, Any] = NOTHING,
) -> tuple[Step, ...]:
    """The steps that may start now and have not, in the order they are written."""
    started = Progress(spec, states, results, given=given).ready().start
    order = {step.name: n for n, step in enumerate(spec.steps)}
    return tuple(sorted(started, key=lambda step: order[step.name]))


def verdict(spec: WorkflowSpec, states: Mapping[str, RunState]) -> Verdict:
    """How a run stands, given the states of its steps, skipped ones included."""
    return _verdict(Counter(states[step.name] for step in spec.steps if step.name in states), len(spec.steps))


def _verdict(counts: Mapping[RunState, int], steps: int) -> Verdict:
    settled = sum(counts.get(state, 0) for state in TERMINAL)
    if settled < steps:
        moving = sum(counts.get(state, 0) for state in (RunState.READY, RunState.HELD, RunState.LEASED))
        return Verdict.PARKED if counts.get(RunState.PARKED) and not moving else Verdict.RUNNING
    if counts.get(RunState.FAILED):
        return Verdict.FAILED
    return Verdict.CANCELLED if counts.get(RunState.CANCELLED) else Verdict.SUCCEEDED


def graph(spec: WorkflowSpec, *, states: Mapping[str, str] | None = None) -> str:
    """The workflow as text: a line a step, by layers, with its state in a run, its needs, when it runs."""
    rows = [(n, step) for n, layer in enumerate(layers(spec), start=1) for step in layer]
    edges = sum(len(step.needs) for step in spec.steps)
    depth = rows[-1][0] if rows else 0
    lines = [f"{spec.name} v{spec.version}: {len(spec.steps)} steps, {edges} needs, {depth} layers"]
    wide = max((len(step.name) for _, step in rows[:MOST_DRAWN]), default=0)
    told = max((len(state) for state in (states or {}).values()), default=0)
    last = 0
    for layer, step in rows[:MOST_DRAWN]:
        label = f"{layer:>3} " if layer != last else "    "
        state = f"{(states or {}).get(step.name, ''):<{told}}  " if told else ""
        lines.append(f"{label}{step.name:<{wide}}  {state}{_drawn(step)}".rstrip())
        last = layer
    if len(rows) > MOST_DRAWN:
        lines.append(f"    … and {len(rows) - MOST_DRAWN} more")
    return "\n".join(lines)


def _drawn(step: Step) -> str:
    parts = []
    if step.needs:
        more = f" and {len(step.needs) - 5} more" if len(step.needs) > 5 else ""
        parts.append(f"← {', '.join(step.needs[:5])}{more}")
    if step.run_if is not RunIf.SUCCEEDED:
        parts.append(f"if {step.run_if}")
    if step.when is not None:
        parts.append(f"when {step.when}")
    if step.each is not None:
        parts.append(f"for each of {step.each.source}")
    return "  ".join(parts)
