"""The schedule of random faults: a calm part, a part with faults, and a quiet part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.faults.injector import FAULTY, NO_FAULTS, draw_pause
from tests.simulation.model.actors import SimulatedActor, SimulatedInstance
from tests.simulation.model.clocks import HOUR, MINUTE, SECOND
from tests.simulation.model.seeded_random import SeededRandom
from timewright.core.moments import to_micros

if TYPE_CHECKING:
    from tests.simulation.model.simulation import Simulation


def start_faults(sim: Simulation) -> None:
    """Schedule the faults of the middle part, and their end."""
    scenario, rng = sim.scenario, sim.rng.fork("fault-schedule")
    begin = scenario.start + int(scenario.length * scenario.calm_share)
    end = scenario.start + int(scenario.length * (1 - scenario.quiet_share))
    sim.schedule(end, partial(stop_faults, sim))
    if not scenario.with_faults:
        return
    sim.schedule(begin, partial(sim.faults.set_rates, FAULTY))
    for an_hour, fault in FAULTS:
        rate = an_hour * scenario.fault_rate / HOUR
        at = begin + int(rng.expovariate(rate))
        while at < end:
            sim.schedule(at, partial(fault, sim, rng))
            at += int(rng.expovariate(rate))


def stop_faults(sim: Simulation) -> None:
    """End all faults, so that everything can recover."""
    sim.faults.set_rates(NO_FAULTS)
    sim.faults_are_over = True
    sim.store_down_until = 0
    for actor in sim.actors:
        actor.partitioned_until = 0
    sim.notify_actors()


def _random_actor(sim: Simulation, rng: SeededRandom) -> SimulatedActor:
    return rng.choice([actor for actor in sim.actors if actor.name != "person"])


def kill_one(sim: Simulation, rng: SeededRandom) -> None:
    """A process crashes."""
    actor = _random_actor(sim, rng)
    if actor.alive:
        sim.count("crash injected")
        actor.crash()


def kill_all(sim: Simulation, rng: SeededRandom) -> None:
    """All processes crash at the same instant."""
    sim.count("all processes crashed at once")
    for actor in sim.actors:
        if actor.alive and actor.name != "person":
            sim.count("crash injected")
            actor.crash()


def suspend_one(sim: Simulation, rng: SeededRandom) -> None:
    """A process is suspended and continues later."""
    actor = _random_actor(sim, rng)
    if not actor.alive:
        return
    sim.count("process suspended")
    actor.suspended += 1
    life = actor.generation

    def thaw() -> None:
        if actor.generation == life:
            actor.suspended -= 1
            sim.run_deferred(actor)

    sim.schedule(sim.time.at + draw_pause(rng), thaw)


def store_outage(sim: Simulation, rng: SeededRandom) -> None:
    """The store is down for everyone, sometimes for longer than every lease."""
    sim.count("store outage")
    sim.store_down_until = sim.time.at + rng.random_micros(5, 60) * rng.choice((1, 1, 10))


def partition_one(sim: Simulation, rng: SeededRandom) -> None:
    """One host cannot reach the store."""
    actor = _random_actor(sim, rng)
    actor.partitioned_until = sim.time.at + draw_pause(rng)


def restart_one(sim: Simulation, rng: SeededRandom) -> None:
    """An instance is stopped gracefully and started again."""
    engines = [
        a
        for a in sim.actors
        if isinstance(a, SimulatedInstance) and a.alive and not a.suspended and not a.busy
    ]
    if engines:
        engine = rng.choice(engines)
        sim.schedule(sim.time.at, engine.stop, actor=engine, slot="stop")


def step_clock(sim: Simulation, rng: SeededRandom) -> None:
    """A host's wall clock is stepped; the store's clock too, if the store is on that host."""
    by = rng.choice((-3600, -300, -5, 3, 40, 400, 5000)) * SECOND
    actor = _random_actor(sim, rng)
    actor.clock.step(by)
    if sim.backend.follows_host_clock and rng.happens(0.5):
        sim.count("store clock stepped")
        before = to_micros(sim.now())
        sim.clock.step(by)
        sim.clock_steps.append((before, sim.now_micros()))
        # Idle instances look again within a minute, because what was due may now be past or far away.
        sim.version += 1
        sim.schedule(sim.time.at + rng.randrange(MINUTE), sim.notify_actors)


FAULTS: tuple[tuple[float, Callable[[Simulation, SeededRandom], None]], ...] = (
    (4.0, kill_one),
    (0.25, kill_all),
    (3.0, suspend_one),
    (0.7, store_outage),
    (1.5, partition_one),
    (1.5, restart_one),
    (0.5, step_clock),
)
