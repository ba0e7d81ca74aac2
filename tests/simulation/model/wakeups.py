"""Wake instances when something may be due: one event stands for all of them, so idle hours cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from tests.simulation.model.clocks import EARLY_WORK_US, MINUTE, NEVER, SECOND
from timewright.stores.rows import split_bucket

if TYPE_CHECKING:
    from tests.simulation.model.actors import SimulatedInstance
    from tests.simulation.model.simulation import Simulation

_PENDING = """
SELECT (SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL),
    (SELECT min(fire_at) FROM runs WHERE state = 'ready' AND deferred = 1),
    (SELECT min(lease_until) FROM runs WHERE state = 'leased'),
    EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0),
    EXISTS (SELECT 1 FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 1)
"""
_READY_BUCKETS = (
    "SELECT DISTINCT ready_bucket FROM runs WHERE state = 'ready' AND deferred = 0 AND handoff = 0"
    " ORDER BY ready_bucket"
)


class PendingSnapshot(Struct, frozen=True):
    """When something may be due, by the store's clock, for one version of the store."""

    version: int
    due_at: int
    deferred_at: int
    lease_ends_at: int
    ready: bool
    handoff: bool
    next_at: int
    """The first instant at which an engine may have work."""


class WakeupScheduler:
    """Looks ahead for all instances at once, and wakes one or two of them when there is work.

    The woken instance may be dead, suspended or slow; then others are woken until the work is done.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._rng = sim.rng.fork("calls")
        self._pending: PendingSnapshot | None = None
        self._wakes_at = NEVER
        self._offers_at = NEVER
        self._retry_after: tuple[int, int] = (-1, 0)
        self._leases_extended = False
        self._startable: tuple[int, bool] = (-1, False)

    def pending(self, *, now: int = 0) -> PendingSnapshot:
        """When something may be due; queried once per version of the store, and again when leases seem
        expired.
        """
        seen, version = self._pending, self._sim.version
        if seen is None or seen.version != version or (self._leases_extended and seen.lease_ends_at <= now):
            ((due, deferred, ends, ready, handoff),) = self._sim.backend.query(_PENDING)
            due = NEVER if due is None else due
            deferred = NEVER if deferred is None else deferred
            ends = NEVER if ends is None else ends
            first = min(due if due == NEVER else due - EARLY_WORK_US, deferred, ends)
            seen = self._pending = PendingSnapshot(
                version, due, deferred, ends, bool(ready), bool(handoff), first
            )
            self._leases_extended = False
        return seen

    def leases_extended(self) -> None:
        """Leases were extended: nothing is due earlier, so query again only when they seem expired."""
        self._leases_extended = True

    def has_startable_run(self) -> bool:
        """Whether a ready run could start; queried once per version of the store."""
        pending = self.pending()
        if pending.version != self._startable[0]:
            self._startable = (pending.version, pending.ready and self._has_startable())
        return self._startable[1]

    def schedule_wakeups(self) -> None:
        """After a commit: wake an instance when the next thing is due, and soon if a run can start."""
        sim, pending = self._sim, self.pending()
        if pending.next_at != NEVER:
            last_next, until = self._retry_after
            at = max(sim.true_time_of(pending.next_at), until if last_next == pending.next_at else 0)
            if at < self._wakes_at:
                self._wakes_at = at
                sim.schedule(at, partial(self._wake, at))
        if pending.ready and self._offers_at == NEVER and self.has_startable_run():
            self._offer_in(10 * SECOND)

    def _wake(self, at: int) -> None:
        if self._wakes_at != at:
            return
        self._wakes_at = NEVER
        sim, now = self._sim, self._sim.now_micros()
        pending = self.pending(now=now)
        if pending.next_at <= now:
            only_admitters = min(pending.deferred_at, pending.lease_ends_at) > now
            self._wake_some([e for e in self._reached() if e.limits.admits_schedules or not only_admitters])
            rest = sim.time.at + self._rng.random_micros(0.5, 2)
            # The woken instance may be full; then the work stays due and is offered again later.
            self._retry_after = (pending.next_at, max(rest, sim.store_down_until))
        self.schedule_wakeups()

    def _wake_some(self, engines: Sequence[SimulatedInstance]) -> None:
        # Without faults one woken instance suffices; it ends before another could interfere.
        many = 1 + (self._sim.faults.is_active and self._rng.happens(0.5))
        for engine in self._rng.sample(engines, min(many, len(engines))):
            at = self._sim.time.at + self._rng.randrange(20_000)
            if at < engine.alarms.get("step", NEVER):
                engine.set_alarm("step", at, engine.run_tick)

    def _reached(self) -> list[SimulatedInstance]:
        """Instances that are alive and can reach the store, suspended ones included."""
        now = self._sim.time.at
        return [e for e in self._sim.engines if e.alive and e.partitioned_until <= now]

    def _offer_in(self, wait: int) -> None:
        self._offers_at = self._sim.time.at + self._rng.randrange(wait)
        self._sim.schedule(self._offers_at, self._offer)

    def _offer(self) -> None:
        """A run is ready: wake instances with free capacity, one after another."""
        self._offers_at = NEVER
        if not self.has_startable_run():
            return
        version = self._sim.version
        able = [e for e in self._reached() if e.seen_version != version and e.launcher.free]
        if able:
            self._wake_some(able)
            self._offer_in(MINUTE)

    def _has_startable(self) -> bool:
        """Whether a ready run can start; behind a full limit it cannot."""
        sim = self._sim
        buckets = [split_bucket(bucket)[1] for (bucket,) in sim.backend.query(_READY_BUCKETS)]
        if not all(buckets):
            return True
        live, capacity = sim.live_leases(), sim.limit_capacities()
        return any(all(live.get(key, 0) < capacity.get(key, 1) for key in keys) for keys in buckets)
