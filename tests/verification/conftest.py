"""A busy day on each store, created once and damaged by many tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import KINDS, postgres_template, postgres_url
from tests.conformance.support.databases import Database
from tests.verification.busy_day import START, busy_day
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["postgres_template", "postgres_url"]


@pytest.fixture(scope="session")
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(scope="session", params=KINDS)
def busy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clock: ManualClock
) -> Iterator[Database]:
    """A store after a busy day, with unfinished runs."""
    clock.step(START)
    if request.param == "sqlite":
        place = tmp_path_factory.mktemp("busy") / "store.db"
        _lived_in_memory(place, clock)
        yield from _closed_at_the_end(Database("sqlite", str(place), clock=clock))
        return
    url, template = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_template")
    with fresh_database(url, template=template) as fresh:
        database = Database("postgres", fresh, clock=clock)
        busy_day(database.open(), clock)
        yield from _closed_at_the_end(database)


def _lived_in_memory(place: Path, clock: ManualClock) -> None:
    """Run the day in memory, which needs no disk flushes, and copy the result to a file."""
    store = SqliteStore(":memory:", clock=clock)
    busy_day(store, clock)
    store.backup(place)
    store.close()


def _closed_at_the_end(database: Database) -> Iterator[Database]:
    try:
        yield database
    finally:
        database.close()
