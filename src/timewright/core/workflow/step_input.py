"""Resolves the input of a step, and adds it to the data of its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from timewright.core.input.input_errors import join_path
from timewright.core.target import AnyTarget, Call, Http, Note, Shell, Workflow
from timewright.core.workflow.expression import MISSING, ValuePath, iter_paths, resolve_path
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.core.workflow.spec import (
    DEFAULT_KEY,
    REFERENCE_KEY,
    Step,
    WorkflowSpec,
    is_reference,
    iter_leaves,
)
from timewright.core.workflow.templates import TEMPLATE_ROOTS, find_templates, parse_template
from timewright.errors import InvalidWorkflow

# A command reads its input from the environment, as JSON; Linux limits one variable to 128 KiB.
INPUT_VARIABLE = "TIMEWRIGHT_INPUT"
MAX_VARIABLE_BYTES = 100_000

NO_VALUES: Mapping[str, Any] = {}


def resolve_input(
    step: Step,
    results: Mapping[str, Any],
    *,
    given: Mapping[str, Any] = NO_VALUES,
    item: Any = MISSING,
    scope: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the step's input with every reference resolved; `given` is the workflow's input.

    A reference that finds no value and has no default is refused. `scope` is used instead of the results,
    if the caller knows more than these.
    """
    scope = _scope(step, results, given) if scope is None else dict(scope)
    if item is not MISSING:
        scope["item"] = item
    return {
        name: _resolve_value(value, scope, join_path(f"{step.name}.input", name))
        for name, value in step.input.items()
    }


def each_items(
    step: Step,
    results: Mapping[str, Any],
    *,
    given: Mapping[str, Any] = NO_VALUES,
    scope: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """Return the items of a step with `each`; an empty list is valid, a list over the limit is refused."""
    if step.each is None:
        return ()
    found = resolve_path(parse_path(step.each.source), scope or _scope(step, results, given))
    if not isinstance(found, list | tuple) or len(found) > step.each.limit:
        what = f"{len(found)} items" if isinstance(found, list | tuple) else "no list"
        raise InvalidWorkflow(
            f"{step.name}.each: {step.each.source} is {what}",
            field=f"{step.name}.each",
            value=what,
            rule=f"a list of at most {step.each.limit}",
            fix="raise the limit, or return fewer items",
        )
    return tuple(found)


def referenced_steps(step: Step) -> frozenset[str]:
    """The steps that a step refers to: in its input, its conditions and the templates of its target."""
    return frozenset(str(path.step) for path in referenced_paths(step) if path.root == "steps")


def with_implied_needs(spec: WorkflowSpec) -> WorkflowSpec:
    """Return the workflow in which every step also needs the steps that it refers to."""
    known = {step.name for step in spec.steps}
    steps = []
    for step in spec.steps:
        try:
            named = sorted(referenced_steps(step))
        except InvalidWorkflow:
            named = []  # the check that follows reports it with its path
        new = [name for name in named if name in known and name != step.name and name not in step.needs]
        steps.append(replace(step, needs=(*step.needs, *new)) if new else step)
    return replace(spec, steps=tuple(steps))


def referenced_paths(step: Step) -> list[ValuePath]:
    """Every path that a step refers to."""
    found = [
        parse_reference(value[REFERENCE_KEY])
        for value, _ in iter_leaves(step.input, "")
        if is_reference(value)
    ]
    if step.each is not None:
        found.append(parse_path(step.each.source))
    if step.when is not None:
        found += iter_paths(parse_condition(step.when))
    for expression, _ in find_templates(step.target):
        found += iter_paths(parse_template(expression))
    return found


def parse_reference(text: str) -> ValuePath:
    """Parse the path of a reference, which may also name the run and its schedule."""
    return parse_path(text, roots=TEMPLATE_ROOTS)


def add_input(target: AnyTarget, values: Mapping[str, Any]) -> AnyTarget:
    """Return the target with the step's input added to its data; a command gets it in its environment."""
    if not values or isinstance(target, Note):
        return target
    if isinstance(target, Shell):
        return replace(target, env={**target.env, INPUT_VARIABLE: _encode_input(values)})
    if isinstance(target, Call):
        return replace(target, args={**target.args, **values})
    if isinstance(target, Workflow):
        return replace(target, input={**target.input, **values})
    if isinstance(target, Http):
        return replace(target, body={**(target.body or {}), **values})
    return replace(target, payload={**(target.payload or {}), **values})


def _encode_input(values: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(values)
    if len(text) > MAX_VARIABLE_BYTES:
        raise InvalidWorkflow(
            f"an input of {len(text)} bytes does not fit a command's environment",
            field="input",
            value=len(text),
            rule=f"at most {MAX_VARIABLE_BYTES} bytes",
            fix="pass the location of the data instead",
        )
    return text.decode()


def _scope(step: Step, results: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    steps = {need: {"result": results[need]} for need in step.needs if need in results}
    return {"steps": steps, "input": given}


def _resolve_value(value: Any, scope: Mapping[str, Any], where: str) -> Any:
    if is_reference(value):
        found = resolve_path(parse_reference(value[REFERENCE_KEY]), scope)
        if found is MISSING and DEFAULT_KEY not in value:
            raise InvalidWorkflow(
                f"{where}: {value[REFERENCE_KEY]} finds no value",
                field=where,
                value=value[REFERENCE_KEY],
                rule="a reference must find a value or have a default",
                fix=f'{{"{REFERENCE_KEY}": "{value[REFERENCE_KEY]}", "{DEFAULT_KEY}": null}}',
            )
        return value[DEFAULT_KEY] if found is MISSING else found
    if isinstance(value, dict):
        return {name: _resolve_value(inner, scope, join_path(where, name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve_value(inner, scope, f"{where}[{n}]") for n, inner in enumerate(value)]
    return value
