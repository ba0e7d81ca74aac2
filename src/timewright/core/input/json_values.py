"""Checks that data is JSON-compatible, and limits its size and depth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from timewright.errors import InvalidInput

# The location of a value as a linked list: the location of its container, and its key or index.
_Location: TypeAlias = "tuple[_Location | None, str | int]"
_CONTAINERS = (dict, list, tuple)


def check_json(
    raw: Any,
    *,
    max_depth: int,
    max_values: int,
    where: str = "",
    error_type: type[InvalidInput] = InvalidInput,
) -> int:
    """Return the number of values; refuse data that is too deep, too large, or not JSON-compatible."""
    if not isinstance(raw, _CONTAINERS):
        _check_leaf(raw, (None, where), error_type)
        return 1
    count, depth = 1, 0
    level: list[tuple[Any, _Location]] = [(raw, (None, where))]
    while level:
        inner: list[tuple[Any, _Location]] = []
        for value, location in level:
            count += len(value)
            if depth >= max_depth or count > max_values:
                raise _too_large_error(
                    _format_path(location),
                    error_type,
                    rule=f"at most {max_depth} levels and {max_values} values",
                )
            for name, item in _members(value, location, error_type):
                if isinstance(item, _CONTAINERS):
                    inner.append((item, (location, name)))
                elif type(item) is not str:
                    _check_leaf(item, (location, name), error_type)
        level, depth = inner, depth + 1
    return count


def _members(value: Any, location: _Location, error_type: type[InvalidInput]) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, dict):
        return enumerate(value)
    invalid_keys = [name for name in value if not isinstance(name, str)]
    if invalid_keys:
        raise _not_json_error(
            invalid_keys[0], _format_path(location), error_type, what="a key that is not text"
        )
    return value.items()


def _check_leaf(item: Any, location: _Location, error_type: type[InvalidInput]) -> None:
    if item is None or isinstance(item, str | int):
        return
    if not isinstance(item, float):
        raise _not_json_error(item, _format_path(location), error_type, what=f"a {type(item).__name__}")
    if not math.isfinite(item):
        raise _not_json_error(item, _format_path(location), error_type, what="a number that is not finite")


def _format_path(location: _Location) -> str:
    """Return the path of a location; built only for error messages, because it is slow."""
    parts: list[str] = []
    rest: _Location | None = location
    while rest is not None:
        rest, name = rest
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name[:64]}")
    return "".join(reversed(parts)).lstrip(".")


def _not_json_error(value: object, where: str, error_type: type[InvalidInput], *, what: str) -> InvalidInput:
    return error_type(
        f"{where or 'this'} contains {what}, which is not valid JSON",
        field=where,
        value=str(value)[:64],
        rule="text, finite numbers, true, false, null, lists and objects",
        fix="write it as text, in quotes",
    )


def _too_large_error(where: str, error_type: type[InvalidInput], *, rule: str) -> InvalidInput:
    return error_type(
        f"{where[:200] or 'this'} is too deep or too large",
        field=where[:200],
        rule=rule,
        fix="reduce the data; let a step fetch large inputs",
    )
