"""Steps that wait for a person's answer or for an event, without a lease or an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from timewright.core.workflow.expression import evaluate_condition
from timewright.core.workflow.grammar import parse_condition
from timewright.errors import InvalidInput, InvalidWorkflow

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
}


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


def check_wait(wait: Wait, where: str) -> None:
    """Refuse a wait that nothing can end, and a form or an expression that cannot work."""
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
    if wait.event is not None and wait.event.match is not None:
        try:
            _parse_match(wait.event.match)
        except InvalidWorkflow as error:
            at = f"{where}.event.match"
            raise InvalidWorkflow(
                f"{at}: {error.message}", field=at, value=error.value, rule=error.rule, fix=error.fix
            ) from None


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
        raise _answer_error("answer", answer, "an object with the fields of the form", request)
    for name in answer:
        if name not in request.form:
            raise _answer_error(f"answer.{name}", answer[name], "a field of the form", request)
    for name, field in request.form.items():
        value = answer.get(name)
        if value is None:
            if field.required:
                raise _answer_error(f"answer.{name}", None, "a required field", request)
            continue
        is_right = isinstance(value, _PYTHON_TYPES[field.type])
        is_right = is_right and (field.type == "boolean" or not isinstance(value, bool))
        if not is_right or (field.choices and value not in field.choices):
            rule = f"one of {', '.join(field.choices)}" if field.choices else f"a {field.type}"
            raise _answer_error(f"answer.{name}", value, rule, request)


def matches_event(match: EventMatch, name: str, scope: Mapping[str, Any]) -> bool:
    """Whether an event ends a wait."""
    if match.name != name:
        return False
    return match.match is None or evaluate_condition(_parse_match(match.match), scope)


def _parse_match(text: str) -> Any:
    return parse_condition(text, field="match", roots=EVENT_ROOTS)


def _error(where: str, message: str, *, rule: str, fix: str) -> InvalidWorkflow:
    return InvalidWorkflow(f"{where}: {message}", field=where, rule=rule, fix=fix)


def _answer_error(field: str, value: Any, rule: str, request: AnswerRequest) -> InvalidInput:
    shown = ", ".join(f"{name}: {one.type}" for name, one in request.form.items())
    return InvalidInput(
        f"{field} is {'missing' if value is None else 'not valid'}",
        field=field,
        value=value,
        rule=rule,
        fix=f"{{{shown}}}",
    )
