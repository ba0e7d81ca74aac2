"""What a fault story is: the row of the fault matrix it tells, what is done, and what is expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from timewright.testing.faults.fleet import Fleet
from timewright.testing.postgres import fresh_database


class CannotRun(Exception):
    """This machine does not let the story be told; it says why, and nobody takes it for a success."""


class Scene:
    """Where a story takes place: a folder of its own, and a server that is started when it is asked for."""

    def __init__(self, folder: Path, server: Callable[[], str]) -> None:
        self.folder = folder
        self._server = server

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database of its own."""
        with fresh_database(self._server()) as url:
            yield url

    def fleet(self, place: str, **options: Any) -> Fleet:
        """No process yet, on a place."""
        return Fleet(place, self.folder / "journal", **options)

    @contextmanager
    def file_fleet(self, **options: Any) -> Iterator[Fleet]:
        """The same on a file of its own."""
        with self.fleet(str(self.folder / "store.db"), **options) as fleet:
            yield fleet


class Story(Struct, frozen=True, kw_only=True):
    """One fault on purpose; `work` raises where something else happened, and gives back what was seen."""

    name: str
    row: str
    done: str
    expected: str
    work: Callable[[Scene], str]
    quick: bool = False


class Held(Struct, frozen=True, kw_only=True):
    """A row that tests of the suite hold already; the lane runs them where they are."""

    name: str
    row: str
    done: str
    expected: str
    tests: tuple[str, ...]
