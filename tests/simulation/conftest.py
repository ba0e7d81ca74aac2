"""Fixtures of the simulation tests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.conftest import postgres_url
from tests.simulation.summary import PROPERTY
from tests.simulation.verdict import SimulationResult

__all__ = ["postgres_url"]


@pytest.fixture
def witness(record_property: Any) -> Any:
    """Check a result, and record its counts for the summary."""

    def check(result: SimulationResult, *, replay: str) -> None:
        kept = {
            "simulations": 1,
            "simulated hours": result.simulated / 3.6e9,
            "cpu seconds": result.cpu_seconds,
            **result.counts,
        }
        record_property(PROPERTY, msgspec.json.encode(kept).decode())
        assert result.holds, describe_failure(result, replay=replay)

    return check


def describe_failure(result: SimulationResult, *, replay: str) -> str:
    """The violations, the facts before them, and the replay command."""
    broken = [f"{violation.invariant}  {violation.message}" for violation in result.violations[:10]]
    return "\n".join([f"seed {result.seed}", *broken, *result.last_facts, f"replay: {replay}"])
