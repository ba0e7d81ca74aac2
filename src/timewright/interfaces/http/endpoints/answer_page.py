"""The page behind a one-time answer link: the question, its data, and the form."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from timewright.core.moments import format_instant
from timewright.core.workflow.waits import FormField
from timewright.errors import InvalidInput
from timewright.operations.workflows.waits import PendingAnswer

MAX_BODY_CHARS = 100_000
MAX_FIELDS = 100
_YES_NO = {"yes": True, "no": False, "true": True, "false": False}


def render_question(asked: PendingAnswer) -> str:
    """The body of the page: what is asked, the data of the step, and one input for each field."""
    until = f"<p>Until {escape(format_instant(asked.until))}.</p>" if asked.until is not None else ""
    data = msgspec.json.format(msgspec.json.encode(asked.payload), indent=2).decode()
    shown = f"<pre>{escape(data)}</pre>" if asked.payload else ""
    fields = asked.form or {"answer": FormField(label="Answer")}
    inputs = "".join(_render_field(name, field) for name, field in fields.items())
    return (
        f"{escape(asked.question)}</p>{until}{shown}"
        f"<form method='post'>{inputs}<p><button>Send</button></p></form><p>"
        f"<small>Step {escape(asked.step)} of workflow {escape(asked.workflow)}. "
        "This page takes one answer.</small>"
    )


def read_answer(asked: PendingAnswer, body: str, content_type: str) -> Any:
    """The answer in a request: JSON as it is, or the fields of the page with their types."""
    if len(body) > MAX_BODY_CHARS:
        raise InvalidInput(
            f"the answer has {len(body)} characters", field="body", rule=f"at most {MAX_BODY_CHARS}"
        )
    if content_type.partition(";")[0].strip() == "application/json":
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the body is not JSON: {error}", field="body", rule="JSON") from None
    try:
        given = dict(parse_qsl(body, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidInput(
            "the answer has too many fields", field="body", rule=f"at most {MAX_FIELDS} fields"
        ) from None
    if not asked.form:
        return given.get("answer", "")
    known = {name: text for name, text in given.items() if text}
    return {
        name: _read_field(asked.form[name], text) if name in asked.form else text
        for name, text in known.items()
    }


def _read_field(field: FormField, text: str) -> Any:
    if field.type == "boolean":
        return _YES_NO.get(text.lower(), text)
    if field.type == "number":
        try:
            number = float(text)
        except ValueError:
            return text
        return int(number) if number.is_integer() else number
    return text


def _render_field(name: str, field: FormField) -> str:
    label, key = escape(field.label or name), escape(name, quote=True)
    required = " required" if field.required else ""
    choices = field.choices or (("yes", "no") if field.type == "boolean" else ())
    if choices:
        options = "".join(f"<option>{escape(one)}</option>" for one in ("", *choices))
        control = f"<select name='{key}'{required}>{options}</select>"
    elif field.type == "number":
        control = f"<input name='{key}' type='number' step='any'{required}>"
    else:
        control = f"<textarea name='{key}' rows='3' cols='50'{required}></textarea>"
    return f"<p><label>{label}<br>{control}</label></p>"
