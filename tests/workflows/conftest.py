"""Every test of this folder is run for each store, on a stage that is driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.builders import NOON
from tests.conformance.conftest import (
    KINDS,
    clock,
    database,
    postgres_place,
    postgres_template,
    postgres_url,
)
from tests.conformance.databases import Database
from tests.workflows.stage import Stage
from timewright.testing.clock import ManualClock

__all__ = ["clock", "database", "postgres_place", "postgres_template", "postgres_url"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bare(database: Database, clock: ManualClock) -> Stage:
    """A stage for rows that no engine would write."""
    return Stage(start=NOON, store=database.open(), clock=clock)


@pytest.fixture
def stage(bare: Stage) -> Iterator[Stage]:
    """A stage on which every promise is checked when the test is over."""
    yield bare
    assert bare.ask("verify")["violations"] == []


@pytest.fixture
def another(database: Database, clock: ManualClock) -> Callable[[str], Stage]:
    """One more instance over the same rows, as another process would open it."""
    return lambda name: Stage(start=NOON, store=database.open(), clock=clock, name=name)
