"""The weather of a world: calm, storm and quiet, and what the storm brings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from timewright.core.moments import micros
from timewright.testing.world.actors import Actor, Engine
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import HOUR, MINUTE, SECOND
from timewright.testing.world.faults import CALM, STORM, long_pause

if TYPE_CHECKING:
    from timewright.testing.world.run import World


def brew(world: World) -> None:
    """Calm, storm, quiet: when each begins, and what the storm brings."""
    scenario, chance = world.scenario, world.chance.fork("weather")
    begin = scenario.start + int(scenario.length * scenario.calm)
    end = scenario.start + int(scenario.length * (1 - scenario.quiet))
    world.at(end, partial(hush, world))
    if not scenario.stormy:
        return
    world.at(begin, partial(world.faults.storm, STORM))
    for an_hour, blow in BLOWS:
        rate = an_hour * scenario.weather / HOUR
        at = begin + int(chance.expovariate(rate))
        while at < end:
            world.at(at, partial(blow, world, chance))
            at += int(chance.expovariate(rate))


def hush(world: World) -> None:
    """The weather clears; what is broken may mend."""
    world.faults.storm(CALM)
    world.is_quiet = True
    world.away_until = 0
    for actor in world.actors:
        actor.cut_off_until = 0
    world.spread_word()


def _someone(world: World, chance: Chance) -> Actor:
    return chance.choice([actor for actor in world.actors if actor.name != "person"])


def kill_one(world: World, chance: Chance) -> None:
    """A process dies."""
    actor = _someone(world, chance)
    if actor.alive:
        world.count("crash injected")
        actor.crash()


def kill_all(world: World, chance: Chance) -> None:
    """Everybody dies at the same instant."""
    world.count("everyone killed at once")
    for actor in world.actors:
        if actor.alive and actor.name != "person":
            world.count("crash injected")
            actor.crash()


def freeze_one(world: World, chance: Chance) -> None:
    """A process is stopped and later goes on, as if nothing had happened."""
    actor = _someone(world, chance)
    if not actor.alive:
        return
    world.count("process stopped")
    actor.frozen += 1
    life = actor.life

    def thaw() -> None:
        if actor.life == life:
            actor.frozen -= 1
            world.thaw(actor)

    world.at(world.time.at + long_pause(chance), thaw)


def outage(world: World, chance: Chance) -> None:
    """The store is away for everyone, sometimes for longer than every lease."""
    world.count("store outage")
    world.away_until = world.time.at + chance.micros(5, 60) * chance.choice((1, 1, 10))


def cut_off(world: World, chance: Chance) -> None:
    """One host loses the store."""
    actor = _someone(world, chance)
    actor.cut_off_until = world.time.at + long_pause(chance)


def retire_one(world: World, chance: Chance) -> None:
    """An instance is stopped politely and started again."""
    engines = [a for a in world.actors if isinstance(a, Engine) and a.alive and not a.frozen and not a.busy]
    if engines:
        engine = chance.choice(engines)
        world.at(world.time.at, engine.stop, actor=engine, lane="stop")


def step_clock(world: World, chance: Chance) -> None:
    """The wall clock of a host is set, forward or back; where the store lives on it, the store's too."""
    by = chance.choice((-3600, -300, -5, 3, 40, 400, 5000)) * SECOND
    actor = _someone(world, chance)
    actor.clock.step(by)
    if world.base.steps_with_host and chance.maybe(0.5):
        world.count("store clock stepped")
        before = micros(world.now())
        world.clock.step(by)
        world.clock_steps.append((before, world.now_micros()))
        # Whoever rests looks again within a minute; what was due may be over, or far away.
        world.version += 1
        world.at(world.time.at + chance.randrange(MINUTE), world.spread_word)


BLOWS: tuple[tuple[float, Callable[[World, Chance], None]], ...] = (
    (4.0, kill_one),
    (0.25, kill_all),
    (3.0, freeze_one),
    (0.7, outage),
    (1.5, cut_off),
    (1.5, retire_one),
    (0.5, step_clock),
)
