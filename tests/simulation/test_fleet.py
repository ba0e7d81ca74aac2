"""The fleet scenario: its actors, how often its schedules run, and its documentation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.model.backends import MemoryBackend
from tests.simulation.verdict import simulate
from tests.simulation.workload.fleet import MIX
from tests.simulation.workload.scenarios import draw_scenario
from timewright.engine.tick import Tick

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"


@pytest.mark.parametrize("size", ["fleet", "full"])
def test_five_instances_and_eight_workers_have_fifty_schedules(size: str) -> None:
    scenario = draw_scenario(3, hours=24, size=size)
    assert (scenario.instances, scenario.workers, len(scenario.schedules)) == (5, 8, 50)
    assert (scenario.holders, scenario.reapers, scenario.with_faults, scenario.fault_rate) == (
        1,
        1,
        True,
        1.0,
    )


def test_the_page_has_the_frequencies_of_a_fleets_schedules() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for count, kind in MIX:
        assert f"| {count} | {kind.__name__.strip('_').replace('_', ' ')}" in page


def test_two_fleets_have_the_same_mix_at_other_times() -> None:
    first, second = (
        [draft["cron"] for _, draft in draw_scenario(seed, size="fleet").schedules] for seed in (3, 4)
    )
    assert first != second
    assert Counter(map(_fields, first)) == Counter(map(_fields, second))


def _fields(cron: str) -> tuple[bool, ...]:
    """Which cron fields are restricted."""
    return tuple(field != "*" for field in cron.split())


def test_no_invariant_is_violated_for_a_fleet(witness: Any) -> None:
    result = simulate(draw_scenario(10000, hours=6, size="fleet"), MemoryBackend())
    witness(result, replay="python3 dev.py simulate --seed 10000 --hours 6 --size fleet")


def test_an_unexpected_error_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object, **__: object) -> None:
        raise TypeError("one argument too many")

    monkeypatch.setattr(Tick, "run", mistaken)
    result = simulate(draw_scenario(4, hours=1), MemoryBackend())
    assert not result.holds
    assert "raised TypeError: one argument too many" in result.violations[0].message
