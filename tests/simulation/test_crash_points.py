"""Each actor crashes at each named point, one simulation each, without a violation."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.simulation.faults.crash_points import (
    crash_at,
    dependent_scenario,
    list_crash_points,
    small_scenario,
)

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
PARTS = 12
DEPENDENT_PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_at_any_point_violates_no_invariant(part: int, witness: Any) -> None:
    scenario = small_scenario(1)
    for point in list_crash_points(scenario, full=FULL)[part::PARTS]:
        result = crash_at(scenario, point)
        assert result.has_crashed, point
        witness(result, replay=f"crash_at(small_scenario(1), {point})")


@pytest.mark.parametrize("part", range(DEPENDENT_PARTS))
def test_a_crash_at_any_point_between_schedules_violates_no_invariant(part: int, witness: Any) -> None:
    scenario = dependent_scenario(1)
    mine = [point for point in list_crash_points(scenario) if point.actor == "engine-0"]
    for point in mine[part::DEPENDENT_PARTS]:
        result = crash_at(scenario, point)
        assert result.has_crashed, point
        witness(result, replay=f"crash_at(dependent_scenario(1), {point})")


def test_there_are_crash_points_in_follow_ups_and_charges() -> None:
    names = {point.point for point in list_crash_points(dependent_scenario(1))}
    for query in ("mark_links_met", "add_charges", "close_charges"):
        assert any(name.endswith(f" in {query}") for name in names), query
    # Follow-ups are made by settlements and decided by admissions; leases record what waits.
    for transaction in ("settle_results", "admit_due", "_lease_until_granted", "OutputBuffer.write"):
        assert f"{transaction} in put_run_rows" in names, transaction


def test_crash_points_lie_around_and_inside_every_transaction() -> None:
    found = list_crash_points(small_scenario(1))
    names = {point.point for point in found}
    for transaction in ("admit_due", "_lease_until_granted", "settle_results", "reclaim", "renew_leases"):
        assert {f"{transaction} before", f"{transaction} after"} <= names
        assert any(name.startswith(f"{transaction} in ") for name in names)
    assert {"launch before", "launch after"} <= names
    assert {point.actor for point in found} >= {"engine-0", "engine-1", "worker-0", "holder-0"}
