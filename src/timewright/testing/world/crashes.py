"""Every way to die, one world each: a small fleet, and a crash at each named point that it passes."""

from __future__ import annotations

from typing import Any

from timewright.core.moments import micros
from timewright.testing.world.actors import Actor
from timewright.testing.world.bases import MemoryBase
from timewright.testing.world.chance import Chance
from timewright.testing.world.clocks import HOUR
from timewright.testing.world.faults import Script
from timewright.testing.world.founding import new_world
from timewright.testing.world.verdict import Result, live
from timewright.testing.world.watching import WatchedTransaction
from timewright.testing.world.workload import CHANGES, NAMESPACES, QUEUES, Scenario, queue_policy

_OURS = ("changes", "ask_raw", "seen", "counted", "touches_gates", "sets_gates", "changed", "only_prolongs")
_LEASE = {"length": "30s", "time_limit": "60s", "grace": "2s"}


def small(seed: int) -> Scenario:
    """A fleet of five with something of everything, in half an hour without weather."""
    chance = Chance(seed, "small")
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
        start=micros(CHANGES[0]),
        length=HOUR // 2,
        quiet=0.3,
        instances=2,
        workers=1,
        holders=1,
        reapers=1,
        people=40.0,
        capacity=2,
        schedules=tuple(("default", {**draft, "lease": _LEASE}) for draft in drafts),
        queues=tuple((ns, queue, queue_policy(chance)) for ns in NAMESPACES for queue in QUEUES),
        limits=(("default", "crm", 1),),
        stormy=False,
    )


def related(seed: int) -> Scenario:
    """Two instances whose schedules follow, need and spend, in twenty minutes without weather."""
    drafts: tuple[dict[str, Any], ...] = (
        {"name": "source", "every": "3m", "budgets": ["calls"], "note": "is followed"},
        {"name": "follower", "after": {"schedule": "source", "on": "end"}, "note": "follows"},
        {"name": "needy", "every": "2m", "needs": [{"schedule": "source", "within": "1m", "wait": "3m"}]},
        {"name": "writer", "every": "3m", "budgets": ["tokens"], "estimate": {"tokens": 300}},
    )
    return Scenario(
        seed=seed,
        start=micros(CHANGES[0]),
        length=HOUR // 3,
        quiet=0.3,
        instances=2,
        workers=0,
        holders=0,
        reapers=0,
        people=0.0,
        capacity=2,
        schedules=tuple(("default", {"note": "works", **draft, "lease": _LEASE}) for draft in drafts),
        budgets=(
            ("default", "calls", {"unit": "requests", "limit": 3, "period": "10m"}),
            ("default", "tokens", {"unit": "tokens", "limit": 900, "period": "10m"}),
        ),
        stormy=False,
    )


class PointedTransaction(WatchedTransaction):
    """A watched transaction that can end in the middle: before each of its verbs."""

    def __init__(self, watched: WatchedTransaction, actor: Actor, name: str) -> None:
        self.__dict__.update(watched.__dict__)
        self._watched = watched
        self._actor = actor
        self._name = name

    def __getattribute__(self, verb: str) -> Any:
        if not verb.startswith("_") and verb not in _OURS:
            self._actor.world.faults.point(self._actor, f"{self._name} in {verb}")
        return super().__getattribute__(verb)


def points(scenario: Scenario) -> list[Script]:
    """Every named point that each actor passes, the first time and once more in the middle."""
    world = new_world(scenario, MemoryBase(), listing=True, watch=_pointed)
    world.run_until(scenario.start + scenario.length)
    world.base.close()
    found = []
    for (actor, point), count in sorted(world.faults.passed.items()):
        if actor not in ("founder", "person"):
            found += [Script(actor, point, nth) for nth in sorted({1, (count + 1) // 2})]
    return found


def crash_at(scenario: Scenario, script: Script) -> Result:
    """The same world, with one crash."""
    return live(scenario, MemoryBase(), script=script, watch=_pointed)


def _pointed(actor: Actor, name: str, watched: WatchedTransaction) -> WatchedTransaction:
    return PointedTransaction(watched, actor, name)
