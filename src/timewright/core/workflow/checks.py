"""Validates workflow definitions; every error names the path."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from timewright.core.input.aliases import FIELD_ALIASES
from timewright.core.input.scalars import check_size
from timewright.core.input.struct_decoder import read_value, type_info
from timewright.core.moments import ZERO, check_duration, format_duration
from timewright.core.target import DATA_FIELDS, AnyTarget, Http, Note, Workflow
from timewright.core.workflow import (
    DEFAULT_KEY,
    FAIL,
    MAX_EDGES,
    MAX_INPUT_DEPTH,
    MAX_SCHEDULES,
    MAX_STEPS,
    REFERENCE_KEY,
    STEP_FIELDS,
    RunIf,
    Step,
    Wait,
    WorkflowSpec,
    expand_wait,
    is_reference,
    iter_leaves,
    layers,
)
from timewright.core.workflow.expression import ValuePath, iter_paths
from timewright.core.workflow.step_input import (
    StepExpression,
    may_have_templates,
    step_expressions,
    with_implied_needs,
)
from timewright.errors import InvalidWorkflow, TimewrightError

MAX_PARTS = 500_000
MAX_WORKFLOW_DEPTH = MAX_INPUT_DEPTH + 6
MAX_CYCLE_SHOWN = 10
MAX_COMPARED = 1_000
MAX_SHOWN = 12

# Other workflow engines call them triggers, of the type `schedule_based`.
FIELD_ALIASES[WorkflowSpec] = {"triggers": ("schedules",)}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_TEMPLATE = re.compile(r"(?:\{\{|\$\{|\$\()\s*(?:steps|input|item|run|schedule)\b")
# Forms of templates that other tools have, and that would be passed on as they are.
_OTHER_TEMPLATE = re.compile(r"(?:\$\{|\$\()\s*(?:steps|input|item|run|schedule)\b")
# Fields of a target with data. The others decide what is called, so they must not contain references.
_DATA = frozenset(DATA_FIELDS.values())
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def decode_workflow(raw: Any) -> WorkflowSpec:
    """Decode and validate a workflow, or raise InvalidWorkflow."""
    if not isinstance(raw, dict):
        rule = "an object with a name and steps"
        raise _error(
            "workflow", f"a {type(raw).__name__} is not a workflow", rule=rule, fix="{name: …, steps: […]}"
        )
    steps = raw.get("steps")
    if isinstance(steps, list | tuple):
        needs = [step.get("needs") for step in steps if isinstance(step, dict)]
        _check_counts(len(steps), edges=sum(len(one) for one in needs if isinstance(one, list | tuple)))
        raw = {**raw, "steps": [_with_target_or_wait(step, n) for n, step in enumerate(steps)]}
    depth, parts = MAX_WORKFLOW_DEPTH, MAX_PARTS
    check_size(raw, max_depth=depth, max_parts=parts, error_type=InvalidWorkflow, locate=True)
    try:
        spec: WorkflowSpec = read_value(raw, type_info(WorkflowSpec), "")
    except TimewrightError:
        _check_raw_targets(steps if isinstance(steps, list | tuple) else ())
        raise
    spec = with_implied_needs(spec)
    validate(spec)
    return spec


def _with_target_or_wait(raw: Any, number: int) -> Any:
    """Check that a step has either a target or a wait, and expand the short forms of the wait."""
    if not isinstance(raw, dict) or "wait" not in raw:
        if isinstance(raw, dict) and "target" not in raw:
            rule = "a step has a target, or a wait"
            raise _error(f"steps[{number}].target", "target is missing", rule=rule, fix="target: load")
        return raw
    for name in ("target", "retry", "time_limit", "lease", "limits"):
        if name in raw:
            rule = "a step that waits has no target, lease, limits or attempts"
            fix = "wait: {until: 2d}" if name == "time_limit" else f"leave {name} out, or wait"
            raise _error(f"steps[{number}].{name}", f"{name} next to wait", rule=rule, fix=fix)
    return expand_wait(raw)


def validate(spec: WorkflowSpec) -> None:
    """Refuse a workflow that cannot run, or whose targets depend on results of other steps."""
    _check_counts(len(spec.steps), edges=sum(len(step.needs) for step in spec.steps))
    _check_workflow(spec)
    known = _check_names(spec)
    for n, step in enumerate(spec.steps):
        where = f"steps[{n}]"
        _check_data(step, where)
        _check_needs(step, where, known)
        _check_limits(step, where, spec.time_limit)
        if step.wait is not None:
            _check_wait(step.wait, f"{where}.wait")
        _check_references(step, where, known)
    _check_no_cycle(spec)


def _error(where: str, message: str, *, rule: str, fix: str, value: object = None) -> InvalidWorkflow:
    return InvalidWorkflow(f"{where}: {message}", field=where, value=value, rule=rule, fix=fix)


def _check_counts(steps: int, *, edges: int) -> None:
    if not 1 <= steps <= MAX_STEPS:
        rule = f"1 to {MAX_STEPS} steps"
        fix = "split it into several workflows" if steps else "add a step: {name: load, target: load}"
        raise _error("steps", f"{steps} steps", value=steps, rule=rule, fix=fix)
    if edges > MAX_EDGES:
        fix = "add a step that needs many steps, and let later steps need only that one"
        rule, message = f"at most {MAX_EDGES} needs in all", f"{edges} needs in all are too many"
        raise _error("steps", message, value=edges, rule=rule, fix=fix)


def _check_workflow(spec: WorkflowSpec) -> None:
    for value, where in iter_leaves(spec.input, "input"):
        if is_reference(value):
            rule = "references may point to the workflow's input, so it cannot contain any"
            raise _error(where, "a reference", rule=rule, fix="a value")
    spec.check_input_types(spec.input)
    if len(spec.schedules) > MAX_SCHEDULES:
        rule, fix = f"at most {MAX_SCHEDULES} schedules", "create the schedules separately"
        raise _error("schedules", f"{len(spec.schedules)} schedules", rule=rule, fix=fix)
    if spec.executor is not None:
        _check_no_references(_fields(spec.executor), "executor")
    for name, limit in (("time_limit", spec.time_limit), ("deadline", spec.deadline)):
        if limit is not None:
            _check_time(name, limit)


def _check_names(spec: WorkflowSpec) -> dict[str, int]:
    """Return every name and its position; names that differ only in case are refused."""
    known: dict[str, int] = {}
    folded: dict[str, int] = {}
    for n, step in enumerate(spec.steps):
        where = f"steps[{n}].name"
        if not _NAME.fullmatch(step.name):
            rule = "a letter or _, then letters, digits, _ or -, at most 64 in all"
            shown = step.name[:64]
            raise _error(where, f"{shown!r} is not a valid name", value=shown, rule=rule, fix="fetch_orders")
        other = folded.setdefault(step.name.lower(), n)
        if other != n:
            message = f"{step.name!r} is already the name of steps[{other}]"
            if spec.steps[other].name != step.name:
                message = f"{step.name!r} differs from steps[{other}] {spec.steps[other].name!r} only in case"
            raise _error(where, message, value=step.name, rule="names are unique", fix=f"{step.name}_2")
        known[step.name] = n
    return known


def _check_needs(step: Step, where: str, known: dict[str, int]) -> None:
    seen: set[str] = set()
    for n, need in enumerate(step.needs):
        at = f"{where}.needs[{n}]"
        if need == step.name:
            raise _error(
                at, "the step needs itself", value=need, rule="a step cannot need itself", fix="leave it out"
            )
        if need not in known:
            message, rule = f"there is no step {need[:64]!r}", "needs must be names of steps in this workflow"
            raise _error(at, message, value=need[:64], rule=rule, fix=_nearest(need, known))
        if need in seen:
            raise _error(
                at, f"{need!r} is named twice", value=need, rule="needs are unique", fix="leave it out"
            )
        seen.add(need)
    if step.run_if is not RunIf.SUCCEEDED and not step.needs:
        rule = "run_if is about the states of the needs"
        raise _error(
            f"{where}.run_if", "there are no needs", value=step.run_if.value, rule=rule, fix="add needs"
        )


def _check_limits(step: Step, where: str, workflow_limit: timedelta | None) -> None:
    at, limit = f"{where}.time_limit", step.time_limit
    if limit is not None:
        _check_time(at, limit)
        if workflow_limit is not None and limit > workflow_limit:
            message = (
                f"{format_duration(limit)} is more than the {format_duration(workflow_limit)} of the workflow"
            )
            rule = "a step's time limit is at most that of the workflow"
            raise _error(
                at, message, value=format_duration(limit), rule=rule, fix=format_duration(workflow_limit)
            )
        target = step.target
        if isinstance(target, Http) and target.timeout > limit and target.timeout != Http(url="-").timeout:
            message = f"{format_duration(target.timeout)} is more than the step's {format_duration(limit)}"
            rule = "the request timeout is at most the step's time limit"
            raise _error(f"{where}.target.timeout", message, rule=rule, fix=format_duration(limit))
    if isinstance(step.target, Workflow) and step.effective_retry.max_attempts > 1:
        rule = "a step that starts a workflow is attempted once; the steps of that workflow retry"
        at = f"{where}.retry.max_attempts"
        raise _error(at, "nested retries", value=step.effective_retry.max_attempts, rule=rule, fix="1")


def _check_time(where: str, limit: timedelta) -> None:
    if _at_path(where, check_duration, limit) == ZERO:
        raise _error(where, "0s is too short", value="0s", rule="longer than zero", fix="5m")


def _check_wait(wait: Wait, where: str) -> None:
    """Refuse a wait that nothing can end, and a form that cannot work."""
    if wait.answer is None and wait.event is None and wait.until is None:
        raise _error(where, "it waits for nothing", rule="answer, event or until", fix="answer: {to: ops}")
    if wait.until is not None and wait.until <= timedelta(0):
        raise _error(f"{where}.until", "0s is too short", rule="longer than zero", fix="until: 2d")
    if wait.otherwise != FAIL and not isinstance(wait.otherwise, dict):
        at = f"{where}.else"
        raise _error(at, "not a result", rule="fail, or an object that becomes the result", fix="else: fail")
    for name, field in wait.answer.form.items() if wait.answer is not None else ():
        if (field.type == "choice") != bool(field.choices):
            raise _error(
                f"{where}.answer.form.{name}",
                f"a {field.type} {'without' if field.type == 'choice' else 'with'} choices",
                rule="choices belong to the type choice",
                fix=f"{name}: [yes, no]",
            )


def _check_data(step: Step, where: str) -> None:
    """Check the data of a step."""
    fields = _fields(step.target)
    templated = {name for name, _ in fields if may_have_templates(step.target, name)}
    _check_no_references(fields, f"{where}.target", templated=templated)
    if step.input:
        _check_input_fits(step, where)


def _check_input_fits(step: Step, where: str) -> None:
    """Check that the input can be added to the target's data: an object without the same keys."""
    if isinstance(step.target, Note):
        rule = "a note has only its text"
        raise _error(f"{where}.input", "a note takes no input", rule=rule, fix="leave it out")
    name, data = next(((name, data) for name, data in _fields(step.target) if name in _DATA), ("env", {}))
    at = f"{where}.target.{name}"
    if data is not None and not isinstance(data, dict):
        rule = "input is added to an object"
        raise _error(at, "input can only be added to an object", rule=rule, fix=f"leave {name} out, or input")
    twice = sorted(set(step.input) & set(data or ()))
    if twice:
        rule = "a key may be in only one of the two"
        raise _error(
            at,
            f"{twice[0][:64]!r} is also in input",
            value=twice[0][:64],
            rule=rule,
            fix="remove one of them",
        )


def _check_raw_targets(steps: Sequence[Any]) -> None:
    """Report a reference in a target as such, instead of as a wrong type."""
    for n, step in enumerate(steps):
        target = step.get("target") if isinstance(step, dict) else None
        if isinstance(target, dict):
            _check_no_references(target.items(), f"steps[{n}].target")


def _check_no_references(
    fields: Iterable[tuple[str, Any]], where: str, *, templated: Container[str] = _DATA
) -> None:
    """Refuse references in a target, and templates in what decides what is called."""
    for name, value in fields:
        if not value or (name in _DATA and isinstance(value, str)):
            continue
        for leaf, at in iter_leaves(value, f"{where}.{name}"):
            refused = _OTHER_TEMPLATE if name in templated else _TEMPLATE
            is_template = isinstance(leaf, str) and name not in _DATA and refused.search(leaf)
            if is_template or is_reference(leaf):
                raise _error(
                    at,
                    "a reference or a template is not allowed here",
                    value=str(leaf)[:64],
                    rule="references go into a step's input, templates into url, headers, body, command, env",
                    fix=f"a fixed {name}, and the value in input",
                )


def _check_references(step: Step, where: str, known: dict[str, int]) -> None:
    for value, at in iter_leaves(step.input, f"{where}.input"):
        if is_reference(value):
            _check_reference(value, at)
    for one in step_expressions(step, f"{where}."):
        for path in iter_paths(_at_path(one.where, one.parse, one.text)):
            _check_path(path, one, step=step, known=known)


def _check_reference(written: dict[str, Any], where: str) -> None:
    extra = sorted(set(written) - {REFERENCE_KEY, DEFAULT_KEY})
    if extra or not isinstance(written[REFERENCE_KEY], str):
        rule = f"a reference has {REFERENCE_KEY}, a path, and may have {DEFAULT_KEY}"
        message = f"{extra[0][:64]!r} next to {REFERENCE_KEY}" if extra else f"{REFERENCE_KEY} is not a path"
        raise _error(where, message, rule=rule, fix='{"$from": "steps.fetch.result"}')


def _check_path(path: ValuePath, written: StepExpression, *, step: Step, known: dict[str, int]) -> None:
    where = written.where
    if path.root == "item" and not written.item:
        rule = "item is available only in a step with each, in its input, templates and match"
        raise _error(where, "item is not available here", value=str(path), rule=rule, fix="steps or input")
    if path.root != "steps":
        return
    if len(path.segments) < 3 or path.segments[2] not in STEP_FIELDS:
        rule = f"steps.NAME is followed by {', '.join(STEP_FIELDS[:-1])} or {STEP_FIELDS[-1]}"
        fix = f"steps.{path.step or 'fetch'}.{STEP_FIELDS[0]}"
        raise _error(where, f"{path} is incomplete", value=str(path), rule=rule, fix=fix)
    name = str(path.step)
    if name not in known:
        message, rule = f"there is no step {name[:64]!r}", "paths must name steps in this workflow"
        raise _error(where, message, value=name[:64], rule=rule, fix=_nearest(name, known))
    if name == step.name:
        rule = "a step refers to steps before it"
        raise _error(where, f"{name!r} refers to itself", value=name, rule=rule, fix="another step")


def _at_path(where: str, read_one: Callable[[_Given], _Found], given: _Given) -> _Found:
    """Call a parser, and add the path to its errors."""
    try:
        return read_one(given)
    except TimewrightError as error:
        raise InvalidWorkflow(
            f"{where}: {error.message}", field=where, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _check_no_cycle(spec: WorkflowSpec) -> None:
    in_layers = {step.name for layer in layers(spec) for step in layer}
    remaining = {step.name: (n, step) for n, step in enumerate(spec.steps) if step.name not in in_layers}
    if not remaining:
        return
    # Every remaining step needs another remaining one, so following needs must reach a cycle.
    visited: dict[str, int] = {}
    name = next(iter(remaining))
    while name not in visited:
        visited[name] = len(visited)
        name = next(need for need in remaining[name][1].needs if need in remaining)
    cycle = [*list(visited)[visited[name] :], name]
    position, step = remaining[name]
    at = f"steps[{position}].needs[{step.needs.index(cycle[1])}]"
    shown = cycle if len(cycle) <= MAX_CYCLE_SHOWN else [*cycle[:MAX_CYCLE_SHOWN], f"… {name}"]
    raise _error(
        at,
        f"a cycle of {len(cycle) - 1} steps: {' needs '.join(shown)}",
        value=cycle[1],
        rule="needs must not form a cycle",
        fix=f"remove {cycle[1]} from the needs of {name}",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion: the most similar name, else the first known names."""
    names = list(islice(known, MAX_COMPARED))
    found = get_close_matches(name[:64], names, n=1)
    return f"did you mean {found[0]}?" if found else "one of: " + ", ".join(names[:MAX_SHOWN])


def _fields(struct: AnyTarget) -> list[tuple[str, Any]]:
    return [(name, getattr(struct, name)) for name in struct.__struct_fields__]
