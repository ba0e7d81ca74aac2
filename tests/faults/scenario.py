"""What a fault scenario is: its row in the fault matrix, the action, and the expectation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.faults.tools.worker_fleet import WorkerFleet
from timewright.testing.postgres import fresh_database


class CannotRun(Exception):
    """This machine cannot run the scenario; the message says why, and it does not count as passed."""


class FaultEnvironment:
    """A folder, a PostgreSQL server that is started on demand, and how long a fault is held."""

    def __init__(self, folder: Path, server: Callable[[], str], *, held_s: float = 8.0) -> None:
        self.folder = folder
        self.held_s = held_s
        self._server = server

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database."""
        with fresh_database(self._server()) as url:
            yield url

    def fleet(self, place: str, **options: Any) -> WorkerFleet:
        """A fleet without workers on a store."""
        return WorkerFleet(place, self.folder / "journal", **options)

    @contextmanager
    def file_fleet(self, **options: Any) -> Iterator[WorkerFleet]:
        """A fleet on a new file."""
        with self.fleet(str(self.folder / "store.db"), **options) as fleet:
            yield fleet


class FaultScenario(Struct, frozen=True, kw_only=True):
    """One injected fault; `run` raises if the expectation fails, and returns what happened."""

    name: str
    row: str
    action: str
    expected: str
    run: Callable[[FaultEnvironment], str]
    quick: bool = False


class CoveredFault(Struct, frozen=True, kw_only=True):
    """A fault that tests of the suite cover already; the command runs them."""

    name: str
    row: str
    action: str
    expected: str
    tests: tuple[str, ...]
