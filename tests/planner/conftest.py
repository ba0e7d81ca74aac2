"""Stores to analyse, and a scripted model endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import postgres_template, postgres_url
from tests.operations.harness import NOON, OperationsHarness
from tests.planner.model_endpoint import ModelEndpoint
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database

__all__ = ["endpoint", "harness", "harness_on_each_store", "postgres_template", "postgres_url"]


@pytest.fixture
def harness() -> OperationsHarness:
    return OperationsHarness()


@pytest.fixture(params=["sqlite", "postgres"])
def harness_on_each_store(request: pytest.FixtureRequest) -> Iterator[OperationsHarness]:
    """An empty test context, once on each store."""
    if request.param == "sqlite":
        yield OperationsHarness()
        return
    url, template = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_template")
    with fresh_database(url, template=template) as place:
        clock = ManualClock(NOON)
        store = PostgresStore(place, clock=clock)
        try:
            yield OperationsHarness(store=store, clock=clock)
        finally:
            store.close()


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    made = ModelEndpoint()
    yield made
    made.close()
