"""A thousand steps with workers that die at random, also inside transactions: each step counts once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from tests.conformance.builders import NOON
from tests.conformance.databases import Database
from tests.operations.house import House
from timewright.core.run import Run, Succeeded
from timewright.ids import TimedIds
from timewright.ledger.lease import lease_ready
from timewright.ledger.settle import Answer, reclaim, settle_answers
from timewright.ports import Store
from timewright.testing.clock import ManualClock

T = TypeVar("T")

GROUPS, WIDE, ITEMS = 25, 38, 37
DEATH = 0.05
CAPACITY = 25
PATIENT = {"max_attempts": 1000, "backoff": "0.01s"}


class Died(Exception):
    """The worker is gone, and with it all that it knew."""


class Mortal:
    """A store whose user may die in the middle of a transaction, or right after its commit."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self.immortal = True

    def now(self) -> Any:
        return self._store.now()

    def read(self, work: Callable[[Any], T]) -> T:
        return self._store.read(work)

    def close(self) -> None:
        self._store.close()

    def write(self, work: Callable[[Any], T]) -> T:
        fate = 1.0 if self.immortal else self._chance.random()

        def dying(tx: Any) -> T:
            answer = work(tx)
            if fate < DEATH:
                raise Died
            return answer

        answer = self._store.write(dying)
        if fate < 2 * DEATH:
            raise Died
        return answer


class Worker:
    """Settles what it did, takes back what others lost, leases, and does every step at once."""

    def __init__(self, store: Store, launched: Counter[str], *, name: str, capacity: int = CAPACITY) -> None:
        self._store = store
        self._launched = launched
        self._name = name
        self._capacity = capacity
        self._ids = TimedIds(random.Random(name).randbytes)
        self._answers: list[Answer] = []

    def turn(self, now: datetime) -> None:
        """One pass; what it has done and not written yet dies with it."""
        settle_answers(self._store, self._answers, now=now)
        reclaim(self._store, now=now, limit=100)
        found = lease_ready(self._store, ids=self._ids, holder=self._name, capacity=self._capacity, now=now)
        self._answers = [self._do(lease.run, now=now) for lease in found.leases]

    def _do(self, run: Run, *, now: datetime) -> Answer:
        self._launched[run.id] += 1
        result = list(range(ITEMS)) if run.payload.get("step") == "source" else 1
        return Answer(run=run, outcome=Succeeded(result=result), started_at=now)


def dag() -> list[dict[str, Any]]:
    """A source, diamonds with a wide middle, a step for each item, and one that joins them all."""

    def step(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "target": {"call": "work"}, "needs": list(needs), "retry": PATIENT, **fields}

    steps = [step("source")]
    for g in range(GROUPS):
        middle = [f"m{g}_{n}" for n in range(WIDE)]
        steps += [step(f"h{g}", "source"), *(step(m, f"h{g}") for m in middle), step(f"t{g}", *middle)]
    steps.append(step("fan", "source", each={"$from": "steps.source.result"}, input={"n": {"$from": "item"}}))
    return [*steps, step("join", "fan", *(f"t{g}" for g in range(GROUPS)))]


def test_a_thousand_steps_count_once_each_whoever_dies(database: Database, clock: ManualClock) -> None:
    store, chance = Mortal(database.open(), random.Random(4)), random.Random(11)
    house = House(start=NOON, store=store, clock=clock)
    launched: Counter[str] = Counter()
    steps = dag()
    house.ask("workflow put", name="big", steps=steps)
    run_id = house.ask("workflow run", workflow="big")["run"]["id"]
    workers = [Worker(store, launched, name=f"w{n}") for n in range(3)]
    workers[0].turn(clock.now())
    workers[0].turn(clock.now())
    store.immortal = False
    deaths = 0

    def parent() -> Run:
        return store.read(lambda tx: tx.get_runs([run_id]))[run_id]

    for turn in range(5000):
        place = chance.randrange(len(workers))
        try:
            workers[place].turn(clock.now())
        except Died:
            deaths += 1
            workers[place] = Worker(store, launched, name=f"w{turn + 10}")
        if parent().state.value != "leased":
            break
        # Time goes on by itself; now and then so far that the leases of the dead are over.
        clock.advance(seconds=301 if turn % 40 == 39 else 0.02)
    assert parent().state.value == "succeeded", parent()
    assert deaths > 10
    children = store.read(lambda tx: tx.child_runs(run_id))
    assert len(children) == len({child.lane for child in children}) == len(steps) - 1 + ITEMS >= 1000
    assert {child.state.value for child in children} == {"succeeded"}
    attempts = store.read(lambda tx: tx.get_attempts([child.id for child in children]))
    ends = [sum(attempt.outcome == "succeeded" for attempt in own) for own in attempts.values()]
    assert ends == [1] * len(children)
    assert set(launched) - {run_id} == {child.id for child in children}
    assert max(launched.values()) > 1
