"""External processes: workers that lease from queues through the operations, and reapers that reclaim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tests.simulation.model.actors import SimulatedActor
from tests.simulation.model.clocks import MINUTE, NEVER, SECOND
from tests.simulation.model.effects import Execution
from tests.simulation.model.work import draw_work
from tests.simulation.workload.scenarios import RETURNED
from timewright.core.facts import Fact
from timewright.core.moments import to_micros
from timewright.errors import OutcomeUnknown, Stale, StoreError, TimewrightError
from timewright.ledger.replan import Actor
from timewright.operations import OperationContext, operations

if TYPE_CHECKING:
    from tests.simulation.model.seeded_random import SeededRandom
    from tests.simulation.model.simulation import Simulation
    from tests.simulation.model.wakeups import PendingSnapshot

MAX_TRIES = 5
MAX_HELD = 4
MAX_WORK_US = 5 * MINUTE
MAX_REAPER_DELAY_US = 2 * SECOND

_WAITING = """
SELECT namespace, queue, fire_at FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 1
UNION ALL SELECT namespace, queue, fire_at FROM runs WHERE state = 'ready' AND deferred = 1 AND handoff = 1
"""


class ExternalClient(SimulatedActor):
    """A client that uses only the operations."""

    def call(self, operation: str, namespace: str, /, **payload: Any) -> dict[str, Any]:
        """Perform one operation, as any interface does."""
        context = OperationContext(
            store=self.store,
            ids=self.ids,
            by=Actor(name=self.name),
            namespace=namespace,
            notify=self.publish,
        )
        return operations[operation](context, payload)

    def publish(self, facts: Sequence[Fact]) -> None:
        """Record facts."""
        for fact in facts:
            self.sim.record_fact(self, fact)


class HeldLease(Struct, kw_only=True):
    """A lease held by an external worker."""

    row: Mapping[str, Any]
    namespace: str
    ends_at: int
    length: int
    execution: Execution
    fails: bool
    tries: int = 0


class QueueWorker(ExternalClient):
    """Leases from queues, works for a while, renews, and completes; lost answers are sent again."""

    def __init__(
        self, sim: Simulation, name: str, rng: SeededRandom, queues: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(sim, name, rng)
        self.queues = list(queues)

    def on_start(self) -> None:
        """Start without any held leases."""
        self.held: dict[tuple[str, int], HeldLease] = {}
        self._polled_version = -1
        self._found_any = True
        self.sim.holders[self.name] = (self, self.generation)
        self.set_alarm("look", self.sim.time.at + self.rng.random_micros(1, 30), self.poll)

    def on_exit(self) -> None:
        """End its work with the process."""
        for held in self.held.values():
            self.sim.sinks.end(held.execution, at=self.sim.time.at, completed=False)

    def on_commit(self, pending: PendingSnapshot) -> None:
        """Poll when a queue may have entries; after an empty poll, wait longer."""
        if "look" in self.alarms or pending.version == self._polled_version:
            return
        if pending.handoff:
            low, high = (0.1, 20) if self._found_any else (30, 150)
            self.set_alarm("look", self.sim.time.at + self.rng.random_micros(low, high), self.poll)
        elif pending.deferred_at != NEVER:
            self.set_alarm(
                "look",
                self.sim.true_time_of(pending.deferred_at) + self.rng.random_micros(0.1, 60),
                self.poll,
            )

    def poll(self) -> None:
        """Lease a few entries from each queue."""
        self._polled_version = self.sim.pending().version
        self._found_any = False
        if len(self.held) >= MAX_HELD:
            return
        now = self.sim.now_micros()
        waiting = {(row[0], row[1]) for row in self.sim.backend.query(_WAITING) if row[2] <= now}
        for namespace, queue in self.queues:
            if (namespace, queue) in waiting:
                self._lease(namespace, queue)

    def _lease(self, namespace: str, queue: str) -> None:
        limit = self.rng.randint(1, 3)
        try:
            taken = self.call("queue lease", namespace, queue=queue, limit=limit, holder=self.name)
        except TimewrightError as error:
            self.sim.record_error(self, error)
            return
        for row in taken["leases"]:
            self._found_any = True
            self._begin(namespace, row)

    def _begin(self, namespace: str, row: Mapping[str, Any]) -> None:
        sim = self.sim
        act = draw_work(sim, row["key"], row["fence"])
        length = to_micros(datetime.fromisoformat(row["lease_until"])) - sim.now_micros()
        execution = sim.sinks.begin(
            Execution(
                run_id=row["run"], key=row["key"], fence=row["fence"], holder=self.name, began=sim.time.at
            )
        )
        held = HeldLease(
            row=row,
            namespace=namespace,
            ends_at=sim.time.at + min(act.duration_us, MAX_WORK_US),
            length=max(length, SECOND),
            execution=execution,
            fails=type(act.outcome).__name__ != "Succeeded" and row["payload"] != RETURNED,
        )
        key = (row["run"], row["fence"])
        self.held[key] = held
        self._schedule_next(key, held)

    def _schedule_next(self, key: tuple[str, int], held: HeldLease) -> None:
        """Renew at half of the lease, or report the result when the work is done."""
        at = min(held.ends_at, self.sim.time.at + held.length // 2)
        action = self._report if at >= held.ends_at else self._renew
        self.set_alarm(f"lease {key}", at, lambda: action(key, held))

    def _renew(self, key: tuple[str, int], held: HeldLease) -> None:
        try:
            answer = self.call("queue renew", held.namespace, run=key[0], fence=key[1])
        except Stale:
            self.sim.count("stale heartbeat refused")
            if self.rng.happens(0.5):
                # Some workers ignore the loss and work to the end.
                self.set_alarm(f"lease {key}", held.ends_at, lambda: self._report(key, held))
                return
            self._end(key, held, completed=False)
            return
        except TimewrightError as error:
            self.sim.record_error(self, error)
            answer = {"cancel_at": None}
        if answer["cancel_at"] is not None and self.rng.happens(0.7):
            held.ends_at = self.sim.time.at
        self._schedule_next(key, held)

    def _report(self, key: tuple[str, int], held: HeldLease) -> None:
        """Report the result; repeat it if the answer may have been lost."""
        held.tries += 1
        try:
            if held.fails:
                self.call("queue release", held.namespace, run=key[0], fence=key[1], failed=True, error="no")
            elif held.row["payload"] == RETURNED or self.rng.happens(0.05):
                self.call("queue release", held.namespace, run=key[0], fence=key[1])
            else:
                self.call("queue complete", held.namespace, run=key[0], fence=key[1], result=1)
        except Stale:
            self.sim.count("stale result refused")
        except (OutcomeUnknown, StoreError) as error:
            self.sim.record_error(self, error)
            if held.tries < MAX_TRIES:
                again = self.sim.time.at + self.rng.random_micros(0.5, 30)
                self.set_alarm(f"lease {key}", again, lambda: self._report(key, held))
                return
        except TimewrightError as error:
            self.sim.record_error(self, error)
        self._end(key, held, completed=not held.fails)

    def _end(self, key: tuple[str, int], held: HeldLease, *, completed: bool) -> None:
        self.sim.sinks.end(held.execution, at=self.sim.time.at, completed=completed)
        self.held.pop(key, None)
        self._polled_version, self._found_any = -1, True
        self.on_commit(self.sim.pending())


class Reaper(ExternalClient):
    """Reclaims expired leases, as any process may."""

    def on_start(self) -> None:
        """Run soon."""
        self.set_alarm("reap", self.sim.time.at + self.rng.random_micros(1, 60), self.reap)

    def on_commit(self, pending: PendingSnapshot) -> None:
        """Run earlier if a lease ends earlier."""
        if pending.lease_ends_at != NEVER:
            at = self.sim.true_time_of(pending.lease_ends_at)
            if at < self.alarms.get("reap", NEVER) - MAX_REAPER_DELAY_US:
                self.set_alarm("reap", at + self.rng.randrange(MAX_REAPER_DELAY_US), self.reap)

    def reap(self) -> None:
        """Reclaim through the operation."""
        now = self.sim.now_micros()
        if self.sim.pending(now=now).lease_ends_at <= now:
            try:
                self.call("queue reclaim", "default")
            except TimewrightError as error:
                self.sim.record_error(self, error)
                self.set_alarm("reap", self.sim.time.at + SECOND, self.reap)
                return
        self.on_commit(self.sim.pending())
