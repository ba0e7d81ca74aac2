"""From words to a request, and back: the text of every option is read as its field means it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from timewright.core.decoding import names_of
from timewright.core.encoding import plain
from timewright.core.moments import from_ms, spell_duration
from timewright.core.schedule import Schedule
from timewright.core.shapes import Milliseconds
from timewright.core.spellings import snake
from timewright.doors.cli.data import LARGEST_FILE, number_in, read_data, read_file, read_loose, text_of
from timewright.doors.cli.fields import Field, model_of, options_of, subject_of
from timewright.errors import InvalidInput
from timewright.operations import Operation


def payload_of(operation: Operation[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The request that options and arguments spell; what was not given is not in it."""
    payload: dict[str, Any] = {}
    if values.get("file") and "file" not in operation.request.__struct_fields__:
        payload.update(read_file(values["file"]))
    subject = subject_of(operation)
    for field in (subject, *options_of(operation)) if subject is not None else options_of(operation):
        given = values.get(field.key)
        if given is not None and given != ():
            payload[field.key] = _read(field, given)
    if values.get("shell"):
        payload["shell"] = list(values.get("command") or ())
    return _joined(payload) if model_of(operation) is Schedule else payload


def takes_a_command(operation: Operation[Any]) -> bool:
    """Whether what follows `--` is a command to run."""
    return any(field.kind == "command" for field in options_of(operation))


def takes_a_text(operation: Operation[Any]) -> bool:
    """Whether it is about a text, which may then also stand as an argument."""
    return any(field.key == "text" for field in options_of(operation))


def read_field(field: Field, given: str | tuple[str, ...]) -> Any:
    """What a text means for one field; for those that take several, all of them."""
    return _read(field, (given,) if field.several and isinstance(given, str) else given)


def words_of(operation: Operation[Any], payload: Mapping[str, Any]) -> list[str]:
    """The same request as the words of a command line."""
    subject = subject_of(operation)
    known = {field.key: field for field in options_of(operation)}
    words, command = operation.name.split(), []
    for key, value in _under_our_names(operation, payload).items():
        if subject is not None and key == subject.key:
            words.append(str(value))
        elif known[key].kind == "command":
            command = ["--", *value]
            words.append("--shell")
        else:
            words += _spelled(known[key], value)
    return [*words, *command]


def _read(field: Field, given: Any) -> Any:
    """What was given for a field, as plain data."""
    if field.nullable and given == "null":
        return None
    match field.kind:
        case "number":
            return number_in(given)
        case "words":
            return _read_words(field, given)
        case "pairs":
            return _read_pairs(field, given)
        case "data" if field.key == "file" and not given.lstrip().startswith(("{", "[")):
            return read_data(
                text_of(given, field.key, largest=LARGEST_FILE), field=field.key, largest=LARGEST_FILE
            )
        case "data":
            return read_loose(given, field=field.key)
        case "request":
            return " ".join(given)
        case "text" if field.key == "ical" and "BEGIN:VCALENDAR" not in given.upper():
            return text_of(given, field.key)
        case _:
            return given


def _read_words(field: Field, texts: Sequence[str]) -> Any:
    # A list in one piece, so that it can also be made empty.
    if len(texts) == 1 and texts[0].startswith("["):
        return read_data(texts[0], field=field.key)
    return list(texts)


def _read_pairs(field: Field, texts: Sequence[str]) -> Any:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if field.key == "headers" and ":" in name:
            # As it is written for curl and in the request itself.
            name, equals, value = (part.strip() for part in text.partition(":"))
        if text.startswith("{"):
            found.update(read_data(text, field=field.key))
        elif not equals or not name:
            raise InvalidInput(
                f"{field.flag} {text!r} has no name",
                field=field.key,
                value=text,
                rule="name=value, or a mapping as data",
                fix=f"{field.flag} team=finance",
            )
        else:
            found[name] = value if field.key == "headers" else read_loose(value, field=f"{field.key}.{name}")
    return found


def _joined(payload: dict[str, Any]) -> dict[str, Any]:
    """Short ways that go well together: a call with its arguments, a number of attempts with a backoff."""
    joined = dict(payload)
    if "args" in joined:
        joined["call"] = {"name": joined.get("call", ""), "args": joined.pop("args")}
    if isinstance(joined.get("retry"), int) and "max_attempts" not in joined:
        joined["max_attempts"] = joined.pop("retry")
    if isinstance(joined.get("lease"), str):
        joined["lease_ttl"] = joined.pop("lease")
    return joined


def _under_our_names(operation: Operation[Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload by the keys that have an option; another spelling is led back to its field."""
    subject = subject_of(operation)
    known = {field.key for field in options_of(operation)} | {subject.key if subject is not None else ""}
    found: dict[str, Any] = {}
    for key, value in payload.items():
        stem = snake(key).removesuffix("_ms")
        if snake(key) in known:
            found[snake(key)] = value
        elif stem in known and isinstance(value, int):
            found[stem] = spell_duration(from_ms(value, field=stem))
        else:
            found.update(_unwrapped(names_of({key: value}, model_of(operation) or operation.request)))
    return found


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Milliseconds):
        return spell_duration(from_ms(value.value, field="ms"))
    if isinstance(value, Mapping):
        return {key: _unwrapped(inner) for key, inner in value.items()}
    return value


def _spelled(field: Field, value: Any) -> list[str]:
    if field.kind in ("flag", "switch"):
        off = field.flag.replace("--", "--no-", 1)
        return [field.flag] if value else [off] if field.kind == "switch" else []
    if field.kind == "words" and any(isinstance(one, Mapping) for one in value):
        return [field.flag, _as_data(value)]
    if field.kind == "words":
        return [word for one in value for word in (field.flag, str(plain(one)))]
    if field.kind == "pairs":
        return [word for name, one in value.items() for word in (field.flag, f"{name}={_as_data(one)}")]
    if field.kind == "request":
        method, blank, url = str(value).partition(" ")
        return [field.flag, *((method, url) if blank else ("GET", method))]
    return [field.flag, _as_data(value) if field.kind == "data" else str(plain(value))]


def _as_data(value: Any) -> str:
    """A text that is read as this value again; a word stays a word."""
    if isinstance(value, str) and not value.startswith("{") and read_loose(value, field="") == value:
        return value
    return json.dumps(plain(value), ensure_ascii=False)
