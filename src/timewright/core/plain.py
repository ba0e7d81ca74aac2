"""Plain data: how much of it there is, how deep it goes, and that it is nothing but data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from timewright.errors import InvalidInput

# Where a value was found: the trail of what holds it, and its name or position there.
_Trail: TypeAlias = "tuple[_Trail | None, str | int]"
_CONTAINERS = (dict, list, tuple)


def check_plain(
    raw: Any, *, deepest: int, most: int, where: str = "", refusal: type[InvalidInput] = InvalidInput
) -> int:
    """How many values there are; data that is too deep, too much, or more than data is refused."""
    if not isinstance(raw, _CONTAINERS):
        _check_leaf(raw, (None, where), refusal)
        return 1
    count, depth = 1, 0
    level: list[tuple[Any, _Trail]] = [(raw, (None, where))]
    while level:
        inner: list[tuple[Any, _Trail]] = []
        for value, trail in level:
            count += len(value)
            if depth >= deepest or count > most:
                raise _too_large(_spelled(trail), refusal, rule=f"at most {deepest} levels and {most} values")
            for name, item in _members(value, trail, refusal):
                if isinstance(item, _CONTAINERS):
                    inner.append((item, (trail, name)))
                elif type(item) is not str:
                    _check_leaf(item, (trail, name), refusal)
        level, depth = inner, depth + 1
    return count


def _members(value: Any, trail: _Trail, refusal: type[InvalidInput]) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, dict):
        return enumerate(value)
    odd = [name for name in value if not isinstance(name, str)]
    if odd:
        raise _not_plain(odd[0], _spelled(trail), refusal, what="a name that is no text")
    return value.items()


def _check_leaf(item: Any, trail: _Trail, refusal: type[InvalidInput]) -> None:
    if item is None or isinstance(item, str | int):
        return
    if not isinstance(item, float):
        raise _not_plain(item, _spelled(trail), refusal, what=f"a {type(item).__name__}")
    if not math.isfinite(item):
        raise _not_plain(item, _spelled(trail), refusal, what="no number")


def _spelled(trail: _Trail) -> str:
    """The path at the end of a trail; paths are only spelled when something is wrong there."""
    parts: list[str] = []
    rest: _Trail | None = trail
    while rest is not None:
        rest, name = rest
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name[:64]}")
    return "".join(reversed(parts)).lstrip(".")


def _not_plain(value: object, where: str, refusal: type[InvalidInput], *, what: str) -> InvalidInput:
    return refusal(
        f"{where or 'this'} holds {what}, which JSON cannot say",
        field=where,
        value=str(value)[:64],
        rule="text, finite numbers, true, false, null, lists and objects",
        fix="write it as text, in quotes",
    )


def _too_large(where: str, refusal: type[InvalidInput], *, rule: str) -> InvalidInput:
    return refusal(
        f"{where[:200] or 'this'} is too deep, or there is too much of it",
        field=where[:200],
        rule=rule,
        fix="less data here; large inputs are fetched by a step",
    )
