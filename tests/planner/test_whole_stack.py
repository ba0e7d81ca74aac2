"""The governor's rules end to end: an agent's hints, and the runs that follow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.operations.access.authentication import context_for
from timewright.planner.planner_loop import PLANNER_CALLER
from timewright.planner.tool_session import ToolSession

INTERVAL = ("propose_interval", {"interval_seconds": 60})
SLOWLY = ("propose_interval", {"interval_seconds": 3600})
ONCE = ("propose_next_time", {"at": "2026-03-10T12:00:40Z"})
LATE = ("propose_next_time", {"at": "2026-03-10T12:20:00Z"})
QUIET = ("pause_until", {"until": "2026-03-10T12:30:00Z"})
CLEAR: tuple[str, dict[str, object]] = ("clear_hints", {})

# The schedule, the hint, and the next run: when, from which source, over which candidates.
CASES: list[Any] = [
    ({}, [], "12:05:00", "baseline-interval", []),
    ({}, [INTERVAL], "12:01:00", "ai-interval", ["baseline-interval"]),
    ({"cron": "*/5 * * * *"}, [INTERVAL], "12:01:00", "ai-interval", ["baseline-cron"]),
    ({}, [SLOWLY], "12:05:00", "baseline-interval", []),
    ({}, [ONCE], "12:00:40", "ai-oneshot", ["baseline-interval"]),
    ({}, [LATE], "12:05:00", "baseline-interval", []),
    ({}, [INTERVAL, ONCE], "12:00:40", "ai-oneshot", ["baseline-interval", "ai-interval"]),
    ({"clamp": {"min": "2m"}}, [INTERVAL], "12:02:00", "clamped-min", ["baseline-interval", "ai-interval"]),
    ({"clamp": {"max": "3m"}}, [LATE], "12:03:00", "clamped-max", ["baseline-interval"]),
    ({}, [INTERVAL, QUIET], "12:31:00", "ai-interval", ["baseline-interval"]),
    ({}, [INTERVAL, CLEAR], "12:05:00", "baseline-interval", []),
]


@pytest.mark.parametrize(("fields", "wishes", "chosen"), [(a, b, tuple(rest)) for a, b, *rest in CASES])
def test_the_next_run_carries_the_governors_reason(
    harness_on_each_store: OperationsHarness,
    fields: dict[str, Any],
    wishes: list[Any],
    chosen: tuple[str, str, list[str]],
) -> None:
    harness = harness_on_each_store
    at, source, lost = chosen
    trigger = {} if "cron" in fields else {"every": "5m"}
    harness.ask("schedule create", {"name": "poll", "call": "x", "adaptive": True, **trigger, **fields})
    session = ToolSession(
        context_for(harness.context, PLANNER_CALLER, "default"), schedule="poll", group=None
    )
    for tool, arguments in wishes:
        assert "refused" not in session.call_tool(tool, arguments)
    harness.bench.advance(timedelta(minutes=31))
    rows = harness.ask("run list", schedule="poll", state="succeeded", limit=1000)["runs"]
    first = harness.ask("run get", run=rows[-1]["id"])
    assert (first["run"]["planned_at"], first["run"]["source"]) == (f"2026-03-10T{at}Z", source)
    assert {one["source"] for one in first["trail"]} == set(lost)
    assert all(one["why"] for one in first["trail"])
