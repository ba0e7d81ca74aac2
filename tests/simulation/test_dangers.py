"""A world that never meets a danger proves nothing about it: over these seeds, each is met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from timewright.testing.world.bases import MemoryBase
from timewright.testing.world.dangers import DANGERS, WITHOUT, unmet
from timewright.testing.world.verdict import live, total
from timewright.testing.world.workload import scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"

# The rarest dangers are met in one half of the seeds, everything else in both.
RARE = {
    range(12): {"gap written", "end without a follower"},
    range(18, 30): {"clock change: gap decided", "skipped: queue_full"},
}


@pytest.mark.parametrize("seeds", RARE, ids=str)
def test_every_danger_is_met_by_somebody(seeds: range, witness: Any) -> None:
    results = [live(scenario(seed, hours=2, size="dense"), MemoryBase()) for seed in seeds]
    for result in results:
        witness(result, replay=f"python3 dev.py simulate --seed {result.seed} --hours 2 --size dense")
    elsewhere = set[str]().union(*(rare for half, rare in RARE.items() if half != seeds))
    assert set(unmet(total(results))) <= elsewhere


@pytest.mark.parametrize("name", WITHOUT)
def test_a_danger_that_cannot_be_met_is_written_down_with_the_reason(name: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert name not in DANGERS
    assert name in page
    assert WITHOUT[name] in page


def test_every_rare_danger_is_a_danger() -> None:
    assert set().union(*RARE.values()) <= set(DANGERS)
