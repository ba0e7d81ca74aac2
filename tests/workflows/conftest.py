"""Every test of this folder runs on each store, with a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.conftest import (
    KINDS,
    clock,
    database,
    postgres_place,
    postgres_template,
    postgres_url,
)
from tests.conformance.support.builders import NOON
from tests.conformance.support.databases import Database
from tests.workflows.workflow_kit import WorkflowHarness
from timewright.testing.clock import ManualClock

__all__ = ["clock", "database", "postgres_place", "postgres_template", "postgres_url"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bare(database: Database, clock: ManualClock) -> WorkflowHarness:
    """A harness for rows that no engine would write."""
    return WorkflowHarness(start=NOON, store=database.open(), clock=clock)


@pytest.fixture
def harness(bare: WorkflowHarness) -> Iterator[WorkflowHarness]:
    """A harness that verifies all invariants at the end of the test."""
    yield bare
    assert bare.ask("verify")["violations"] == []


@pytest.fixture
def another(database: Database, clock: ManualClock) -> Callable[[str], WorkflowHarness]:
    """Opens another instance on the same store, like another process."""
    return lambda name: WorkflowHarness(start=NOON, store=database.open(), clock=clock, name=name)
