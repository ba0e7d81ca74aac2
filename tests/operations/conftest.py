"""Fixtures: a harness with sample data on SQLite, and shared ones on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.harness import BEGAN, NOON, OperationsHarness, fill_with_samples, sample_harness
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["empty_postgres_harness", "harness", "postgres_harness", "postgres_template", "postgres_url"]


@pytest.fixture
def harness() -> OperationsHarness:
    return sample_harness()


@pytest.fixture(scope="session")
def postgres_harness(postgres_url: str, postgres_template: str) -> Iterator[OperationsHarness]:
    """A harness with sample data on PostgreSQL, shared by all tests: they write only with dry_run."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        clock = ManualClock(BEGAN)
        store = PostgresStore(place, clock=clock)
        try:
            yield fill_with_samples(store=store, clock=clock)
        finally:
            store.close()


@pytest.fixture(scope="session")
def empty_postgres_harness(postgres_url: str, postgres_template: str) -> Iterator[OperationsHarness]:
    """An empty harness on PostgreSQL with a manual clock; each test uses its own namespace."""
    with fresh_database(postgres_url, template=postgres_template) as place:
        clock = ManualClock(NOON)
        store = PostgresStore(place, clock=clock)
        try:
            yield OperationsHarness(store=store, clock=clock)
        finally:
            store.close()
