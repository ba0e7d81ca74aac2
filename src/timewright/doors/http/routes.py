"""From a method and a path to whoever answers; a path that is there says which methods it takes."""

from __future__ import annotations

from collections.abc import Mapping

from timewright.doors.http.problems import Refused
from timewright.doors.http.visits import Handler

Path = tuple[str, ...]

STARTS = 3


class Routes:
    """Patterns of segments, those without parameters first; `{name}` takes any one segment but none."""

    def __init__(self) -> None:
        self._plain: dict[Path, dict[str, Handler]] = {}
        self._patterns: dict[tuple[int, Path], list[tuple[Path, dict[str, Handler]]]] = {}
        self.folders: dict[Path, Handler] = {}

    def add(self, method: str, path: Path, handler: Handler) -> None:
        """Answer a method at a path."""
        if not _parameters(path):
            self._plain.setdefault(path, {})[method] = handler
            return
        rows = self._patterns.setdefault((len(path), _start(path)), [])
        for known, methods in rows:
            if known == path:
                methods[method] = handler
                return
        rows.append((path, {method: handler}))
        rows.sort(key=lambda row: _parameters(row[0]))

    def find(self, method: str, segments: Path) -> tuple[Handler, Mapping[str, str]]:
        """Who answers, and what the path names."""
        wanted = "GET" if method == "HEAD" else method
        methods = self._plain.get(segments, {})
        if wanted in methods:
            return methods[wanted], {}
        allowed = set(methods)
        for start in (segments[:STARTS], ()):
            for path, methods in self._patterns.get((len(segments), start), ()):
                named = _fits(path, segments)
                if named is None:
                    continue
                if wanted in methods:
                    return methods[wanted], named
                allowed |= set(methods)
        for folder, handler in self.folders.items():
            if segments[: len(folder)] == folder and not allowed:
                if method in ("GET", "HEAD"):
                    return handler, {}
                allowed.add("GET")
        if not allowed:
            raise _nothing_here(segments)
        raise _other_methods(method, allowed)


def _start(path: Path) -> Path:
    """What a path is kept under: its first segments, or nothing if one of them is a parameter."""
    start = path[:STARTS]
    return () if _parameters(start) else start


def _parameters(path: Path) -> int:
    return sum(part.startswith("{") for part in path)


def _fits(path: Path, segments: Path) -> dict[str, str] | None:
    named: dict[str, str] = {}
    for wanted, found in zip(path, segments, strict=True):
        if wanted[:1] == "{" and found:
            named[wanted[1:-1]] = found
        elif wanted != found:
            return None
    return named


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
