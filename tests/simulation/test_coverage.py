"""Every required event happens in these seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.coverage import IMPOSSIBLE_EVENTS, REQUIRED_EVENTS, missing_events
from tests.simulation.model.backends import MemoryBackend
from tests.simulation.verdict import simulate, sum_counts
from tests.simulation.workload.scenarios import draw_scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"

# The rarest events happen in one half of the seeds, all others in both.
RARE = {
    range(12): {"gap written", "follow-up skipped"},
    range(18, 30): {"clock change: gap decided", "skipped: queue_full"},
}


@pytest.mark.parametrize("seeds", RARE, ids=str)
def test_every_required_event_happens(seeds: range, witness: Any) -> None:
    results = [simulate(draw_scenario(seed, hours=2, size="dense"), MemoryBackend()) for seed in seeds]
    for result in results:
        witness(result, replay=f"python3 dev.py simulate --seed {result.seed} --hours 2 --size dense")
    elsewhere = set[str]().union(*(rare for half, rare in RARE.items() if half != seeds))
    assert set(missing_events(sum_counts(results))) <= elsewhere


@pytest.mark.parametrize("name", IMPOSSIBLE_EVENTS)
def test_impossible_events_are_documented_with_their_reason(name: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert name not in REQUIRED_EVENTS
    assert name in page
    assert IMPOSSIBLE_EVENTS[name] in page


def test_every_rare_event_is_a_required_event() -> None:
    assert set().union(*RARE.values()) <= set(REQUIRED_EVENTS)
