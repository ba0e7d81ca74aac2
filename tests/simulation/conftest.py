"""What every world of a test is asked for at its end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.conftest import postgres_url
from tests.simulation.summary import PROPERTY
from timewright.testing.world.verdict import Result

__all__ = ["postgres_url"]


@pytest.fixture
def witness(record_property: Any) -> Any:
    """Takes a result, refuses one in which a promise was broken, and keeps its counts for the summary."""

    def note(result: Result, *, replay: str) -> None:
        kept = {
            "worlds": 1,
            "simulated hours": result.simulated / 3.6e9,
            "cpu seconds": result.cpu_seconds,
            **result.counts,
        }
        record_property(PROPERTY, msgspec.json.encode(kept).decode())
        assert result.holds, story(result, replay=replay)

    return note


def story(result: Result, *, replay: str) -> str:
    """What was broken, what happened before, and how to see it again."""
    broken = [f"{violation.invariant}  {violation.message}" for violation in result.violations[:10]]
    return "\n".join([f"seed {result.seed}", *broken, *result.last_facts, f"replay: {replay}"])
