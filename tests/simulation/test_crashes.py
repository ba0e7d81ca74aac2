"""Each actor dies at each named point, one world each, and every promise holds all the same."""

from __future__ import annotations

from typing import Any

import pytest

from timewright.testing.world.crashes import crash_at, points, related, small

PARTS = 12
RELATED = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_at_any_named_point_breaks_nothing(part: int, witness: Any) -> None:
    world = small(1)
    for script in points(world)[part::PARTS]:
        result = crash_at(world, script)
        assert result.script_fired, script
        witness(result, replay=f"crash_at(small(1), {script})")


@pytest.mark.parametrize("part", range(RELATED))
def test_a_crash_at_any_named_point_between_schedules_breaks_nothing(part: int, witness: Any) -> None:
    world = related(1)
    mine = [script for script in points(world) if script.actor == "engine-0"]
    for script in mine[part::RELATED]:
        result = crash_at(world, script)
        assert result.script_fired, script
        witness(result, replay=f"crash_at(related(1), {script})")


def test_there_are_points_in_every_verb_that_passes_ends_on_and_charges() -> None:
    names = {script.point for script in points(related(1))}
    for verb in (
        "add_follow_ups",
        "close_follow_ups",
        "meet_links",
        "add_waits",
        "add_charges",
        "close_charges",
    ):
        assert any(name.endswith(f" in {verb}") for name in names), verb
    assert "Sayings.write in put_said" in names


def test_the_points_lie_before_in_and_after_every_transaction_and_around_the_launch() -> None:
    found = points(small(1))
    names = {script.point for script in found}
    for transaction in ("admit_due", "_lease_some", "settle_answers", "reclaim", "renew"):
        assert {f"{transaction} before", f"{transaction} after"} <= names
        assert any(name.startswith(f"{transaction} in ") for name in names)
    assert {"launch before", "launch after"} <= names
    assert {script.actor for script in found} >= {"engine-0", "engine-1", "worker-0", "holder-0"}
