"""The definition of a workflow: steps, their needs, conditions, waits and input; and its graph.

A reference is `{"$from": "steps.fetch.result.items"}`, with an optional `default` for a missing value. It is
used in a step's `input` and refers to a needed step, to the workflow's `input`, or to the `item` of a step
with `each`. A step that waits for a person's answer or for an event has no lease and no attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from timewright.core.input.input_errors import join_path
from timewright.core.policies.limits import MAX_LIMITS, LimitUse
from timewright.core.policies.policies import Retry
from timewright.core.run.run import RunState
from timewright.core.target import AnyTarget, Handoff, Http, Workflow
from timewright.core.workflow.expression import evaluate_condition
from timewright.core.workflow.grammar import parse_condition
from timewright.errors import InvalidInput

EVENT_ROOTS = ("event", "input", "item")
MAX_FIELDS = 50
MAX_ANSWER_BYTES = 64 * 1024
FAIL = "fail"

FieldType = Literal["text", "number", "boolean", "choice"]
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "choice": (str,),
    "integer": (int,),
    "list": (list, tuple),
    "object": (dict,),
    "any": (object,),
}
_EXAMPLES = {"text": "TEXT", "number": "1.5", "boolean": "true", "choice": "TEXT"}
InputType = Literal["text", "integer", "number", "boolean", "list", "object", "any"]
_INPUT_EXAMPLES = {**_EXAMPLES, "integer": "1", "list": "[…]", "object": "{…}", "any": "…"}
MAX_STEPS = 10_000
MAX_EDGES = 50_000
MAX_ITEMS = 10_000
MAX_SCHEDULES = 100
MAX_INPUT_DEPTH = 32
REFERENCE_KEY = "$from"
DEFAULT_KEY = "default"
STEP_FIELDS = ("result", "state", "error", "attempts")
MAX_DRAWN = 200
_ONCE = Retry(max_attempts=1)
_FAILED_STATES = (RunState.FAILED, RunState.CANCELLED)


class FormField(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of a form. `text` and a list of choices may be written instead of the object."""

    type: FieldType = "text"
    choices: tuple[str, ...] = ()
    required: bool = True
    label: Annotated[str, Meta(max_length=255)] = ""


class AnswerRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer of a person: whom it is meant for, and its form. Without a form, any value is an answer."""

    to: Annotated[str, Meta(max_length=255)] = ""
    form: Annotated[dict[str, FormField], Meta(max_length=MAX_FIELDS)] = {}


class EventMatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event by name, if `match` is true: an expression over `event`, the workflow's `input` and `item`."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    match: str | None = None


class Wait(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"otherwise": "else"}):
    """What a step waits for. After `until` the step fails, or has the object in `else` as its result."""

    answer: AnswerRequest | None = None
    event: EventMatch | None = None
    until: timedelta | None = None
    otherwise: Any = FAIL


def expand_wait(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Expand the short forms of a step's `wait`: a type or choices instead of a field."""
    wait = raw["wait"]
    answer = wait.get("answer") if isinstance(wait, dict) else None
    form = answer.get("form") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(form, dict):
        return dict(raw)
    fields = {name: _expand_field(value) for name, value in form.items()}
    return {**raw, "wait": {**wait, "answer": {**answer, "form": fields}}}


def _expand_field(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return {"type": "choice", "choices": list(value)}
    return {"type": value} if isinstance(value, str) else value


def check_answer(request: AnswerRequest, answer: Any) -> None:
    """Refuse an answer that does not fit the form."""
    size = len(msgspec.json.encode(answer))
    if size > MAX_ANSWER_BYTES:
        raise InvalidInput(
            f"the answer has {size} bytes",
            field="answer",
            value=size,
            rule=f"at most {MAX_ANSWER_BYTES >> 10} KiB",
            fix="answer with the location of the data",
        )
    if not request.form:
        return
    if not isinstance(answer, dict):
        raise _answer_error(
            "", f"the answer is {_short(answer)}", "an object with the fields of the form", request
        )
    for name in answer:
        if name not in request.form:
            raise _answer_error(
                name, f"the answer has an unknown field {name!r}", "a field of the form", request
            )
    for name, field in request.form.items():
        value = answer.get(name)
        if value is None:
            if field.required:
                raise _answer_error(name, f"the answer lacks {name!r}", "a required field", request)
            continue
        if not _has_type(value, field.type) or (field.choices and value not in field.choices):
            rule = f"one of {', '.join(field.choices)}" if field.choices else f"a {field.type}"
            raise _answer_error(name, f"{name!r} of the answer is {_short(value)}", rule, request)


def matches_event(match: EventMatch, name: str, scope: Mapping[str, Any]) -> bool:
    """Whether an event ends a wait."""
    if match.name != name:
        return False
    return match.match is None or evaluate_condition(parse_match(match.match), scope)


def parse_match(text: str) -> Any:
    """Parse the condition on an event."""
    return parse_condition(text, field="match", roots=EVENT_ROOTS)


def _answer_error(name: str, message: str, rule: str, request: AnswerRequest) -> InvalidInput:
    values = {one: "|".join(field.choices) or _EXAMPLES[field.type] for one, field in request.form.items()}
    return InvalidInput(
        message,
        field=f"answer.{name}" if name else "answer",
        rule=rule,
        fix=f"{{{', '.join(f'{one}: {value}' for one, value in values.items())}}}",
    )


def _has_type(value: Any, name: str) -> bool:
    is_right = isinstance(value, _PYTHON_TYPES[name])
    return is_right and (name in ("boolean", "any") or not isinstance(value, bool))


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:64]


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

    `input` has the defaults of the input. With `input_types`, a run has no other input than these, of these
    types, and those without a default are required. A run fails after its `time_limit`, and at its
    `deadline`, which counts from its planned time.
    """

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    version: Annotated[int, Meta(ge=1)] = 1
    description: Annotated[str, Meta(max_length=10_000)] = ""
    steps: tuple[Step, ...]
    input: dict[str, Any] = {}
    input_types: Annotated[dict[str, InputType], Meta(max_length=MAX_FIELDS)] = {}
    time_limit: timedelta | None = None
    deadline: timedelta | None = None
    executor: Http | None = None
    schedules: tuple[dict[str, Any], ...] = ()

    def merge_input(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of one run: the given values override the defaults. Refuse a wrong one."""
        for name in self.input_types.keys() - self.input.keys() - values.keys():
            raise self._input_error(name, "is missing", self.input_types[name])
        self.check_input_types(values)
        return {**self.input, **values}

    def check_input_types(self, values: Mapping[str, Any]) -> None:
        """Refuse an input that is unknown or has another type; null is accepted where it is the default."""
        for name, value in values.items() if self.input_types else ():
            kind = self.input_types.get(name)
            if kind is None:
                raise self._input_error(name, "is not known", f"one of {', '.join(self.input_types)}")
            if not _has_type(value, kind) and not (value is None and self.input.get(name, value) is None):
                raise self._input_error(name, f"is {_short(value)}", kind)

    def _input_error(self, name: str, what: str, rule: str) -> InvalidInput:
        values = [f"{one}: {_INPUT_EXAMPLES[kind]}" for one, kind in self.input_types.items()]
        return InvalidInput(
            f"input {name} of workflow {self.name} {what}",
            field=f"input.{name}",
            rule=rule,
            fix=f"input: {{{', '.join(values)}}}",
        )


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
