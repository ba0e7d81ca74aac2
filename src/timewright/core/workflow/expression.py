"""The one expression language, of workflows and of rules over answers: the syntax tree and its evaluation.

    steps.fetch.result.count > 0 and not (input.region in ["eu", "us"])

Paths begin with a root (in workflows `steps`, `input` or `item`) and continue with `.name`, `[0]` or
`["name"]`. There are comparisons, `in`, `and`, `or`, `not`, parentheses, lists, strings, numbers, `true`,
`false`, `null`, and the functions of FUNCTIONS. There is no arithmetic, so every evaluation ends and none can
fail: a missing value is `null`, and values of different types are neither equal nor smaller nor larger.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

ROOTS = ("steps", "input", "item")
# The root of the values that `changed(path)` compares with, by the text of the path.
SEEN = "seen"
MAX_SEEN_BYTES = 1000

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)

Segment: TypeAlias = str | int
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()


class ValuePath(Struct, frozen=True):
    """The path of a value, and its position in the text."""

    segments: tuple[Segment, ...]
    position: int = 0

    @property
    def root(self) -> str:
        """The first segment: `steps`, `input` or `item`."""
        return str(self.segments[0])

    @property
    def step(self) -> str | None:
        """The name of the step, if the path refers to one."""
        return str(self.segments[1]) if self.root == "steps" and len(self.segments) > 1 else None

    def __str__(self) -> str:
        return _path_text(self)


@lru_cache(maxsize=4096)
def _path_text(path: ValuePath) -> str:
    """The text of a path; cached, because every answer of a watch needs it."""
    words = [path.root]
    for segment in path.segments[1:]:
        plain = isinstance(segment, str) and _IDENTIFIER.fullmatch(segment)
        words.append(f".{segment}" if plain else f"[{segment!r}]")
    return "".join(words)


class LiteralValue(Struct, frozen=True):
    """A literal value."""

    value: Any


class ListExpression(Struct, frozen=True):
    """A list of expressions."""

    items: tuple[Expression, ...]


class NotExpression(Struct, frozen=True):
    """Logical negation."""

    inner: Expression


class BooleanExpression(Struct, frozen=True):
    """Several conditions joined by `and` or `or`."""

    parts: tuple[Expression, ...]
    is_and: bool


class Comparison(Struct, frozen=True):
    """A comparison of two expressions."""

    operator: str
    left: Expression
    right: Expression


class FunctionCall(Struct, frozen=True):
    """A function of FUNCTIONS, or `changed(path)`, with its argument."""

    name: str
    argument: Expression


Expression: TypeAlias = (
    ValuePath | LiteralValue | ListExpression | NotExpression | BooleanExpression | Comparison | FunctionCall
)


def evaluate_condition(condition: Expression, scope: Mapping[str, Any]) -> bool:
    """Whether a condition is true; `false`, `null`, 0 and empty values are false."""
    return bool(evaluate(condition, scope))


def resolve_path(path: ValuePath, scope: Mapping[str, Any]) -> Any:
    """Return the value at a path, or MISSING."""
    found: Any = scope
    for segment in path.segments:
        if isinstance(segment, str) and isinstance(found, Mapping):
            found = found.get(segment, MISSING)
        elif isinstance(segment, int) and isinstance(found, list | tuple) and segment < len(found):
            found = found[segment]
        else:
            return MISSING
    return found


def fingerprint(value: Any) -> Any:
    """Return a value as it is remembered for `changed`: itself while it is small, else its SHA-256."""
    encoded = msgspec.json.encode(value, order="deterministic")
    return value if len(encoded) <= MAX_SEEN_BYTES else f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def changed_paths(expression: Expression) -> Iterator[ValuePath]:
    """Yield the paths that an expression compares with what was seen last."""
    if isinstance(expression, FunctionCall) and expression.name == "changed":
        yield from iter_paths(expression.argument)
    for part in _parts(expression):
        yield from changed_paths(part)


def iter_paths(expression: Expression) -> Iterator[ValuePath]:
    """Yield every path in an expression."""
    if isinstance(expression, ValuePath):
        yield expression
    for part in _parts(expression):
        yield from iter_paths(part)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case NotExpression(inner) | FunctionCall(_, inner):
            return (inner,)
        case Comparison(_, left, right):
            return (left, right)
        case BooleanExpression(parts) | ListExpression(parts):
            return parts
        case _:
            return ()


def evaluate(expression: Expression, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression; a path that finds nothing is None."""
    match expression:
        case ValuePath():
            found = resolve_path(expression, scope)
            return None if found is MISSING else found
        case LiteralValue(value):
            return value
        case ListExpression(items):
            return [evaluate(item, scope) for item in items]
        case NotExpression(inner):
            return not evaluate(inner, scope)
        case BooleanExpression(parts, needs_all):
            results = (bool(evaluate(part, scope)) for part in parts)
            return all(results) if needs_all else any(results)
        case Comparison(sign, left, right):
            return _OPERATORS[sign](evaluate(left, scope), evaluate(right, scope))
        case FunctionCall("changed", argument):
            seen, name = scope.get(SEEN, {}), str(argument)
            # The first value is only remembered: there is nothing that it differs from.
            return name in seen and not _equals(fingerprint(evaluate(argument, scope)), seen[name])
        case FunctionCall(name, argument):
            return FUNCTIONS[name](evaluate(argument, scope))


def _json_type(value: Any) -> str:
    """Return the JSON type of a value; unlike in Python, a boolean is not a number."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "truth"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list | tuple) else "object"


def _equals(left: Any, right: Any) -> bool:
    """Deep equality of type and value, without recursion."""
    pairs = [(left, right)]
    while pairs:
        a, b = pairs.pop()
        kind = _json_type(a)
        if kind != _json_type(b):
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


def _less_than(left: Any, right: Any) -> bool:
    kind = _json_type(left)
    return kind == _json_type(right) and kind in ("number", "text") and bool(left < right)


def _contains(left: Any, right: Any) -> bool:
    if isinstance(right, str):
        return isinstance(left, str) and left in right
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    return isinstance(right, list | tuple) and any(_equals(left, item) for item in right)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equals,
    "!=": lambda a, b: not _equals(a, b),
    "<": _less_than,
    ">": lambda a, b: _less_than(b, a),
    "<=": lambda a, b: _less_than(a, b) or _equals(a, b),
    ">=": lambda a, b: _less_than(b, a) or _equals(a, b),
    "in": _contains,
    "not in": lambda a, b: not _contains(a, b),
}


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | tuple | Mapping) else None


# Functions of one value; none of them can fail.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "length": _length,
    "empty": lambda value: value is None or _length(value) == 0,
    "lower": lambda value: value.lower() if isinstance(value, str) else value,
}
