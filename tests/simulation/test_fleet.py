"""A fleet as people have it: who is in it, how often its schedules come, and that the page says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from timewright.engine.tick import Tick
from timewright.testing.world.bases import MemoryBase
from timewright.testing.world.fleet import MIX
from timewright.testing.world.verdict import live
from timewright.testing.world.workload import scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"


@pytest.mark.parametrize("size", ["fleet", "full"])
def test_five_instances_and_eight_workers_have_fifty_schedules(size: str) -> None:
    world = scenario(3, hours=24, size=size)
    assert (world.instances, world.workers, len(world.schedules)) == (5, 8, 50)
    assert (world.holders, world.reapers, world.stormy, world.weather) == (1, 1, True, 1.0)


def test_the_page_says_how_often_the_schedules_of_a_fleet_come() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for count, kind in MIX:
        assert f"| {count} | {kind.__name__.strip('_').replace('_', ' ')}" in page


def test_two_fleets_have_the_same_mix_at_other_times() -> None:
    first, second = (
        [draft["cron"] for _, draft in scenario(seed, size="fleet").schedules] for seed in (3, 4)
    )
    assert first != second
    assert Counter(map(_fields, first)) == Counter(map(_fields, second))


def _fields(cron: str) -> tuple[bool, ...]:
    """Which fields say something."""
    return tuple(field != "*" for field in cron.split())


def test_the_promises_hold_for_a_fleet(witness: Any) -> None:
    result = live(scenario(10000, hours=6, size="fleet"), MemoryBase())
    witness(result, replay="python3 dev.py simulate --seed 10000 --hours 6 --size fleet")


def test_a_mistake_of_ours_is_not_survived_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object, **__: object) -> None:
        raise TypeError("one argument too many")

    monkeypatch.setattr(Tick, "run", mistaken)
    result = live(scenario(4, hours=1), MemoryBase())
    assert not result.holds
    assert "met TypeError: one argument too many" in result.violations[0].message
