"""What a step is given: its references filled in, and put among its target's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from timewright.core.target import AnyTarget, Call, Http, Note, Shell, Workflow
from timewright.core.workflow.expression import MISSING, find
from timewright.core.workflow.grammar import parse_path
from timewright.core.workflow.spec import DEFAULT, REFERENCE, Step, is_reference
from timewright.errors import InvalidWorkflow

# A command reads its input from the environment, as JSON; the system takes no longer value there.
INPUT_VARIABLE = "TIMEWRIGHT_INPUT"
LONGEST_VARIABLE = 100_000

NOTHING: Mapping[str, Any] = {}


def resolve_input(
    step: Step,
    results: Mapping[str, Any],
    *,
    given: Mapping[str, Any] = NOTHING,
    item: Any = MISSING,
) -> dict[str, Any]:
    """The step's input with every reference filled in; `given` is the workflow's own input.

    A reference that leads nowhere and has no default is refused.
    """
    scope = _scope(step, results, given)
    if item is not MISSING:
        scope["item"] = item
    return {name: _filled(value, scope, f"{step.name}.input.{name}") for name, value in step.input.items()}


def items_of(
    step: Step, results: Mapping[str, Any], *, given: Mapping[str, Any] = NOTHING
) -> tuple[Any, ...]:
    """The items a step with `each` runs for; none at all is an answer, too many are not."""
    if step.each is None:
        return ()
    found = find(parse_path(step.each.source), _scope(step, results, given))
    if not isinstance(found, list | tuple) or len(found) > step.each.limit:
        what = f"{len(found)} items" if isinstance(found, list | tuple) else "no list"
        raise InvalidWorkflow(
            f"{step.name}.each: {step.each.source} is {what}",
            field=f"{step.name}.each",
            value=what,
            rule=f"a list of at most {step.each.limit}",
            fix="a higher limit, or a step that gives fewer",
        )
    return tuple(found)


def with_input(target: AnyTarget, values: Mapping[str, Any]) -> AnyTarget:
    """The target with a step's input among its data; a command finds it in its environment."""
    if not values or isinstance(target, Note):
        return target
    if isinstance(target, Shell):
        return replace(target, env={**target.env, INPUT_VARIABLE: _spelled(values)})
    if isinstance(target, Call):
        return replace(target, args={**target.args, **values})
    if isinstance(target, Workflow):
        return replace(target, input={**target.input, **values})
    if isinstance(target, Http):
        return replace(target, body={**(target.body or {}), **values})
    return replace(target, payload={**(target.payload or {}), **values})


def _spelled(values: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(values)
    if len(text) > LONGEST_VARIABLE:
        raise InvalidWorkflow(
            f"an input of {len(text)} bytes does not fit a command's environment",
            field="input",
            value=len(text),
            rule=f"at most {LONGEST_VARIABLE} bytes",
            fix="pass where the data is, not the data",
        )
    return text.decode()


def _scope(step: Step, results: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    told = {need: {"result": results[need]} for need in step.needs if need in results}
    return {"steps": told, "input": given}


def _filled(value: Any, scope: Mapping[str, Any], where: str) -> Any:
    if is_reference(value):
        found = find(parse_path(value[REFERENCE]), scope)
        if found is MISSING and DEFAULT not in value:
            raise InvalidWorkflow(
                f"{where}: {value[REFERENCE]} leads nowhere",
                field=where,
                value=value[REFERENCE],
                rule="a reference finds something, or has a default",
                fix=f'{{"{REFERENCE}": "{value[REFERENCE]}", "{DEFAULT}": null}}',
            )
        return value[DEFAULT] if found is MISSING else found
    if isinstance(value, dict):
        return {name: _filled(inner, scope, f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, scope, f"{where}[{n}]") for n, inner in enumerate(value)]
    return value
