"""The routes of operations, derived from their names, and the router that finds the handler of a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from timewright.interfaces.http.problems import HttpProblem
from timewright.operations import Operation, operations
from timewright.operations.registry import subject_of

InputFrom = Literal["query", "body"]
Path = tuple[str, ...]
Handler = Callable[[Any], Awaitable[Any]]

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
    path: Path
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
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def _path(operation: Operation[Any], subject: str, of: str) -> Path:
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
    return any(isinstance(kind, _JSON_TYPES) for field in info.fields for kind in _kinds(field.type))


def _kinds(kind: mi.Type) -> tuple[mi.Type, ...]:
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)


class _Node:
    """A position in the tree of paths: what follows it, and the handlers with their paths, by method."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.handlers: dict[str, tuple[Handler, Path]] = {}

    def find(self, segments: Path) -> Iterator[_Node]:
        """Yield the ends of a path: a fixed segment before a parameter, which is not empty."""
        if not segments:
            yield self
            return
        first, rest = segments[0], segments[1:]
        if first in self.fixed:
            yield from self.fixed[first].find(rest)
        if first and self.parameter is not None:
            yield from self.parameter.find(rest)


class Router:
    """Finds the handler of a method and path; `{name}` matches one segment, also one with an encoded slash.

    Starlette's router tries one pattern after another and splits a name at an encoded slash.
    """

    def __init__(self, fallback: Handler) -> None:
        self._root = _Node()
        self._fallback = fallback

    def add(self, method: str, path: Path, handler: Handler) -> None:
        """Add a handler for a method and a path."""
        node = self._root
        for part in path:
            if part.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.fixed.setdefault(part, _Node())
        node.handlers[method] = (handler, path)

    def match(self, method: str, segments: Path) -> tuple[Handler, Mapping[str, str]]:
        """Return the handler and the path parameters; an unknown path has the fallback, for GET only."""
        found = [node for node in self._root.find(segments) if node.handlers]
        wanted = "GET" if method == "HEAD" else method
        for node in found:
            if wanted in node.handlers:
                handler, path = node.handlers[wanted]
                pairs = zip(path, segments, strict=True)
                return handler, {part[1:-1]: text for part, text in pairs if part.startswith("{")}
        if not found and wanted == "GET":
            return self._fallback, {}
        raise _method_not_allowed(method, {one for node in found for one in node.handlers} or {"GET"})


def _method_not_allowed(method: str, allowed: set[str]) -> HttpProblem:
    listed = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set()) | {"OPTIONS"}))
    return HttpProblem(
        405,
        "method_not_allowed",
        "method not allowed",
        field="method",
        value=method[:16],
        rule=f"one of: {listed}",
        fix="/openapi.json lists the methods of each path",
        headers={"allow": listed},
    )
