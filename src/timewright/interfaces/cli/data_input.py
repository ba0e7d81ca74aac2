"""Parses data from arguments and files: JSON, a strict subset of YAML, and points in time."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from timewright.core.input.instant_text import PAST_FIELDS, read_instant_text, zone_in
from timewright.core.input.strict_json import DuplicateKey, read_json
from timewright.core.moments import format_instant
from timewright.errors import InvalidInput
from timewright.interfaces.cli.fields import options_of
from timewright.interfaces.cli.output.times import local_zone, today_at
from timewright.operations import Operation, OperationContext

MAX_TEXT_BYTES = 256 * 1024
# The limit of the HTTP server.
MAX_FILE_BYTES = 4 * 1024 * 1024

_RULE = "JSON or YAML without anchors, aliases, tags and duplicate keys"
_FIX = "'{\"to\": \"ada\"}', or '{to: ada}'"
_INTEGER = r"-?(?:0|[1-9][0-9]*)"
# Text that is meant as data, so a syntax error is reported.
_LOOKS_LIKE_DATA = re.compile(r"^\s*(?:[\[{\"]|- )|: |\n")
# Reads that look ahead: `9am` is the next one.
FUTURE_READS = frozenset({"schedule next", "schedule upcoming"})
# As curl reads a file; here it would be taken for text.
_FILE_REFERENCE = re.compile(r"@[\w./~-]*[./][\w./-]+")
_NUMBER = re.compile(rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def read_data(text: str, *, field: str, max_bytes: int = MAX_TEXT_BYTES) -> Any:
    """Parse JSON or YAML."""
    if len(text) > max_bytes:
        raise _input_error(field, f"has {len(text)} characters; at most {max_bytes} are allowed")
    try:
        return read_json(text)
    except RecursionError:
        raise _input_error(field, "is nested too deeply") from None
    except DuplicateKey as error:
        raise _input_error(field, f"is invalid: {error}") from None
    except ValueError:
        return _read_yaml(text, field=field)


def read_data_or_text(text: str, *, field: str) -> Any:
    """Parse data, but return plain words as text."""
    if _FILE_REFERENCE.fullmatch(text):
        fix = f'"$(cat {text[1:]})" for the content of the file, or \'"{text}"\' for this text'
        raise InvalidInput(f"{field} {text} names a file", field=field, rule="the data itself", fix=fix)
    try:
        return read_data(text, field=field)
    except InvalidInput:
        if _LOOKS_LIKE_DATA.search(text):
            raise
        return text


def read_file(name: str) -> dict[str, Any]:
    """Read the fields in a file, or in standard input for `-`."""
    data = read_data(read_text(name, "file"), field=f"file {name}")
    if not isinstance(data, dict):
        fix = (
            f"timewright apply {name}" if isinstance(data, list) else "{name: report, every: 1h, note: hello}"
        )
        raise _input_error("file", f"{name} is not a mapping", fix=fix)
    return data


def read_texts(paths: Sequence[str], command: str) -> dict[str, str]:
    """Read files as text, by the name they were given; a folder stands for the YAML files in it."""
    found: dict[str, str] = {}
    if not paths:
        raise click.UsageError(f"no file is given; for example: timewright {command} schedules.yaml")
    for path in paths:
        inside = sorted([*Path(path).glob("*.yaml"), *Path(path).glob("*.yml")]) if path != "-" else []
        for name in [str(one) for one in inside] if inside else [path]:
            found[name] = read_text(name, "files", max_bytes=MAX_FILE_BYTES)
    return found


def parse_number(text: str) -> int | float | str:
    """Parse a number; other text is returned as it is, for the decoder to refuse."""
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(_INTEGER, text) else float(text)


def read_text(name: str, field: str, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read a file, or standard input for `-`."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(max_bytes + 1)
    except OSError as error:
        why = f"{name} cannot be read: {error.strerror or error}"
        raise InvalidInput(
            f"{field} {why}", field=field, rule="a readable file", fix="its path, or - for standard input"
        ) from None
    if len(raw) > max_bytes:
        raise _input_error(field, f"{name} is larger than {max_bytes // 1024} KiB", fix="a smaller file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        fix = "save the file as UTF-8"
        raise InvalidInput(
            f"{field} {name} is not UTF-8", field=field, rule="text in UTF-8", fix=fix
        ) from None


def _read_yaml(text: str, *, field: str) -> Any:
    # Imported late because YAML is slow to import and few commands need it.
    from timewright.core.input.strict_yaml import InvalidYaml, read_yaml

    try:
        return read_yaml(text)
    except InvalidYaml as error:
        fix = f"correct line {error.line}" if field.startswith("file ") else _FIX
        raise _input_error(field, str(error), fix=error.fix or fix) from None


def _input_error(field: str, what: str, *, fix: str = _FIX) -> InvalidInput:
    # `file jobs.yaml` is the field `file`.
    return InvalidInput(f"{field} {what}", field=field.partition(" ")[0], rule=_RULE, fix=fix)


def resolve_instants(
    operation: Operation[Any], request: Mapping[str, Any], context: OperationContext
) -> dict[str, Any]:
    """Return a request that looks something up with its instants in words replaced.

    They are read in the zone of the terminal, in which tables show times, unless the request has a `zone`.
    What a command writes is read by the operation, in the default zone.
    """
    if not operation.read_only:
        return dict(request)
    resolved, now = dict(request), context.now()
    here = local_zone(now)
    for field in options_of(operation):
        text = resolved.get(field.key)
        if field.metavar != "INSTANT" or not isinstance(text, str):
            continue
        # `explain` handles a time of day itself, with its precision.
        if operation.name == "schedule explain" and today_at(text, now=now, zone=here) is not None:
            continue
        past = field.key in PAST_FIELDS or operation.name not in FUTURE_READS
        read = read_instant_text(text, now=now, zone=zone_in(request) or here, field=field.key, past=past)
        resolved[field.key] = read if isinstance(read, str) else format_instant(read)
    return resolved
