"""Text into plain data: JSON, or the part of YAML that means the same to everyone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from timewright.errors import InvalidInput

LARGEST_TEXT = 256 * 1024
# Of what is handed over whole, as much as the HTTP door takes.
LARGEST_FILE = 4 * 1024 * 1024

_RULE = "JSON or YAML, without anchors, aliases and tags, each name once"
_FIX = "'{\"to\": \"ada\"}', or '{to: ada}'"
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
# Whoever writes one of these means data, and wants to hear what is wrong with it.
_MEANT = re.compile(r"^\s*(?:[\[{\"]|- )|: |\n")
_NUMBER = re.compile(rf"{_WHOLE}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def read_data(text: str, *, field: str, largest: int = LARGEST_TEXT) -> Any:
    """What a text means as data; numbers, true, false and null are what they look like, all else is text."""
    if len(text) > largest:
        raise _refused(field, f"has {len(text)} characters, which is too much")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise _refused(field, "is nested too deep") from None
    except _TwiceError as error:
        raise _refused(field, f"cannot be read: {error}") from None
    except ValueError:
        return _read_yaml(text, field=field)


def read_loose(text: str, *, field: str) -> Any:
    """The same for a value that is often one word: what is no data after all is the text itself."""
    try:
        return read_data(text, field=field)
    except InvalidInput:
        if _MEANT.search(text):
            raise
        return text


def read_file(name: str, *, field: str = "file") -> dict[str, Any]:
    """The fields that a file spells, or the standard input for `-`."""
    data = read_data(text_of(name, field), field=field)
    if not isinstance(data, dict):
        raise _refused(field, f"{name} is not a mapping", fix="{name: report, every: 1h, note: hello}")
    return data


def number_in(text: str) -> int | float | str:
    """A number if the text is one, else the text: whoever wanted a number says what is wrong with it."""
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(_WHOLE, text) else float(text)


def text_of(name: str, field: str, *, largest: int = LARGEST_TEXT) -> str:
    """What a file holds, or the standard input for `-`."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(largest + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(largest + 1)
    except OSError as error:
        why = f"{name} cannot be read: {error.strerror or error}"
        raise _refused(field, why, fix="a file that is there and may be read, or - for the input") from None
    if len(raw) > largest:
        raise _refused(field, f"{name} is larger than {largest // 1024} KiB", fix="a smaller file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refused(field, f"{name} is not UTF-8") from None


def _read_yaml(text: str, *, field: str) -> Any:
    # YAML takes long to import, and most commands never see any.
    from timewright.core.yaml_part import NotYaml, read_yaml

    try:
        return read_yaml(text)
    except NotYaml as error:
        raise _refused(field, str(error)) from None


class _TwiceError(ValueError):
    """A name that is given twice in one mapping."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(f"{next(n for n in names if names.count(n) > 1)[:64]!r} is given twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _refused(field: str, what: str, *, fix: str = _FIX) -> InvalidInput:
    return InvalidInput(f"{field} {what}", field=field, rule=_RULE, fix=fix)
