"""Every test of this folder runs on each database, because all stores must behave the same."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conformance.support.builders import NOON
from tests.conformance.support.databases import Database
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database, shared_postgres

KINDS = ("sqlite", "postgres")
TABLES: tuple[str, ...] = (
    "runs",
    "attempts",
    "attempt_output",
    "run_progress",
    "artifacts",
    "external_ids",
    "schedules",
    "revisions",
    "workflow_steps",
    "audit_seals",
)
TABLES += ("limits", "limit_holds", "objects", "audit", "meta", "budget_accounts", "budget_charges")
TABLES += (
    "schedule_links",
    "follow_ups",
    "dependency_waits",
    "pauses",
    "adjustments",
    "ready_buckets",
    "incidents",
    "run_counts",
    "run_recounts",
)


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start one server for the whole test run, shared by all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared_postgres(folder / "postgres") as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """Return the name of a template database with the schema."""
    with fresh_database(postgres_url) as url:
        PostgresStore(url).close()
        yield str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


@pytest.fixture(scope="session")
def postgres_place(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """Return one database for all tests of this worker; each test empties it."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        yield place


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def kind() -> str:
    raise AssertionError("every test of this folder is given its kind of store")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test by database; in memory too if the test needs only one store."""
    if "kind" not in metafunc.fixturenames or "kind" in _marked(metafunc):
        return
    asked = set(inspect.signature(metafunc.function).parameters)
    alone = not asked & {"database", "own_database", "kind"}
    metafunc.parametrize("kind", [*KINDS, "memory"] if alone else KINDS)


def _marked(metafunc: pytest.Metafunc) -> set[str]:
    """Return the names by which a test parametrizes itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    return {name.strip() for mark in marks for name in str(mark.args[0]).split(",")}


@pytest.fixture
def database(
    kind: str, clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """An empty database for this test; its rows may be changed, its tables not."""
    if kind != "postgres":
        place = ":memory:" if kind == "memory" else str(tmp_path / "store.db")
        yield from _closed_at_the_end(Database(kind, place, clock=clock))
        return
    place = request.getfixturevalue("postgres_place")
    yield from _closed_at_the_end(Database(kind, place, clock=clock))
    with psycopg.connect(place) as connection:
        connection.execute("; ".join(f"DELETE FROM {table}" for table in TABLES).encode())


@pytest.fixture
def own_database(
    kind: str, clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """A database that is dropped afterwards, for tests that change tables."""
    if kind == "sqlite":
        yield from _closed_at_the_end(Database(kind, str(tmp_path / "store.db"), clock=clock))
        return
    url, template = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_template")
    with fresh_database(url, template=template) as place:
        yield from _closed_at_the_end(Database(kind, place, clock=clock))


@pytest.fixture
def store(database: Database) -> Any:
    return database.open()


def _closed_at_the_end(database: Database) -> Iterator[Database]:
    try:
        yield database
    finally:
        database.close()
