"""The routes of operations, derived from their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from timewright.operations import Operation, operations
from timewright.operations.registry import subject_of

InputFrom = Literal["query", "body"]
Segments = tuple[str, ...]
Handler = Callable[[Any], Awaitable[Any]]
# Method, path with `{name}` for a parameter, and handler.
HandledRoute = tuple[str, Segments, Handler]

# The path segment for a subject that is left out.
NO_SUBJECT = "-"
API_PREFIX = ("api", "v1")

_WITHOUT_PLURAL = frozenset({"audit"})
_JSON_TYPES = (mi.AnyType, mi.DictType, mi.StructType, mi.ListType, mi.VarTupleType)
# HTTP method of a verb, and whether its path is that of one object or of the collection.
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


class Route(Struct, frozen=True, kw_only=True):
    """One HTTP route of an operation: method, path, and where its input comes from."""

    operation: Operation[Any]
    method: str
    path: Segments
    input_from: InputFrom
    subject: str = ""
    subject_optional: bool = False

    @property
    def template(self) -> str:
        """The path with parameters: `/api/v1/schedules/{schedule}/pause`."""
        return "/" + "/".join(self.path)

    @property
    def operation_id(self) -> str:
        """The unique id in the OpenAPI description."""
        plain = self.operation.name.replace(" ", "_").replace("-", "_")
        is_second = self.method == "POST" and (self.operation.read_only or plain.endswith("_set"))
        return f"{plain}_by_post" if is_second else plain


def routes_of(operation: Operation[Any]) -> Iterator[Route]:
    """Yield all routes of an operation, the preferred one first."""
    last = (operation.verb.split() or [""])[-1]
    method, of = _VERBS.get(last, ("GET" if operation.read_only else "POST", "verb"))
    route = _route(operation, method, of)
    yield route
    if of == "verb" and method == "GET" and _takes_json(operation):
        # A read with structured input can also be sent as a POST body.
        yield replace(route, method="POST", input_from="body")
    if last == "set" and not _has_create_verb(operation.noun):
        yield _route(operation, "POST", "all")


def _route(operation: Operation[Any], method: str, of: str) -> Route:
    subject = subject_of(operation) if operation.noun else None
    named = subject is not None and (of != "all" or " " in operation.noun)
    field = subject.field if subject is not None and named else ""
    can_omit = of == "verb" or (of == "one" and method == "GET")
    return Route(
        operation=operation,
        method=method,
        path=_path(operation, field, of),
        input_from="query" if method in ("GET", "DELETE") else "body",
        subject=field,
        subject_optional=subject is not None and can_omit and not subject.required,
    )


def _has_create_verb(noun: str) -> bool:
    """Whether a noun has its own verb for creating objects, besides set."""
    return any(one.noun == noun and one.verb in ("create", "add") for one in operations)


def plural(noun: str) -> str:
    """Return the plural of a noun: schedules, queues, analyses."""
    if noun in _WITHOUT_PLURAL:
        return noun
    if noun.endswith("is"):
        return f"{noun[:-2]}es"
    return f"{noun}s"


def _path(operation: Operation[Any], subject: str, of: str) -> Segments:
    """Return the path; `queue policy` is a part of a queue: /queues/{queue}/policy."""
    first, *inner = operation.noun.split() or [""]
    *between, last = operation.verb.split() or [""]
    words = [*inner, *between, *([last] if of == "verb" and last else [])]
    where = [plural(first), *([f"{{{subject}}}"] if subject else [])] if first and last else [first]
    return (*API_PREFIX, *(part for part in (*where, *words) if part))


def _takes_json(operation: Operation[Any]) -> bool:
    """Whether a request has structured fields, which do not fit well into a query."""
    info = mi.type_info(operation.request_type)
    assert isinstance(info, mi.StructType)
    return any(isinstance(kind, _JSON_TYPES) for field in info.fields for kind in kinds_of(field.type))


def kinds_of(kind: mi.Type) -> tuple[mi.Type, ...]:
    """Return the types of a union, or the type alone."""
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)
