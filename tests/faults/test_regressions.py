"""Bugs that the fault scenarios found, each as the smallest test that shows it."""

from __future__ import annotations

from datetime import timedelta

from timewright import every
from timewright.core.facts import ClockStepped
from timewright.testing.bench import Bench


def steps(bench: Bench) -> list[tuple[float, str]]:
    return [(fact.by_seconds, fact.treated_as) for fact in bench.facts if isinstance(fact, ClockStepped)]


def test_a_clock_step_back_is_reported_once() -> None:
    bench = Bench()
    bench.schedule("a", every("10m"))
    bench.advance(minutes=5)
    bench.clock.step(-timedelta(hours=1))
    bench.advance(minutes=5)
    ((by, treated),) = steps(bench)
    assert treated == "hold"
    assert -3600 <= by < -3000
    assert bench.runs("a") == []


def test_a_second_clock_step_back_is_reported_again() -> None:
    bench = Bench()
    bench.schedule("a", every("10m"))
    bench.advance(minutes=5)
    for _ in range(2):
        bench.clock.step(-timedelta(minutes=30))
        bench.advance(minutes=40)
    assert [treated for _, treated in steps(bench)] == ["hold", "hold"]
