"""Every test of this folder is run for each store: what a verb means does not depend on the database."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conformance.builders import NOON
from tests.conformance.databases import Database
from timewright.stores.postgres import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database, shared_postgres

KINDS = ("sqlite", "postgres")
TABLES: tuple[str, ...] = ("runs", "steps", "attempts", "said", "schedules", "revisions")
TABLES += ("gates", "holds", "objects", "audit", "meta", "links", "follow_ups", "waits")
TABLES += ("accounts", "charges")


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the whole run, also when several workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared_postgres(folder / "postgres") as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """The name of a database with the schema in it, from which others are copied."""
    with fresh_database(postgres_url) as url:
        PostgresStore(url).close()
        yield str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


@pytest.fixture(scope="session")
def postgres_place(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """One database for all tests of this worker; each leaves it empty."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        yield place


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def kind() -> str:
    raise AssertionError("every test of this folder is given its kind of store")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test for each kind; a store in memory where one store is all that the test needs."""
    if "kind" not in metafunc.fixturenames or "kind" in _marked(metafunc):
        return
    asked = set(inspect.signature(metafunc.function).parameters)
    alone = not asked & {"database", "own_database", "kind"}
    metafunc.parametrize("kind", [*KINDS, "memory"] if alone else KINDS)


def _marked(metafunc: pytest.Metafunc) -> set[str]:
    """What a test is parametrised by on its own account."""
    marks = metafunc.definition.iter_markers("parametrize")
    return {name.strip() for mark in marks for name in str(mark.args[0]).split(",")}


@pytest.fixture
def database(
    kind: str, clock: ManualClock, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Database]:
    """A database for this test alone, with the schema as it is: its rows may be changed, its tables not."""
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
    """A database that is thrown away, for tests that change its tables."""
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
