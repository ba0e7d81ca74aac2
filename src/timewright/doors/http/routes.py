"""From a method and a path to whoever answers; a path that is there says which methods it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from timewright.doors.http.problems import Refused
from timewright.doors.http.visits import Handler

Path = tuple[str, ...]

STARTS = 3


class _Pattern(NamedTuple):
    """A path with parameters: where they stand, what else has to stand where, and who answers."""

    path: Path
    named: tuple[tuple[int, str], ...]
    fixed: tuple[tuple[int, str], ...]
    methods: dict[str, Handler]

    def fits(self, segments: Path) -> bool:
        """Whether a path of as many segments is one of these; a parameter takes any one segment but none."""
        for i, text in self.fixed:
            if segments[i] != text:
                return False
        return all(segments[i] for i, _ in self.named)


class Routes:
    """Patterns of segments, those without parameters first; `{name}` takes any one segment but none."""

    def __init__(self) -> None:
        self._plain: dict[Path, dict[str, Handler]] = {}
        self._patterns: dict[tuple[int, Path], list[_Pattern]] = {}
        self.folders: dict[Path, Handler] = {}

    def add(self, method: str, path: Path, handler: Handler) -> None:
        """Answer a method at a path."""
        if not _parameters(path):
            self._plain.setdefault(path, {})[method] = handler
            return
        rows = self._patterns.setdefault((len(path), _start(path)), [])
        for known in rows:
            if known.path == path:
                known.methods[method] = handler
                return
        rows.append(_pattern(path, {method: handler}))
        rows.sort(key=lambda row: len(row.named))

    def find(self, method: str, segments: Path) -> tuple[Handler, Mapping[str, str]]:
        """Who answers, and what the path names."""
        wanted = "GET" if method == "HEAD" else method
        methods = self._plain.get(segments, {})
        if wanted in methods:
            return methods[wanted], {}
        allowed = set(methods)
        for start in (segments[:STARTS], ()):
            for pattern in self._patterns.get((len(segments), start), ()):
                if not pattern.fits(segments):
                    continue
                if wanted in pattern.methods:
                    return pattern.methods[wanted], {name: segments[i] for i, name in pattern.named}
                allowed |= set(pattern.methods)
        for folder, handler in self.folders.items():
            if segments[: len(folder)] == folder and not allowed:
                if method in ("GET", "HEAD"):
                    return handler, {}
                allowed.add("GET")
        if not allowed:
            raise _nothing_here(segments)
        raise _other_methods(method, allowed)


def _pattern(path: Path, methods: dict[str, Handler]) -> _Pattern:
    named = tuple((i, part[1:-1]) for i, part in enumerate(path) if part.startswith("{"))
    fixed = tuple((i, part) for i, part in enumerate(path) if not part.startswith("{"))
    return _Pattern(path, named, fixed, methods)


def _start(path: Path) -> Path:
    """What a path is kept under: its first segments, or nothing if one of them is a parameter."""
    start = path[:STARTS]
    return () if _parameters(start) else start


def _parameters(path: Path) -> int:
    return sum(part.startswith("{") for part in path)


def _nothing_here(segments: Path) -> Refused:
    fix = "without the slash at the end" if segments and not segments[-1] else "/openapi.json lists the paths"
    return Refused(404, "not_found", "there is nothing at this path", field="path", fix=fix)


def _other_methods(method: str, allowed: set[str]) -> Refused:
    listed = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set()) | {"OPTIONS"}))
    return Refused(
        405,
        "method_not_allowed",
        f"{method[:16]} is not asked here",
        field="method",
        value=method[:16],
        rule=f"one of: {listed}",
        fix=min(allowed),
        headers={"allow": listed},
    )
