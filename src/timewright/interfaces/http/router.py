"""Finds the handler of a method and path; a known path with another method gives 405 with Allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.requests.http_request import Handler

Path = tuple[str, ...]

PREFIX_SEGMENTS = 3


class _Pattern(NamedTuple):
    """A path with parameters: their positions, the fixed segments, and the handlers by method."""

    path: Path
    parameters: tuple[tuple[int, str], ...]
    fixed: tuple[tuple[int, str], ...]
    methods: dict[str, Handler]

    def matches(self, segments: Path) -> bool:
        """Whether a path of the same length matches; a parameter matches one non-empty segment."""
        for i, text in self.fixed:
            if segments[i] != text:
                return False
        return all(segments[i] for i, _ in self.parameters)


class Router:
    """Routes by path segments; fixed paths win over patterns, `{name}` matches one non-empty segment."""

    def __init__(self) -> None:
        self._fixed: dict[Path, dict[str, Handler]] = {}
        self._patterns: dict[tuple[int, Path], list[_Pattern]] = {}
        self.folders: dict[Path, Handler] = {}

    def add(self, method: str, path: Path, handler: Handler) -> None:
        """Add a handler for a method and a path."""
        if not _has_parameters(path):
            self._fixed.setdefault(path, {})[method] = handler
            return
        rows = self._patterns.setdefault((len(path), _prefix(path)), [])
        for known in rows:
            if known.path == path:
                known.methods[method] = handler
                return
        rows.append(_pattern(path, {method: handler}))
        rows.sort(key=lambda row: len(row.parameters))

    def match(self, method: str, segments: Path) -> tuple[Handler, Mapping[str, str]]:
        """Return the handler and the path parameters; raises `HttpProblem` 404 or 405."""
        wanted = "GET" if method == "HEAD" else method
        methods = self._fixed.get(segments, {})
        if wanted in methods:
            return methods[wanted], {}
        allowed = set(methods)
        for start in (segments[:PREFIX_SEGMENTS], ()):
            for pattern in self._patterns.get((len(segments), start), ()):
                if not pattern.matches(segments):
                    continue
                if wanted in pattern.methods:
                    return pattern.methods[wanted], {name: segments[i] for i, name in pattern.parameters}
                allowed |= set(pattern.methods)
        for folder, handler in self.folders.items():
            if segments[: len(folder)] == folder and not allowed:
                if method in ("GET", "HEAD"):
                    return handler, {}
                allowed.add("GET")
        if not allowed:
            raise _not_found(segments)
        raise _method_not_allowed(method, allowed)


def _pattern(path: Path, methods: dict[str, Handler]) -> _Pattern:
    parameters = tuple((i, part[1:-1]) for i, part in enumerate(path) if part.startswith("{"))
    fixed = tuple((i, part) for i, part in enumerate(path) if not part.startswith("{"))
    return _Pattern(path, parameters, fixed, methods)


def _prefix(path: Path) -> Path:
    """Return the first segments, or nothing if one of them is a parameter; patterns are grouped by it."""
    start = path[:PREFIX_SEGMENTS]
    return () if _has_parameters(start) else start


def _has_parameters(path: Path) -> bool:
    return any(part.startswith("{") for part in path)


def _not_found(segments: Path) -> HttpProblem:
    fix = "remove the trailing slash" if segments and not segments[-1] else "/openapi.json lists the paths"
    return HttpProblem(404, "not_found", "path not found", field="path", fix=fix)


def _method_not_allowed(method: str, allowed: set[str]) -> HttpProblem:
    listed = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set()) | {"OPTIONS"}))
    return HttpProblem(
        405,
        "method_not_allowed",
        "method not allowed",
        field="method",
        value=method[:16],
        rule=f"one of: {listed}",
        fix=min(allowed),
        headers={"allow": listed},
    )
