"""The condition language of workflows: what a condition is made of, and whether it holds.

    steps.fetch.result.count > 0 and not (input.region in ["eu", "us"])

Paths begin with `steps`, `input` or `item` and go on with `.name`, `[0]` or `["name"]`. There are
comparisons, `in`, `and`, `or`, `not`, parentheses, lists, texts, numbers, `true`, `false` and `null`.
There are no calls and no arithmetic, so every condition ends, and none can fail: what a path does not
find is `null`, and things of different kinds are neither equal nor smaller nor larger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

ROOTS = ("steps", "input", "item")

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)

Segment: TypeAlias = str | int
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()


class Path(Struct, frozen=True):
    """Where a value is found, and where in the text it was named."""

    segments: tuple[Segment, ...]
    position: int = 0

    @property
    def root(self) -> str:
        """The first word: `steps`, `input` or `item`."""
        return str(self.segments[0])

    @property
    def step(self) -> str | None:
        """The step it speaks of, if it speaks of one."""
        return str(self.segments[1]) if self.root == "steps" and len(self.segments) > 1 else None

    def __str__(self) -> str:
        return _spelled(self.segments)


class Constant(Struct, frozen=True):
    """A value that was written out."""

    value: Any


class Listed(Struct, frozen=True):
    """A list of things, each found or written out."""

    items: tuple[Expression, ...]


class Negated(Struct, frozen=True):
    """True when what it holds is not."""

    inner: Expression


class Joined(Struct, frozen=True):
    """Several conditions of which all, or any, must hold."""

    parts: tuple[Expression, ...]
    needs_all: bool


class Compared(Struct, frozen=True):
    """Two things and how they should stand to each other."""

    sign: str
    left: Expression
    right: Expression


Expression: TypeAlias = Path | Constant | Listed | Negated | Joined | Compared


def holds(condition: Expression, scope: Mapping[str, Any]) -> bool:
    """Whether a condition is true of what is known; `false`, `null`, 0 and everything empty are not."""
    return bool(_value(condition, scope))


def find(path: Path, scope: Mapping[str, Any]) -> Any:
    """What a path leads to, or MISSING."""
    found: Any = scope
    for segment in path.segments:
        if isinstance(segment, str) and isinstance(found, Mapping):
            found = found.get(segment, MISSING)
        elif isinstance(segment, int) and isinstance(found, list | tuple) and segment < len(found):
            found = found[segment]
        else:
            return MISSING
    return found


def paths(expression: Expression) -> Iterator[Path]:
    """Every path an expression speaks of."""
    if isinstance(expression, Path):
        yield expression
    elif isinstance(expression, Negated):
        yield from paths(expression.inner)
    elif isinstance(expression, Compared):
        yield from paths(expression.left)
        yield from paths(expression.right)
    elif isinstance(expression, Joined | Listed):
        for part in expression.parts if isinstance(expression, Joined) else expression.items:
            yield from paths(part)


def _value(expression: Expression, scope: Mapping[str, Any]) -> Any:
    match expression:
        case Path():
            found = find(expression, scope)
            return None if found is MISSING else found
        case Constant(value):
            return value
        case Listed(items):
            return [_value(item, scope) for item in items]
        case Negated(inner):
            return not _value(inner, scope)
        case Joined(parts, needs_all):
            held = (bool(_value(part, scope)) for part in parts)
            return all(held) if needs_all else any(held)
        case Compared(sign, left, right):
            return _SIGNS[sign](_value(left, scope), _value(right, scope))


def _kind(value: Any) -> str:
    """JSON's kinds; a truth is not a number, whatever Python thinks."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "truth"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list | tuple) else "object"


def _same(left: Any, right: Any) -> bool:
    """Equal in kind and value, all the way down, without recursion."""
    pairs = [(left, right)]
    while pairs:
        a, b = pairs.pop()
        kind = _kind(a)
        if kind != _kind(b):
            return False
        if kind == "list":
            if len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif kind == "object" and isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            pairs.extend((a[key], b[key]) for key in a)
        elif a != b:
            return False
    return True


def _smaller(left: Any, right: Any) -> bool:
    kind = _kind(left)
    return kind == _kind(right) and kind in ("number", "text") and bool(left < right)


def _inside(left: Any, right: Any) -> bool:
    if isinstance(right, str):
        return isinstance(left, str) and left in right
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    return isinstance(right, list | tuple) and any(_same(left, item) for item in right)


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _same,
    "!=": lambda a, b: not _same(a, b),
    "<": _smaller,
    ">": lambda a, b: _smaller(b, a),
    "<=": lambda a, b: _smaller(a, b) or _same(a, b),
    ">=": lambda a, b: _smaller(b, a) or _same(a, b),
    "in": _inside,
    "not in": lambda a, b: not _inside(a, b),
}


def _spelled(segments: Sequence[Segment]) -> str:
    """The path as it would be written."""
    words = [str(segments[0])]
    for segment in segments[1:]:
        plain = isinstance(segment, str) and _PLAIN.fullmatch(segment)
        words.append(f".{segment}" if plain else f"[{segment!r}]")
    return "".join(words)
