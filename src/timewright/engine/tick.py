"""One pass through the rooms: settle what finished, reclaim what was lost, admit, lease, launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.facts import AttemptStarted, Fact
from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.engine.launch import Launcher
from timewright.ledger.admit import Admitted, Offer, admit_due
from timewright.ledger.lease import Lease, Leased, lease_ready
from timewright.ledger.settle import free_held, reclaim, settle_answers
from timewright.ledger.shelf import terms_for, terms_of
from timewright.ports import Ids, Store, Transaction

Tell = Callable[[Sequence[Fact]], None]

RECLAIM_EVERY = timedelta(seconds=1)
SWEEP_EVERY = timedelta(seconds=30)


class Limits(Struct, frozen=True, kw_only=True):
    """How much one pass takes on."""

    capacity: int = 100
    batch: int = 500
    admits: bool = True
    leases: bool = True


class Tick:
    """The rooms of one instance, walked once per call; time and store are handed in."""

    def __init__(self, store: Store, launcher: Launcher, *, ids: Ids, holder: str, limits: Limits) -> None:
        self.store = store
        self.launcher = launcher
        self.ids = ids
        self.holder = holder
        self.limits = limits
        self.leasing = True
        self.in_doubt = False
        self.settles = True
        self.waits_for_room = False
        self.freed_gates = False
        self._reclaimed_at: datetime | None = None
        self._swept_at: datetime | None = None
        self._looked_to: datetime | None = None
        self._backlog = True

    def run(self, *, now: datetime, moment: float, tell: Tell) -> bool:
        """One pass; says whether a room was full so that there is more to do at once.

        Each room tells its facts when they are true. `moment` is what the monotonic clock showed before `now`
        was read.
        """
        if self.settles:
            tell(self.settle(now=now))
        tell(self.reclaim(now=now))
        admitted = self.admit(now=now)
        tell(admitted.facts)
        started = [_lease_of(run, schedule) for run, schedule in admitted.leased]
        self.launch(started, now=now, moment=moment, tell=tell)
        leased = self.lease(now=now)
        tell(leased.facts)
        self.launch(leased.leases, now=now, moment=moment, tell=tell)
        if self.in_doubt and self.leasing:
            self.launch(self.take_up(now=now), now=now, moment=moment, tell=tell)
        return admitted.full or (leased.more and self.room > 0 and bool(leased.leases))

    @property
    def room(self) -> int:
        """How many more runs this instance may start."""
        return self.launcher.room(self.limits.capacity) if self.leasing else 0

    def settle(self, *, now: datetime) -> list[Fact]:
        """Write what has come back; answers that cannot be written are kept for the next pass."""
        answers = self.launcher.take_answers()
        if not answers:
            return []
        try:
            facts = list(settle_answers(self.store, answers, now=now).facts)
        except Exception:
            self.launcher.put_back(answers)
            raise
        self.launcher.written(answers)
        self.freed_gates = any(answer.run.gates for answer in answers)
        return facts

    def reclaim(self, *, now: datetime) -> list[Fact]:
        """Take back leases that are over, once a second; and let go what waits for nobody."""
        if self._reclaimed_at is not None and timedelta(0) <= now - self._reclaimed_at < RECLAIM_EVERY:
            return []
        self._reclaimed_at = now
        facts = list(reclaim(self.store, now=now, limit=self.limits.batch).facts)
        return [*facts, *free_held(self.store, now=now)]

    def admit(self, *, now: datetime) -> Admitted:
        """Decide what is due; what fits here is leased in the same breath unless others wait already."""
        if not self.limits.admits:
            return Admitted()
        offer = Offer(holder=self.holder, capacity=self.room) if self.room and not self._backlog else None
        admitted = admit_due(
            self.store,
            ids=self.ids,
            now=now,
            limit=self.limits.batch,
            since=self._lower_bound(now=now),
            offer=offer,
        )
        if not admitted.full:
            self._looked_to = now
        return admitted

    def lease(self, *, now: datetime) -> Leased:
        """Take ready runs up to our room."""
        if not self.limits.leases or not self.room:
            self.waits_for_room = self.limits.leases
            # Nobody looked who waits; what is due next must not go before them.
            self._backlog = True
            return Leased()
        leased = lease_ready(self.store, ids=self.ids, holder=self.holder, capacity=self.room, now=now)
        self._backlog = self.waits_for_room = leased.more
        return leased

    def take_up(self, *, now: datetime) -> list[Lease]:
        """What the store says we hold and nobody here knows of: the grant was lost with the connection."""

        def work(tx: Transaction) -> list[Lease]:
            mine = [run for run in tx.leased_runs(holder=self.holder) if not self.launcher.knows(run)]
            living = [run for run in mine if run.lease_until is not None and run.lease_until > now]
            under = terms_for(tx, living)
            return [Lease(run=r, schedule=under[r.id].schedule, terms=under[r.id].terms) for r in living]

        found = self.store.read(work)
        self.in_doubt = False
        return found

    def launch(self, leases: Sequence[Lease], *, now: datetime, moment: float, tell: Tell) -> None:
        """Say that it starts and start the work, in this order: its end may be told while we are here."""
        tell(
            [
                AttemptStarted(
                    at=now,
                    namespace=lease.run.namespace,
                    run_id=lease.run.id,
                    schedule_id=lease.run.schedule_id,
                    fence=lease.run.fence,
                    planned_at=lease.run.planned_at,
                    source=lease.run.source.value,
                    queue=lease.run.queue,
                )
                for lease in leases
            ]
        )
        for lease in leases:
            self.launcher.launch(lease, now=now, moment=moment, most=self.limits.capacity)

    def look_back(self, *, to: datetime) -> None:
        """Something waits there: if that is further back than we look, look at everything the next time."""
        if self._looked_to is not None and to < self._looked_to - SWEEP_EVERY:
            self._swept_at = None

    def _lower_bound(self, *, now: datetime) -> datetime | None:
        """What lies further back was looked at already; now and then we look all the same."""
        if self._swept_at is None or not timedelta(0) <= now - self._swept_at < SWEEP_EVERY:
            self._swept_at = now
            return None
        return self._looked_to - SWEEP_EVERY if self._looked_to is not None else None


def _lease_of(run: Run, schedule: Schedule) -> Lease:
    return Lease(run=run, schedule=schedule, terms=terms_of(schedule))
