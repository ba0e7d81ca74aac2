"""A workflow as it is written: steps, what they need, when they run, and what they are given.

A reference is `{"$from": "steps.fetch.result.items"}`, with a `default` beside it if the value may be
missing. It stands in a step's `input` and names a step the step needs, the workflow's own `input`, or
the `item` of a step that runs for each of a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from timewright.core.policies import Retry
from timewright.core.target import AnyTarget, Http, Workflow

MAX_STEPS = 10_000
MAX_EDGES = 50_000
MAX_ITEMS = 10_000
MAX_SCHEDULES = 100
DEEPEST_INPUT = 32

REFERENCE = "$from"
DEFAULT = "default"

_ONCE = Retry(max_attempts=1)


class RunIf(StrEnum):
    """What must have become of a step's needs before it runs."""

    SUCCEEDED = "succeeded"
    ANY = "any"
    ALWAYS = "always"


class Each(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": REFERENCE}):
    """One run of the step for every item of a list that is found when the step starts."""

    source: str
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 100


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target of a workflow, and everything that decides whether and how it runs."""

    name: str
    target: AnyTarget
    needs: tuple[str, ...] = ()
    run_if: RunIf = RunIf.SUCCEEDED
    when: str | None = None
    each: Each | None = None
    input: dict[str, Any] = {}
    retry: Retry | None = None
    time_limit: timedelta | None = None
    description: Annotated[str, Meta(max_length=10_000)] = ""

    @property
    def attempted_under(self) -> Retry:
        """Its retry policy; a step that starts a workflow leaves retrying to that workflow's steps."""
        if self.retry is not None:
            return self.retry
        return _ONCE if isinstance(self.target, Workflow) else Retry()


class WorkflowSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DAG under a name and a version; `schedules` are kept as written until it is deployed."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    version: Annotated[int, Meta(ge=1)] = 1
    description: Annotated[str, Meta(max_length=10_000)] = ""
    steps: tuple[Step, ...]
    input: dict[str, Any] = {}
    time_limit: timedelta | None = None
    executor: Http | None = None
    schedules: tuple[dict[str, Any], ...] = ()

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The input of one run: what was handed in, over what is written here."""
        return {**self.input, **values}


def is_reference(value: Any) -> bool:
    """Whether this is to be replaced by something found elsewhere."""
    return isinstance(value, dict) and REFERENCE in value


def leaves(data: Any, where: str) -> Iterator[tuple[Any, str]]:
    """Every reference and every single value in plain data, with the path to it."""
    pending = [(data, where)]
    while pending:
        value, at = pending.pop()
        if isinstance(value, dict) and REFERENCE not in value:
            pending.extend((item, f"{at}.{name}") for name, item in value.items())
        elif isinstance(value, list | tuple):
            pending.extend((item, f"{at}[{n}]") for n, item in enumerate(value))
        else:
            yield value, at


def successors(spec: WorkflowSpec) -> dict[str, tuple[str, ...]]:
    """For every step, those that need it, in the order they are written."""
    found: dict[str, list[str]] = {step.name: [] for step in spec.steps}
    for step in spec.steps:
        for need in step.needs:
            found[need].append(step.name)
    return {name: tuple(after) for name, after in found.items()}


def layers(spec: WorkflowSpec) -> tuple[tuple[Step, ...], ...]:
    """The steps by how far from the start they are; those of a cycle are in none."""
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
