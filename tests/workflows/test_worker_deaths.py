"""A workflow of a thousand steps, with workers that die at random, also inside of transactions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from tests.conformance.support.builders import NOON
from tests.conformance.support.databases import Database
from tests.operations.harness import OperationsHarness
from tests.workflows.workflow_kit import FAN_OUT_ITEMS, StepWorker
from timewright.core.run.run import Attempt, Run
from timewright.ports import Store
from timewright.ports.rows import StepRuns
from timewright.testing.clock import ManualClock

T = TypeVar("T")

GROUPS, WIDE, ITEMS = 25, 38, FAN_OUT_ITEMS
CRASH_RATE = 0.05
MANY_RETRIES = {"max_attempts": 1000, "backoff": "0.01s"}


class Died(Exception):
    """The worker died and lost its memory."""


class CrashingStore:
    """A store whose caller may die inside of a transaction, or right after its commit."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._store = store
        self._random = chance
        self.never_crashes = True

    def now(self) -> Any:
        return self._store.now()

    def read(self, work: Callable[[Any], T]) -> T:
        return self._store.read(work)

    def close(self) -> None:
        self._store.close()

    def write(self, work: Callable[[Any], T], *, commit_at: datetime | None = None) -> T:
        chance = 1.0 if self.never_crashes else self._random.random()

        def dying(tx: Any) -> T:
            answer = work(tx)
            if chance < CRASH_RATE:
                raise Died
            return answer

        answer = self._store.write(dying)
        if chance < 2 * CRASH_RATE:
            raise Died
        return answer


def dag() -> list[dict[str, Any]]:
    """A source, diamonds with a wide middle, a fan-out step, and a final step that needs all."""

    def step(name: str, *needs: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": name,
            "target": {"call": "work"},
            "needs": list(needs),
            "retry": MANY_RETRIES,
            **fields,
        }

    steps = [step("source")]
    for g in range(GROUPS):
        middle = [f"m{g}_{n}" for n in range(WIDE)]
        steps += [step(f"h{g}", "source"), *(step(m, f"h{g}") for m in middle), step(f"t{g}", *middle)]
    steps.append(step("fan", "source", each={"$from": "steps.source.result"}, input={"n": {"$from": "item"}}))
    return [*steps, step("join", "fan", *(f"t{g}" for g in range(GROUPS)))]


def test_a_thousand_steps_count_once_each_although_workers_die(
    database: Database, clock: ManualClock
) -> None:
    store, chance = CrashingStore(database.open(), random.Random(4)), random.Random(11)
    harness = OperationsHarness(start=NOON, store=store, clock=clock)
    launched: Counter[str] = Counter()
    steps = dag()
    harness.ask("workflow put", name="big", steps=steps)
    run_id = harness.ask("workflow run", workflow="big")["run"]["id"]
    workers = [StepWorker(store, launched, name=f"w{n}") for n in range(3)]
    workers[0].run_pass(clock.now())
    workers[0].run_pass(clock.now())
    store.never_crashes = False
    deaths = 0

    def parent() -> Run:
        return store.read(lambda tx: tx.get_runs([run_id]))[run_id]

    for turn in range(5000):
        place = chance.randrange(len(workers))
        try:
            workers[place].run_pass(clock.now())
        except Died:
            deaths += 1
            workers[place] = StepWorker(store, launched, name=f"w{turn + 10}")
        if parent().state.value != "leased":
            break
        # Advance the clock, sometimes far enough that the leases of dead workers expire.
        clock.advance(seconds=301 if turn % 40 == 39 else 0.02)
    assert parent().state.value == "succeeded", parent()
    assert deaths > 10
    children = store.read(lambda tx: tx.select(StepRuns(run_id)))
    assert len(children) == len({child.dedupe_scope for child in children}) == len(steps) - 1 + ITEMS >= 1000
    assert {child.state.value for child in children} == {"succeeded"}
    attempts = store.read(lambda tx: tx.get_run_rows(Attempt, [child.id for child in children]))
    ends = [sum(attempt.outcome == "succeeded" for attempt in own) for own in attempts.values()]
    assert ends == [1] * len(children)
    assert set(launched) - {run_id} == {child.id for child in children}
    assert max(launched.values()) > 1
