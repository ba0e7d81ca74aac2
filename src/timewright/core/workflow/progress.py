"""The progress of a workflow run: which steps may start, which are skipped, and the status of the whole.

A step is evaluated when all steps it needs are finished. It starts if its `run_if` matches their states and
its `when` condition is true; otherwise it is skipped, which counts as finished for the steps that need it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from timewright.core.run.run import TERMINAL_STATES, RunState
from timewright.core.workflow.expression import evaluate_condition
from timewright.core.workflow.grammar import parse_condition
from timewright.core.workflow.spec import RunIf, Step, WorkflowSpec, layers, successors
from timewright.core.workflow.step_input import NO_VALUES
from timewright.errors import NotFound

MAX_DRAWN = 200
_FAILED_STATES = (RunState.FAILED, RunState.CANCELLED)


class WorkflowStatus(StrEnum):
    """The status of a workflow run; parked means that only a person can continue it."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PARKED = "parked"


class SkippedStep(Struct, frozen=True):
    """A skipped step, and why."""

    name: str
    why: str


class StepChanges(Struct, frozen=True):
    """The effect of a state change: steps to start, and steps to record as skipped, in order."""

    start: tuple[Step, ...] = ()
    skip: tuple[SkippedStep, ...] = ()


class WorkflowProgress:
    """The progress of one workflow run.

    It counts the unfinished needs of each step, so a finished step costs time proportional to its successors,
    and a whole run to the number of steps and needs.
    """

    def __init__(
        self,
        spec: WorkflowSpec,
        states: Mapping[str, RunState] = NO_VALUES,
        results: Mapping[str, Any] = NO_VALUES,
        *,
        given: Mapping[str, Any] = NO_VALUES,
    ) -> None:
        self.spec = spec
        self.successors = successors(spec)
        self._steps = {step.name: step for step in spec.steps}
        self.states = {name: state for name, state in states.items() if name in self._steps}
        known = {name: {"state": state.value, "result": results.get(name)} for name, state in states.items()}
        self._scope: dict[str, Any] = {"steps": known, "input": spec.merge_input(given)}
        self._open_needs = {
            step.name: sum(self._is_unfinished(need) for need in step.needs) for step in spec.steps
        }

    def ready(self) -> StepChanges:
        """Return all steps that may start now, and all that are skipped."""
        return self._evaluate(step.name for step in self.spec.steps)

    def ready_after(self, name: str, state: RunState, result: Any = None) -> StepChanges:
        """Return the effect of one step's new state; none if the step was finished before."""
        if name not in self._steps:
            raise NotFound(f"no step {name!r}", field="step", value=name, rule="a step of this workflow")
        if not self._record(name, state, result):
            return StepChanges()
        return self._evaluate(self.successors[name])

    @property
    def status(self) -> WorkflowStatus:
        """The status of the run."""
        return _status(Counter(self.states.values()), len(self._steps))

    def _is_unfinished(self, name: str) -> bool:
        return self.states.get(name) not in TERMINAL_STATES

    def _record(self, name: str, state: RunState, result: Any) -> bool:
        """Record a state; returns whether it finished the step."""
        if not self._is_unfinished(name):
            return False
        self.states[name] = state
        self._scope["steps"][name] = {"state": state.value, "result": result}
        if state not in TERMINAL_STATES:
            return False
        for later in self.successors[name]:
            self._open_needs[later] -= 1
        return True

    def _evaluate(self, names: Iterable[str]) -> StepChanges:
        start: list[Step] = []
        skip: list[SkippedStep] = []
        pending = deque(names)
        seen: set[str] = set()
        while pending:
            step = self._steps[pending.popleft()]
            if self._open_needs[step.name] or step.name in self.states or step.name in seen:
                continue
            seen.add(step.name)
            why = skip_reason(step, self.states, self._scope)
            if why is None:
                start.append(step)
            else:
                skip.append(SkippedStep(step.name, why))
                self._record(step.name, RunState.SKIPPED, None)
                pending.extend(self.successors[step.name])
        return StepChanges(tuple(start), tuple(skip))


def skip_reason(step: Step, states: Mapping[str, RunState], scope: Mapping[str, Any]) -> str | None:
    """Return why a step whose needs are finished is skipped; None if it may start."""
    failed = next((need for need in step.needs if states[need] is not RunState.SUCCEEDED), None)
    if step.run_if is RunIf.SUCCEEDED and failed is not None:
        return f"needs {failed}, which is {states[failed]}"
    if step.run_if is RunIf.ANY and all(states[need] is not RunState.SUCCEEDED for need in step.needs):
        return "none of its needs succeeded"
    if step.run_if is RunIf.FAILED and all(states[need] not in _FAILED_STATES for need in step.needs):
        return "none of its needs failed"
    if step.when is not None and not evaluate_condition(parse_condition(step.when), scope):
        return f"when {step.when} is false"
    return None


def ready_steps(
    spec: WorkflowSpec,
    states: Mapping[str, RunState],
    results: Mapping[str, Any] = NO_VALUES,
    *,
    given: Mapping[str, Any] = NO_VALUES,
) -> tuple[Step, ...]:
    """Return the steps that may start now, in the order of the definition."""
    started = WorkflowProgress(spec, states, results, given=given).ready().start
    order = {step.name: n for n, step in enumerate(spec.steps)}
    return tuple(sorted(started, key=lambda step: order[step.name]))


def workflow_status(spec: WorkflowSpec, states: Mapping[str, RunState]) -> WorkflowStatus:
    """Return the status of a run from the states of its steps, including skipped ones."""
    return _status(Counter(states[step.name] for step in spec.steps if step.name in states), len(spec.steps))


def _status(counts: Mapping[RunState, int], steps: int) -> WorkflowStatus:
    settled = sum(counts.get(state, 0) for state in TERMINAL_STATES)
    if settled < steps:
        moving = sum(counts.get(state, 0) for state in (RunState.READY, RunState.HELD, RunState.LEASED))
        return WorkflowStatus.PARKED if counts.get(RunState.PARKED) and not moving else WorkflowStatus.RUNNING
    if counts.get(RunState.FAILED):
        return WorkflowStatus.FAILED
    return WorkflowStatus.CANCELLED if counts.get(RunState.CANCELLED) else WorkflowStatus.SUCCEEDED


def render_graph(spec: WorkflowSpec, *, states: Mapping[str, str] | None = None) -> str:
    """Return the workflow as text: one line per step, by layer, with its state, needs and conditions."""
    rows = [(n, step) for n, layer in enumerate(layers(spec), start=1) for step in layer]
    edges = sum(len(step.needs) for step in spec.steps)
    depth = rows[-1][0] if rows else 0
    lines = [f"{spec.name} v{spec.version}: {len(spec.steps)} steps, {edges} needs, {depth} layers"]
    name_width = max((len(step.name) for _, step in rows[:MAX_DRAWN]), default=0)
    state_width = max((len(state) for state in (states or {}).values()), default=0)
    last = 0
    for layer, step in rows[:MAX_DRAWN]:
        label = f"{layer:>3} " if layer != last else "    "
        state = f"{(states or {}).get(step.name, ''):<{state_width}}  " if state_width else ""
        lines.append(f"{label}{step.name:<{name_width}}  {state}{_describe_step(step)}".rstrip())
        last = layer
    if len(rows) > MAX_DRAWN:
        lines.append(f"    … and {len(rows) - MAX_DRAWN} more")
    return "\n".join(lines)


def _describe_step(step: Step) -> str:
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
