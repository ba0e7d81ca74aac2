"""Stores that several processes can share: a file, or a database on the server of the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from tests.faults.tools.worker_fleet import WorkerFleet
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_url"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # However busy the machine is, no query counts as slow, so each sleep has a known length.
    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBE_S", inf)
    monkeypatch.setattr("timewright.stores.queries.tick.PAUSED_PROBE_S", inf)
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(params=("sqlite", "postgres"))
def place(request: pytest.FixtureRequest) -> str:
    """The URL of a new store, of each kind."""
    return str(request.getfixturevalue("file" if request.param == "sqlite" else "database"))


@pytest.fixture
def fleet(place: str, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Worker processes on that store; all are stopped when the test ends."""
    with WorkerFleet(place, tmp_path / "journal") as fleet:
        yield fleet


@pytest.fixture
def file_fleet(file: str, tmp_path: Path) -> Iterator[WorkerFleet]:
    """Worker processes on a SQLite file."""
    with WorkerFleet(file, tmp_path / "journal") as fleet:
        yield fleet
