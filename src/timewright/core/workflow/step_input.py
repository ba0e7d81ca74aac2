"""The input of a step: references in its `input`, and templates in its target.

A template is `{{ steps.fetch.result.id }}` in a URL, header, body, argument, variable or note. What is called
is fixed: the host of a URL, the program of a command and the name of a function take none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from timewright.core.input.input_errors import join_path
from timewright.core.target import DATA_FIELDS, SECRET_PREFIX, AnyTarget, Http, Note, Shell
from timewright.core.workflow import (
    DEFAULT_KEY,
    REFERENCE_KEY,
    Step,
    WorkflowSpec,
    is_reference,
    iter_leaves,
    parse_match,
)
from timewright.core.workflow.expression import (
    MISSING,
    ROOTS,
    Expression,
    ValuePath,
    evaluate,
    iter_paths,
    resolve_path,
)
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.errors import InvalidWorkflow

# A command reads its input from the environment, as JSON; Linux limits one variable to 128 KiB.
INPUT_VARIABLE = "TIMEWRIGHT_INPUT"
MAX_VARIABLE_BYTES = 100_000

TEMPLATE_ROOTS = (*ROOTS, "run", "schedule")
# Braces around anything else are text, for example a template that the receiver of a body fills in.
_TEMPLATE = re.compile(r"\{\{\s*((?:steps|input|item|run|schedule)\b[^{}]*?)\s*\}\}", re.ASCII)
# The next argument is code for an interpreter; and variables that decide which code a program loads.
_CODE_OPTION = re.compile(r"-[a-zA-Z]*[ce]|--(?:command|eval|exec)")
_LOADER_VARIABLE = re.compile(
    r"\b(?:LD_\w*|DYLD_\w*|PATH|IFS|ENV|BASH_ENV|SHELL|PYTHON\w*|PERL\w*|RUBY\w*|NODE_\w*|GIT_\w*)$"
)
_FIELDS: dict[type, tuple[str, ...]] = {
    **{kind: (field,) for kind, field in DATA_FIELDS.items()},
    Http: ("url", "headers", "body"),
    Shell: ("command", "env"),
    Note: ("text",),
}


def resolve_input(step: Step, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the step's input with every reference resolved.

    A reference that finds no value and has no default is refused.
    """
    return {
        name: _resolve_value(value, scope, join_path(f"{step.name}.input", name))
        for name, value in step.input.items()
    }


def each_items(step: Step, scope: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the items of a step with `each`; an empty list is valid, a list over the limit is refused."""
    if step.each is None:
        return ()
    found = resolve_path(parse_path(step.each.source), scope)
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
    return [path for one in step_expressions(step) for path in iter_paths(one.parse(one.text))]


class StepExpression(NamedTuple):
    """An expression as it is written in a step, its parser and its path; and whether it may name the item."""

    text: str
    parse: Callable[[str], Expression]
    where: str
    item: bool


def step_expressions(step: Step, where: str = "") -> Iterator[StepExpression]:
    """Yield every expression of a step: in its input, `each`, its conditions and its templates."""
    item = step.each is not None
    for value, at in iter_leaves(step.input, f"{where}input"):
        if is_reference(value) and isinstance(value[REFERENCE_KEY], str):
            yield StepExpression(value[REFERENCE_KEY], parse_reference, f"{at}.{REFERENCE_KEY}", item)
    if step.each is not None:
        yield StepExpression(step.each.source, parse_path, f"{where}each.{REFERENCE_KEY}", item=False)
    if step.when is not None:
        yield StepExpression(step.when, parse_condition, f"{where}when", item=False)
    if step.wait is not None and step.wait.event is not None and step.wait.event.match is not None:
        yield StepExpression(step.wait.event.match, parse_match, f"{where}wait.event.match", item)
    for text, at in step_templates(step, where):
        yield StepExpression(text, parse_template, at, item)


def step_templates(step: Step, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the expression of every template of a step, with its path: of its target, and of a question."""
    yield from find_templates(step.target, f"{where}target")
    if step.wait is not None:
        yield from ((expression, f"{where}description") for expression in _TEMPLATE.findall(step.description))


def render_question(step: Step, values: Mapping[str, Any]) -> str:
    """The question of a step that waits, with its templates replaced by values."""
    text = _TEMPLATE.sub(lambda match: _plain_text(values.get(match[1], match[0])), step.description)
    return text or step.name


def parse_reference(text: str) -> ValuePath:
    """Parse the path of a reference, which may also name the run and its schedule."""
    return parse_path(text, roots=TEMPLATE_ROOTS)


def add_input(target: AnyTarget, values: Mapping[str, Any]) -> AnyTarget:
    """Return the target with the step's input added to its data; a command gets it in its environment."""
    if not values or isinstance(target, Note):
        return target
    if isinstance(target, Shell):
        return replace(target, env={**target.env, INPUT_VARIABLE: _encode_input(values)})
    field = DATA_FIELDS[type(target)]
    return replace(target, **{field: {**(getattr(target, field) or {}), **values}})


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


def may_have_templates(target: AnyTarget, field: str) -> bool:
    """Whether a field of a target may contain templates."""
    return field in _FIELDS[type(target)]


def find_templates(target: AnyTarget, where: str = "target") -> Iterator[tuple[str, str]]:
    """Yield the expression of every template of a target, with its path; none decides what is called."""
    for name in _FIELDS[type(target)]:
        for text, at in _strings(getattr(target, name), f"{where}.{name}"):
            found = _TEMPLATE.findall(text)
            fixed = _fixed_part(target, name, text, at)
            if found and _TEMPLATE.search(fixed):
                raise InvalidWorkflow(
                    f"{at}: a template decides what is called",
                    field=at,
                    value=text[:64],
                    rule="no template in the host of a URL, the program of a command, or code for it (-c)",
                    fix="a fixed host or program, and the template in a path, an argument or a variable",
                )
            yield from ((expression, at) for expression in found)


def parse_template(expression: str) -> Expression:
    """Parse the expression of a template."""
    return parse_condition(expression, field="template", roots=TEMPLATE_ROOTS)


def template_values(expressions: Iterable[str], scope: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of templates; one that finds no value is refused."""
    values = {text: evaluate(parse_template(text), scope) for text in expressions}
    for text, value in values.items():
        if value is None:
            raise InvalidWorkflow(
                f"{where}: {{{{ {text} }}}} finds no value",
                field=where,
                value=text,
                rule="a template finds a value",
                fix="give the value, or leave the step out with `when`",
            )
    return values


def render_target(target: AnyTarget, values: Mapping[str, Any]) -> AnyTarget:
    """Return the target with its templates replaced by values.

    Text that is only a template keeps the type of its value in a body, payload or argument. A value is never
    read as a reference to a secret.
    """
    changes = {name: _render(getattr(target, name), values, name) for name in _FIELDS[type(target)]}
    return replace(target, **changes)


def _render(value: Any, values: Mapping[str, Any], field: str) -> Any:
    if isinstance(value, str):
        return _render_text(value, values, field)
    if isinstance(value, dict):
        return {name: _render(inner, values, field) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_render(inner, values, field) for inner in value)
    return value


def _render_text(text: str, values: Mapping[str, Any], field: str) -> Any:
    whole = _TEMPLATE.fullmatch(text)
    if whole is not None and field in DATA_FIELDS.values():
        found = values[whole[1]]
        return _refuse_secret(found, field) if isinstance(found, str) else found
    if _TEMPLATE.search(text) is None:
        return text
    as_text: Callable[[Any], str] = _url_text if field == "url" else _plain_text
    rendered = _TEMPLATE.sub(lambda match: as_text(values[match[1]]), text)
    if field == "headers" and ("\n" in rendered or "\r" in rendered):
        raise InvalidWorkflow(
            "a value puts a line feed into a header",
            field=field,
            rule="a header is one line",
            fix="send the value in the body",
        )
    return rendered if SECRET_PREFIX in text else _refuse_secret(rendered, field)


def _refuse_secret(text: str, field: str) -> str:
    if SECRET_PREFIX in text:
        raise InvalidWorkflow(
            f"a value in {field} names a secret",
            field=field,
            rule="only the definition of a workflow names secrets",
            fix=f"write {SECRET_PREFIX}NAME in the target",
        )
    return text


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _url_text(value: Any) -> str:
    return quote(_plain_text(value), safe="")


def _fixed_part(target: AnyTarget, field: str, text: str, at: str) -> str:
    """The part of a text that decides what is called: a host, a program, its code, or what it loads."""
    if isinstance(target, Http) and field == "url":
        # Templates contain no slash, so the first three parts are the scheme and the host.
        return "/".join(text.split("/", 3)[:3])
    if not isinstance(target, Shell):
        return ""
    if field == "env":
        return text if _LOADER_VARIABLE.search(at) else ""
    number = int(at[at.rindex("[") + 1 : -1])
    return text if number == 0 or _CODE_OPTION.fullmatch(target.command[number - 1]) else ""


def _strings(value: Any, where: str) -> Iterator[tuple[str, str]]:
    pending = [(value, where)]
    while pending:
        one, at = pending.pop()
        if isinstance(one, str):
            yield one, at
        elif isinstance(one, dict):
            pending.extend((inner, join_path(at, str(name))) for name, inner in one.items())
        elif isinstance(one, list | tuple):
            pending.extend((inner, f"{at}[{n}]") for n, inner in enumerate(one))
