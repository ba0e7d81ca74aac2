"""Build a simulation: its actors, its initial objects, and its fault schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.simulation.faults.fault_schedule import start_faults
from tests.simulation.model.actors import SimulatedInstance
from tests.simulation.model.backends import StoreBackend
from tests.simulation.model.external_holders import ExternalClient, QueueWorker, Reaper
from tests.simulation.model.simulation import Simulation
from tests.simulation.model.users import Answerer, IncidentWatcher, PausingUser, SimulatedUser
from tests.simulation.workload.scenarios import GAP_SCHEDULE, NAMESPACES, QUEUES, Scenario
from timewright.core.moments import format_instant


def new_simulation(scenario: Scenario, base: StoreBackend, **options: Any) -> Simulation:
    """A simulation with all its actors and objects, and with its faults scheduled."""
    sim = Simulation(scenario, base, **options)
    rng = sim.rng
    for number in range(scenario.instances):
        name = f"engine-{number}"
        sim.add_actor(SimulatedInstance(sim, name, rng.fork(name), capacity=scenario.capacity))
    for number in range(scenario.workers):
        name = f"worker-{number}"
        engine = SimulatedInstance(sim, name, rng.fork(name), admits=False, capacity=scenario.capacity)
        sim.add_actor(engine)
    queues = [(namespace, queue) for namespace in NAMESPACES for queue in QUEUES]
    for number in range(scenario.holders):
        name = f"holder-{number}"
        sim.add_actor(QueueWorker(sim, name, rng.fork(name), queues))
    for number in range(scenario.reapers):
        name = f"reaper-{number}"
        sim.add_actor(Reaper(sim, name, rng.fork(name)))
    create_workload(sim)
    sim.add_actor(
        SimulatedUser(sim, "person", rng.fork("person"), actions_per_hour=scenario.user_actions_per_hour)
    )
    if scenario.pauses:
        sim.add_actor(PausingUser(sim, "pauser", rng.fork("pauser"), actions_per_hour=30.0))
        for number in range(2):
            name = f"watch-{number}"
            sim.add_actor(IncidentWatcher(sim, name, rng.fork(name)))
    if scenario.workflows:
        sim.add_actor(Answerer(sim, "answerer", rng.fork("answerer")))
    for actor in sim.actors:
        actor.start()
    start_faults(sim)
    return sim


def create_workload(sim: Simulation) -> None:
    """Create the initial queues, limits, budgets and schedules."""
    creator = ExternalClient(sim, "founder", sim.rng.fork("founder"))
    creator.start()
    scenario = sim.scenario
    for namespace, queue, policy in scenario.queues:
        creator.call("queue policy set", namespace, queue=queue, **policy)
    for namespace, limit, most in scenario.limits:
        creator.call("limit set", namespace, limit=limit, max_running=most)
    for namespace, budget, terms in scenario.budgets:
        creator.call("budget set", namespace, budget=budget, **terms)
    for flow in scenario.workflows:
        creator.call("workflow put", "default", **flow)
    for namespace, draft in scenario.schedules:
        created = creator.call("schedule create", namespace, **draft)
        sim.add_schedule(namespace, draft["name"])
        if draft["name"] == GAP_SCHEDULE:
            until = format_instant(sim.now() + timedelta(minutes=25))
            creator.call("schedule pause", namespace, schedule=GAP_SCHEDULE, until=until)
        if "zone" in draft:
            sim.zones[created["schedule"]["id"]] = ZoneInfo(draft["zone"])
