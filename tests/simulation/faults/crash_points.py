"""Crash at every named point: for a small fleet, one simulation for each point that an actor passes."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults.injector import CrashPoint
from tests.simulation.model.actors import SimulatedActor
from tests.simulation.model.backends import MemoryBackend
from tests.simulation.model.clocks import HOUR
from tests.simulation.model.recording_transaction import RecordingTransaction
from tests.simulation.model.seeded_random import SeededRandom
from tests.simulation.model.setup import new_simulation
from tests.simulation.verdict import SimulationResult, simulate
from tests.simulation.workload.scenarios import CLOCK_CHANGES, NAMESPACES, QUEUES, Scenario, draw_queue_policy
from timewright.core.moments import to_micros

_OWN_ATTRIBUTES = (
    "change_count",
    "query_sql",
    "events",
    "counters",
    "touches_limits",
    "sets_limits",
    "changed",
    "only_renews",
)
_LEASE = {"length": "30s", "time_limit": "60s", "grace": "2s"}


def small_scenario(seed: int) -> Scenario:
    """Five actors with something of every feature, for half an hour without random faults."""
    rng = SeededRandom(seed, "small")
    drafts: tuple[dict[str, Any], ...] = (
        {"name": "plain", "every": "4m", "note": "plain"},
        {"name": "in-order", "every": "3m", "overlap": "queue", "catch_up": "all", "note": "in order"},
        {"name": "replaced", "every": "5m", "overlap": "replace", "note": "replaced"},
        {"name": "limited", "cron": "*/4 * * * *", "limits": ["crm"], "jitter": "20s", "note": "limited"},
        {"name": "outside", "every": "6m", "handoff": {"payload": 1}, "queue": "mail"},
        {"name": "at-most-once", "every": "7m", "delivery": "at_most_once", "note": "once"},
        {"name": "poison", "every": "8m", "note": "kills its process, so that a lease is lost"},
        {"name": "after", "trigger": {"after": "4m"}, "note": "after"},
    )
    return Scenario(
        seed=seed,
        start=to_micros(CLOCK_CHANGES[0]),
        length=HOUR // 2,
        quiet_share=0.3,
        instances=2,
        workers=1,
        holders=1,
        reapers=1,
        user_actions_per_hour=40.0,
        capacity=2,
        schedules=tuple(("default", {**draft, "lease": _LEASE}) for draft in drafts),
        queues=tuple((ns, queue, draw_queue_policy(rng)) for ns in NAMESPACES for queue in QUEUES),
        limits=(("default", "crm", 1),),
        with_faults=False,
    )


def dependent_scenario(seed: int) -> Scenario:
    """Two instances with follow-ups, needs and budgets, for twenty minutes without random faults."""
    drafts: tuple[dict[str, Any], ...] = (
        {"name": "source", "every": "3m", "budgets": ["calls"], "note": "is followed"},
        {"name": "follower", "after": {"schedule": "source", "on": "end"}, "note": "follows"},
        {"name": "needy", "every": "2m", "needs": [{"schedule": "source", "within": "1m", "wait": "3m"}]},
        {"name": "writer", "every": "3m", "budgets": ["tokens"], "estimate": {"tokens": 300}},
    )
    return Scenario(
        seed=seed,
        start=to_micros(CLOCK_CHANGES[0]),
        length=HOUR // 3,
        quiet_share=0.3,
        instances=2,
        workers=0,
        holders=0,
        reapers=0,
        user_actions_per_hour=0.0,
        capacity=2,
        schedules=tuple(("default", {"note": "works", **draft, "lease": _LEASE}) for draft in drafts),
        budgets=(
            ("default", "calls", {"unit": "requests", "limit": 3, "period": "10m"}),
            ("default", "tokens", {"unit": "tokens", "limit": 900, "period": "10m"}),
        ),
        with_faults=False,
    )


class CrashingTransaction(RecordingTransaction):
    """A recording transaction that can crash before each of its queries."""

    def __init__(self, transaction: RecordingTransaction, actor: SimulatedActor, name: str) -> None:
        self.__dict__.update(transaction.__dict__)
        self._recorded = transaction
        self._actor = actor
        self._name = name

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in _OWN_ATTRIBUTES:
            self._actor.sim.faults.pass_point(self._actor, f"{self._name} in {name}")
        return super().__getattribute__(name)


def list_crash_points(scenario: Scenario, *, full: bool = True) -> list[CrashPoint]:
    """Every named point that each actor passes, at its first and its middle passing.

    Unless `full`, the first passing only of the first engine: the others pass it in the same state.
    """
    sim = new_simulation(scenario, MemoryBackend(), record_points=True, wrap_transaction=_with_crash_points)
    sim.run_until(scenario.start + scenario.length)
    sim.backend.close()
    found = []
    for (actor, point), count in sorted(sim.faults.passed.items()):
        if actor not in ("founder", "person"):
            first = {1} if full or actor == "engine-0" else set()
            found += [CrashPoint(actor, point, nth) for nth in sorted(first | {(count + 1) // 2})]
    return found


def crash_at(scenario: Scenario, crash_point: CrashPoint) -> SimulationResult:
    """Run the same scenario with one crash."""
    return simulate(scenario, MemoryBackend(), crash_point=crash_point, wrap_transaction=_with_crash_points)


def _with_crash_points(
    actor: SimulatedActor, name: str, transaction: RecordingTransaction
) -> RecordingTransaction:
    return CrashingTransaction(transaction, actor, name)
