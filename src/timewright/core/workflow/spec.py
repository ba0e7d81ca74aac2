"""The definition of a workflow: steps, their needs, conditions and input.

A reference is `{"$from": "steps.fetch.result.items"}`, with an optional `default` for a missing value. It is
used in a step's `input` and refers to a needed step, to the workflow's `input`, or to the `item` of a step
with `each`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.input.input_errors import join_path
from timewright.core.policies.limits import MAX_LIMITS, LimitUse
from timewright.core.policies.policies import Retry
from timewright.core.target import AnyTarget, Handoff, Http, Workflow
from timewright.core.workflow.waits import Wait

MAX_STEPS = 10_000
MAX_EDGES = 50_000
MAX_ITEMS = 10_000
MAX_SCHEDULES = 100
MAX_INPUT_DEPTH = 32

REFERENCE_KEY = "$from"
DEFAULT_KEY = "default"
STEP_FIELDS = ("result", "state", "error", "attempts")

_ONCE = Retry(max_attempts=1)


class RunIf(StrEnum):
    """The required states of a step's needs."""

    SUCCEEDED = "succeeded"
    ANY = "any"
    FAILED = "failed"
    ALWAYS = "always"


class Each(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": REFERENCE_KEY}):
    """Fan-out: one run of the step for every item of a list that is resolved when the step starts.

    `max_running` limits how many of them run at the same time, counted over all runs of the workflow.
    """

    source: str
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 100
    max_running: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] | None = None


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a workflow: its target or what it waits for, its needs, conditions and policies."""

    name: str
    target: AnyTarget = Handoff()
    wait: Wait | None = None
    needs: tuple[str, ...] = ()
    run_if: RunIf = RunIf.SUCCEEDED
    when: str | None = None
    each: Each | None = None
    input: dict[str, Any] = {}
    retry: Retry | None = None
    time_limit: timedelta | None = None
    lease: timedelta | None = None
    limits: Annotated[tuple[LimitUse, ...], Meta(max_length=MAX_LIMITS)] = ()
    description: Annotated[str, Meta(max_length=10_000)] = ""

    @property
    def is_cleanup(self) -> bool:
        """Whether it also runs after the workflow was cancelled."""
        return self.run_if in (RunIf.FAILED, RunIf.ALWAYS)

    @property
    def effective_retry(self) -> Retry:
        """Its retry policy; a step that starts a workflow is attempted once: that workflow's steps retry."""
        if self.retry is not None:
            return self.retry
        return _ONCE if isinstance(self.target, Workflow) else Retry()


class WorkflowSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow (DAG) with a name and a version; `schedules` are decoded when it is deployed.

    A run fails after its `time_limit`, and at its `deadline`, which counts from its planned time.
    """

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    version: Annotated[int, Meta(ge=1)] = 1
    description: Annotated[str, Meta(max_length=10_000)] = ""
    steps: tuple[Step, ...]
    input: dict[str, Any] = {}
    time_limit: timedelta | None = None
    deadline: timedelta | None = None
    executor: Http | None = None
    schedules: tuple[dict[str, Any], ...] = ()

    def merge_input(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of one run: the given values override the defaults."""
        return {**self.input, **values}


def each_limits(spec: WorkflowSpec, namespace: str) -> dict[str, int]:
    """The limits of the steps with `each` and `max_running`, by their key."""
    return {
        each_limit_key(namespace, spec.name, step.name): step.each.max_running
        for step in spec.steps
        if step.each is not None and step.each.max_running is not None
    }


def each_limit_key(namespace: str, workflow: str, step: str) -> str:
    """The key of the limit on the items of a step with `each`."""
    return f"each:{namespace}/{workflow}.{step}"


def is_reference(value: Any) -> bool:
    """Whether a value is a `$from` reference."""
    return isinstance(value, dict) and REFERENCE_KEY in value


def iter_leaves(data: Any, where: str) -> Iterator[tuple[Any, str]]:
    """Yield every reference and every single value in JSON data, with its path."""
    pending = [(data, where)]
    while pending:
        value, at = pending.pop()
        if isinstance(value, dict) and REFERENCE_KEY not in value:
            pending.extend((item, join_path(at, name)) for name, item in value.items())
        elif isinstance(value, list | tuple):
            pending.extend((item, f"{at}[{n}]") for n, item in enumerate(value))
        else:
            yield value, at


def successors(spec: WorkflowSpec) -> dict[str, tuple[str, ...]]:
    """Return for every step the steps that need it, in the order of the definition."""
    found: dict[str, list[str]] = {step.name: [] for step in spec.steps}
    for step in spec.steps:
        for need in step.needs:
            found[need].append(step.name)
    return {name: tuple(after) for name, after in found.items()}


def layers(spec: WorkflowSpec) -> tuple[tuple[Step, ...], ...]:
    """Return the steps by their distance from the start; steps of a cycle are in no layer."""
    by_name = {step.name: step for step in spec.steps}
    waiting = {step.name: len(step.needs) for step in spec.steps}
    after = successors(spec)
    found: list[tuple[Step, ...]] = []
    layer = [step.name for step in spec.steps if not step.needs]
    while layer:
        found.append(tuple(by_name[name] for name in layer))
        following: list[str] = []
        for name in (later for done in layer for later in after[done]):
            waiting[name] -= 1
            if not waiting[name]:
                following.append(name)
        layer = following
    return tuple(found)
