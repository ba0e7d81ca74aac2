"""What the worlds of one run saw, added up and printed at its end, also when several workers shared them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.conformance.conftest import postgres_url
from timewright.testing.world.verdict import Result

__all__ = ["postgres_url"]

PROPERTY = "simulation"


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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for report in [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                counts.update(msgspec.json.decode(value))
    if not counts:
        return
    days, cpu = counts["simulated hours"] / 24, counts["cpu seconds"]
    terminalreporter.section("simulation")
    terminalreporter.line(
        f"{counts['worlds']} worlds, {days:.1f} simulated days, {days / cpu:.2f} a second and core;"
        f" {counts['crash injected']} crashes, {counts['stale answer refused']} stale answers refused"
    )
    seen = sorted(name for name in counts if " " in name and name not in ("simulated hours", "cpu seconds"))
    terminalreporter.line(", ".join(f"{name} {counts[name]}" for name in seen))
