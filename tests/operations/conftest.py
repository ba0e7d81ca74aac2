"""A furnished house for every test: a copy of its own, or one on PostgreSQL that nothing is kept in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.house import BEGAN, NOON, House, furnish, furnished
from timewright.stores.postgres import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["house", "postgres_house", "postgres_street", "postgres_template", "postgres_url"]


@pytest.fixture
def house() -> House:
    return furnished()


@pytest.fixture(scope="session")
def postgres_house(postgres_url: str, postgres_template: str) -> Iterator[House]:
    """A furnished house in which nothing is kept: whoever asks it to write only rehearses."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        clock = ManualClock(BEGAN)
        store = PostgresStore(place, clock=clock)
        try:
            yield furnish(store=store, clock=clock)
        finally:
            store.close()


@pytest.fixture(scope="session")
def postgres_street(postgres_url: str, postgres_template: str) -> Iterator[House]:
    """An empty place whose clock may be moved; each test takes a namespace of its own."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        clock = ManualClock(NOON)
        store = PostgresStore(place, clock=clock)
        try:
            yield House(store=store, clock=clock)
        finally:
            store.close()
