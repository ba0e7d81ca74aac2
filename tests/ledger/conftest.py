"""Every test of this folder is run for each store, on a bench that is driven by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.conftest import (
    KINDS,
    clock,
    database,
    postgres_place,
    postgres_template,
    postgres_url,
)
from tests.conformance.databases import Database
from tests.ledger.bench import Bench, Unsure
from timewright.testing.clock import ManualClock

__all__ = ["clock", "database", "postgres_place", "postgres_template", "postgres_url"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(database: Database, clock: ManualClock) -> Bench:
    return Bench(database.open(), clock)


@pytest.fixture
def another(database: Database, clock: ManualClock) -> Callable[[str], Bench]:
    """One more instance over the same rows, as another process would open it."""
    seeds = iter(range(1, 1000))
    return lambda name: Bench(database.open(), clock, name=name, seed=next(seeds))


@pytest.fixture
def unsure(bench: Bench) -> tuple[Bench, Unsure]:
    """A bench whose store may break at commit, when told to."""
    store = Unsure(bench.store)
    return Bench(store, bench.clock, seed=999), store
