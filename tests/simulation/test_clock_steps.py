"""The clock of every host is set wrong and right again, with leases under way: no promise breaks."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.simulation.model.backends import MemoryBackend
from tests.simulation.model.clocks import HOUR, MINUTE, SECOND
from tests.simulation.model.simulation import Simulation
from tests.simulation.verdict import simulate
from tests.simulation.workload.scenarios import draw_scenario
from timewright.core.facts import AttemptStarted
from timewright.core.moments import to_micros
from timewright.verification.checker import Violation

DAY = 24 * HOUR
YEAR_2999 = to_micros(datetime(2999, 1, 1, tzinfo=UTC))
# How far the clock is set, for how long. A number over a year is an instant.
STEPS = {
    "+3s": (3 * SECOND, 3 * SECOND),
    "-3s": (-3 * SECOND, 3 * SECOND),
    "+1h": (HOUR, 3 * SECOND),
    "-1h": (-HOUR, 3 * SECOND),
    "+2d": (2 * DAY, 3 * SECOND),
    "-2d": (-2 * DAY, 3 * SECOND),
    "+40d": (40 * DAY, 3 * SECOND),
    "-40d": (-40 * DAY, 3 * SECOND),
    "2999": (YEAR_2999, 3 * SECOND),
    "2999 for two hours": (YEAR_2999, 2 * HOUR),
}
SEEDS = range(20) if os.environ.get("TIMEWRIGHT_FULL") else range(5, 6)
STEP_AFTER = 20 * MINUTE
HOURS_AFTER = 1.0


def set_wrong(by: int, lasts: int, stepped_at: list[int]) -> Callable[[Simulation], None]:
    """Set every clock some time after the start, when a run is under way, and set it right again."""

    def step_all(sim: Simulation, amount: int) -> None:
        before = to_micros(sim.now())
        for clock in (sim.clock, *(actor.clock for actor in sim.actors)):
            clock.step(amount)
        sim.clock_steps.append((before, sim.now_micros()))
        sim.version += 1
        sim.notify_actors()

    def begin(sim: Simulation) -> None:
        if not any(len(engine.launcher) for engine in sim.engines if engine.alive):
            sim.schedule(sim.time.at + SECOND, lambda: begin(sim))
            return
        stepped_at.append(sim.time.at)
        amount = by - sim.time.at if by == YEAR_2999 else by
        step_all(sim, amount)
        sim.schedule(sim.time.at + lasts, lambda: step_all(sim, -amount))

    return lambda sim: sim.schedule(sim.time.at + STEP_AFTER, lambda: begin(sim))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_breaks_when_all_clocks_are_set_wrong_and_right_again(seed: int, step: str) -> None:
    by, lasts = STEPS[step]
    scenario = draw_scenario(seed, hours=HOURS_AFTER + lasts / HOUR, size="dense")
    stepped_at: list[int] = []
    started: list[int] = []

    def read_starts(sim: Simulation) -> list[Violation]:
        started.extend(at for at, _, fact in sim.trace if isinstance(fact, AttemptStarted))
        return []

    change = set_wrong(by, lasts, stepped_at)
    result = simulate(scenario, MemoryBackend(), mutate=change, find_more=read_starts)

    (began,) = stepped_at
    in_doubt = range(began + MINUTE, began + lasts)
    assert result.violations == ()
    assert not [at for at in started if at in in_doubt], "nothing is started while the clock is in doubt"
    assert max(started) > began + lasts, "work goes on when the clock is right again"
