"""How a world begins: who is in it, and what is written before anyone moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from timewright.core.moments import spell_instant
from timewright.testing.world.actors import Engine
from timewright.testing.world.bases import Base
from timewright.testing.world.outsiders import Holder, Outsider, Reaper
from timewright.testing.world.people import Person
from timewright.testing.world.run import World
from timewright.testing.world.weather import brew
from timewright.testing.world.workload import GAP, NAMESPACES, QUEUES, Scenario


def new_world(scenario: Scenario, base: Base, **options: Any) -> World:
    """A world with everyone in it, its queues and schedules written, and its weather decided."""
    world = World(scenario, base, **options)
    chance = world.chance
    for number in range(scenario.instances):
        name = f"engine-{number}"
        world.join(Engine(world, name, chance.fork(name), capacity=scenario.capacity))
    for number in range(scenario.workers):
        name = f"worker-{number}"
        engine = Engine(world, name, chance.fork(name), admits=False, capacity=scenario.capacity)
        world.join(engine)
    queues = [(namespace, queue) for namespace in NAMESPACES for queue in QUEUES]
    for number in range(scenario.holders):
        name = f"holder-{number}"
        world.join(Holder(world, name, chance.fork(name), queues))
    for number in range(scenario.reapers):
        name = f"reaper-{number}"
        world.join(Reaper(world, name, chance.fork(name)))
    found(world)
    world.join(Person(world, "person", chance.fork("person"), an_hour=scenario.people))
    for actor in world.actors:
        actor.start()
    brew(world)
    return world


def found(world: World) -> None:
    """Write the queues, limits and schedules that are there from the beginning."""
    founder = Outsider(world, "founder", world.chance.fork("founder"))
    founder.start()
    scenario = world.scenario
    for namespace, queue, policy in scenario.queues:
        founder.ask("queue policy set", namespace, queue=queue, **policy)
    for namespace, limit, most in scenario.limits:
        founder.ask("limit set", namespace, limit=limit, most=most)
    for namespace, budget, terms in scenario.budgets:
        founder.ask("budget set", namespace, budget=budget, **terms)
    for namespace, draft in scenario.schedules:
        made = founder.ask("schedule create", namespace, **draft)
        world.add_schedule(namespace, draft["name"])
        if draft["name"] == GAP:
            until = spell_instant(world.now() + timedelta(minutes=25))
            founder.ask("schedule pause", namespace, schedule=GAP, until=until)
        if "zone" in draft:
            world.zones[made["schedule"]["id"]] = ZoneInfo(draft["zone"])
