"""Builds a request from command-line options or a YAML file, and the command line from a request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from timewright.core.input.encoding import to_json_value
from timewright.core.input.strict_yaml import read_yaml
from timewright.errors import InvalidInput
from timewright.interfaces.cli.data_input import (
    MAX_FILE_BYTES,
    parse_number,
    read_data,
    read_data_or_text,
    read_file,
    read_text,
)
from timewright.interfaces.cli.fields import OptionField, options_of, subject_of
from timewright.operations import Operation, OperationContext, operations
from timewright.operations.context import in_transaction
from timewright.operations.definitions.programs import sort_by_dependency

AS_DEFINITIONS = frozenset({"schedule get", "schedule list"})


def requests_of(operation: Operation[Any], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the requests of the given options and arguments: one, or one for each schedule of a file."""
    if values.get("file") and operation.name == "schedule put":
        return [_request_of(operation, values, one) for one in read_schedules(values["file"])]
    if values.get("file") and "file" not in operation.request_type.__struct_fields__:
        return [_request_of(operation, values, read_file(values["file"]))]
    return [_request_of(operation, values, {})]


def _request_of(
    operation: Operation[Any], values: Mapping[str, Any], in_file: Mapping[str, Any]
) -> dict[str, Any]:
    payload = dict(in_file)
    subject = subject_of(operation)
    for field in (subject, *options_of(operation)) if subject is not None else options_of(operation):
        given = values.get(field.key)
        if given is not None and given != ():
            payload[field.key] = _read(field, given)
    if values.get("shell"):
        command = list(values.get("command") or ())
        # One argument with blanks is a whole command line, which the decoder refuses with the list to write.
        payload["shell"] = command[0] if len(command) == 1 and len(command[0].split()) > 1 else command
    return payload


def read_field(field: OptionField, given: str | tuple[str, ...]) -> Any:
    """Parse the text of an option by the kind of its field."""
    return _read(field, (given,) if field.repeatable and isinstance(given, str) else given)


def command_words(operation: Operation[Any], payload: Mapping[str, Any]) -> list[str]:
    """Return a request as the words of a command line."""
    subject = subject_of(operation)
    known = {field.key: field for field in options_of(operation)}
    words, command = operation.name.split(), []
    for key, value in payload.items():
        if subject is not None and key == subject.key:
            words.append(str(value))
        elif known[key].kind == "command":
            command = ["--", *value]
            words.append("--shell")
        else:
            words += _format_option(known[key], value)
    return [*words, *command]


def _read(field: OptionField, given: Any) -> Any:
    """Parse the value of a field."""
    if field.nullable and given == "null":
        return None
    match field.kind:
        case "number":
            return parse_number(given)
        case "words":
            return _read_words(field, given)
        case "pairs":
            return _read_pairs(field, given)
        case "data" if field.key == "file" and not given.lstrip().startswith(("{", "[")):
            return read_data(
                read_text(given, field.key, max_bytes=MAX_FILE_BYTES),
                field=field.key,
                max_bytes=MAX_FILE_BYTES,
            )
        case "data":
            return read_data_or_text(given, field=field.key)
        case "request":
            return " ".join(given)
        case "text" if field.key == "ical" and "BEGIN:VCALENDAR" not in given.upper():
            return read_text(given, field.key)
        case _:
            return given


def _read_words(field: OptionField, texts: Sequence[str]) -> Any:
    # A JSON list in one argument, so that it can also be empty.
    if len(texts) == 1 and texts[0].startswith("["):
        return read_data(texts[0], field=field.key)
    return [read_data(text, field=field.key) if text.startswith("{") else text for text in texts]


def _read_pairs(field: OptionField, texts: Sequence[str]) -> Any:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if field.key == "headers" and ":" in name:
            # Name: value, as for curl.
            name, equals, value = (part.strip() for part in text.partition(":"))
        if text.startswith("{"):
            found.update(read_data(text, field=field.key))
        elif not equals or not name:
            raise InvalidInput(
                f"{field.flag} {text!r} is not name=value",
                field=field.key,
                value=text,
                rule="name=value, or a JSON object",
                fix=f"{field.flag} team=finance",
            )
        else:
            found[name] = (
                value
                if field.key in ("headers", "files")
                else read_data_or_text(value, field=f"{field.key}.{name}")
            )
    return found


def _format_option(field: OptionField, value: Any) -> list[str]:
    if field.kind in ("flag", "switch"):
        off = field.flag.replace("--", "--no-", 1)
        return [field.flag] if value else [off] if field.kind == "switch" else []
    if field.kind == "words" and any(isinstance(one, Mapping) for one in value):
        return [field.flag, _format_value(value)]
    if field.kind == "words":
        return [word for one in value for word in (field.flag, str(to_json_value(one)))]
    if field.key == "files":
        return [word for name, text in value.items() for word in (field.flag, f"{name}={text}")]
    if field.kind == "pairs":
        return [word for name, one in value.items() for word in (field.flag, f"{name}={_format_value(one)}")]
    if field.kind == "request":
        method, blank, url = str(value).partition(" ")
        return [field.flag, *((method, url) if blank else ("GET", method))]
    return [field.flag, _format_value(value) if field.kind == "data" else str(to_json_value(value))]


def _format_value(value: Any) -> str:
    """Return a text that parses to this value; a plain word stays as it is."""
    if isinstance(value, str) and not value.startswith("{") and read_data_or_text(value, field="") == value:
        return value
    return json.dumps(to_json_value(value), ensure_ascii=False)


def definitions_in(
    operation: Operation[Any], answer: Mapping[str, Any], context: OperationContext
) -> dict[str, Any]:
    """Return the definitions of the schedules in an answer: one mapping for `get`, a section for `list`."""
    is_one = operation.name == "schedule get"
    names = [answer["schedule"]["name"]] if is_one else [row["name"] for row in answer["schedules"]]
    if not names:
        return {"schedules": []}
    file: dict[str, Any] = read_yaml(operations["export"](context, {"schedules": names})["text"])
    found: dict[str, Any] = file["schedules"][0] if is_one else file
    return found


def read_schedules(name: str) -> list[dict[str, Any]]:
    """Return the schedules of a file, or of standard input for `-`: one mapping, a list, or `schedules:`."""
    text = read_text(name, "file", max_bytes=MAX_FILE_BYTES)
    data = read_data(text, field=f"file {name}", max_bytes=MAX_FILE_BYTES)
    if isinstance(data, Mapping) and "schedules" in data:
        if set(data) != {"schedules"}:
            other = next(key for key in data if key != "schedules")
            raise InvalidInput(
                f"file {name} also has {other!r}",
                field="file",
                value=str(other),
                rule="schedule put writes schedules and nothing else",
                fix=f"timewright plan {name}, then timewright apply {name}",
            )
        data = data["schedules"]
    found: list[Any] = data if isinstance(data, list) and data else [data]
    names = [one.get("name") for one in found if isinstance(one, dict)]
    if len(names) < len(found):
        raise _not_schedules(name, "something other than a mapping")
    counts = Counter(str(one) for one in names if one is not None)
    if twice := next((one for one, count in counts.items() if count > 1), None):
        raise _not_schedules(name, f"the name {twice!r} twice")
    return [dict(one) for one in sort_by_dependency(found)] if len(found) > 1 else found


def perform_all(
    operation: Operation[Any], context: OperationContext, requests: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Perform the requests of a file, in one transaction on a store; a server performs them one by one."""

    def perform(inner: OperationContext) -> list[dict[str, Any]]:
        return [operation(inner, one) for one in requests]

    return perform(context) if len(requests) == 1 or context.remote else in_transaction(context, perform)


def _not_schedules(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"file {name} has {what}",
        field="file",
        rule="a mapping with the fields of a schedule, or a list of them with different names",
        fix="{name: report, every: 1h, note: hello}",
    )
