"""Every test of this folder runs on each store, with a manual clock."""

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
from tests.conformance.support.databases import Database
from tests.ledger.ledger_kit import LedgerHarness, LossyStore
from timewright.testing.clock import ManualClock

__all__ = ["clock", "database", "postgres_place", "postgres_template", "postgres_url"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(database: Database, clock: ManualClock) -> LedgerHarness:
    return LedgerHarness(database.open(), clock)


@pytest.fixture
def another(database: Database, clock: ManualClock) -> Callable[[str], LedgerHarness]:
    """Opens another instance on the same store, like another process."""
    seeds = iter(range(1, 1000))
    return lambda name: LedgerHarness(database.open(), clock, name=name, seed=next(seeds))


@pytest.fixture
def unsure(bench: LedgerHarness) -> tuple[LedgerHarness, LossyStore]:
    """A harness whose store can lose the connection at commit."""
    store = LossyStore(bench.store)
    return LedgerHarness(store, bench.clock, seed=999), store
