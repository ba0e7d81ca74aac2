"""Places for real processes to share: a file, or a database on the server the conformance suite starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import postgres_url
from tests.engine.fleet import Fleet
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_url"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(params=("sqlite", "postgres"))
def place(request: pytest.FixtureRequest) -> str:
    """One store for this test alone, first of the one kind and then of the other."""
    return str(request.getfixturevalue("file" if request.param == "sqlite" else "database"))


@pytest.fixture
def fleet(place: str, tmp_path: Path) -> Iterator[Fleet]:
    """No process yet, on that place; whatever was started is gone when the test ends."""
    with Fleet(place, tmp_path / "journal") as fleet:
        yield fleet


@pytest.fixture
def file_fleet(file: str, tmp_path: Path) -> Iterator[Fleet]:
    """The same on a file alone."""
    with Fleet(file, tmp_path / "journal") as fleet:
        yield fleet
