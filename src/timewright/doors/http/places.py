"""Where each operation is found: one rule from its name to a method and a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from timewright.operations import Operation, operations
from timewright.operations.subjects import subject_of

Takes = Literal["query", "body"]

# In a path, for a subject that may be left out and is.
NOBODY = "-"
PREFIX = ("api", "v1")

_UNCOUNTED = frozenset({"audit"})
_DATA = (mi.AnyType, mi.DictType, mi.StructType, mi.ListType, mi.VarTupleType)
# What a verb means to HTTP: its method, and whether it is asked of one thing or of all of them.
_VERBS = {
    "list": ("GET", "all"),
    "get": ("GET", "one"),
    "show": ("GET", "one"),
    "create": ("POST", "all"),
    "add": ("POST", "all"),
    "set": ("PUT", "one"),
    "put": ("PUT", "one"),
    "update": ("PATCH", "one"),
    "delete": ("DELETE", "one"),
}


class Place(Struct, frozen=True, kw_only=True):
    """One way to ask for an operation: method, path, and where its request is read from."""

    operation: Operation[Any]
    method: str
    path: tuple[str, ...]
    takes: Takes
    subject: str = ""
    leaves_out: bool = False

    @property
    def template(self) -> str:
        """The path as it is written down: `/api/v1/schedules/{schedule}/pause`."""
        return "/" + "/".join(self.path)

    @property
    def name(self) -> str:
        """A name of its own in the description of the API."""
        plain = self.operation.name.replace(" ", "_").replace("-", "_")
        is_second = self.method == "POST" and (self.operation.reads_only or plain.endswith("_set"))
        return f"{plain}_by_post" if is_second else plain


def places_of(operation: Operation[Any]) -> Iterator[Place]:
    """Every way to ask for one operation, the usual one first."""
    last = (operation.verb.split() or [""])[-1]
    method, of = _VERBS.get(last, ("GET" if operation.reads_only else "POST", "verb"))
    place = _place(operation, method, of)
    yield place
    if of == "verb" and method == "GET" and _takes_data(operation):
        # What only reads, and is more than words and numbers, may also be asked with a body.
        yield replace(place, method="POST", takes="body")
    if last == "set" and not _is_made(operation.noun):
        yield _place(operation, "POST", "all")


def _place(operation: Operation[Any], method: str, of: str) -> Place:
    subject = subject_of(operation) if operation.noun else None
    named = subject is not None and (of != "all" or " " in operation.noun)
    field = subject.field if subject is not None and named else ""
    asks = of == "verb" or (of == "one" and method == "GET")
    return Place(
        operation=operation,
        method=method,
        path=_path(operation, field, of),
        takes="query" if method in ("GET", "DELETE") else "body",
        subject=field,
        leaves_out=subject is not None and asks and not subject.required,
    )


def _is_made(noun: str) -> bool:
    """Whether things of a kind are made by another operation than the one that sets them."""
    return any(one.noun == noun and one.verb in ("create", "add") for one in operations)


def plural(noun: str) -> str:
    """The things of a kind: schedules, queues, analyses."""
    if noun in _UNCOUNTED:
        return noun
    if noun.endswith("is"):
        return f"{noun[:-2]}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def _path(operation: Operation[Any], subject: str, of: str) -> tuple[str, ...]:
    """`queue policy` is a part of a queue: /queues/{queue}/policy."""
    first, *inner = operation.noun.split() or [""]
    *between, last = operation.verb.split() or [""]
    words = [*inner, *between, *([last] if of == "verb" and last else [])]
    where = [plural(first), *([f"{{{subject}}}"] if subject else [])] if first and last else [first]
    return (*PREFIX, *(part for part in (*where, *words) if part))


def _takes_data(operation: Operation[Any]) -> bool:
    """Whether a request holds more than words and numbers, and is awkward in a query."""
    info = mi.type_info(operation.request)
    assert isinstance(info, mi.StructType)
    return any(isinstance(kind, _DATA) for field in info.fields for kind in _kinds(field.type))


def _kinds(kind: mi.Type) -> tuple[mi.Type, ...]:
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)
