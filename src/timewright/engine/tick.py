"""One pass through the rooms: settle what finished, reclaim what was lost, admit, lease, launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.facts import AttemptStarted, Fact
from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.engine.duty import Duty, Part
from timewright.engine.launch import Launcher
from timewright.ledger.admit import Admitted, Offer, admit_due, joined
from timewright.ledger.lease import Lease, Leased, lease_ready
from timewright.ledger.policy_watch import PolicyWatch
from timewright.ledger.settle import Answer, free_held, reclaim, settle_answers
from timewright.ledger.shelf import terms_for, terms_of
from timewright.ports import Ids, Store, Transaction

Tell = Callable[[Sequence[Fact]], None]

RECLAIM_EVERY = timedelta(seconds=1)
SWEEP_EVERY = timedelta(seconds=30)
# However much is due, those that wait are looked for so often.
LEASE_AT_LEAST = timedelta(seconds=0.1)


class Limits(Struct, frozen=True, kw_only=True):
    """How much one pass takes on."""

    capacity: int = 100
    batch: int = 500
    admits: bool = True
    leases: bool = True


class Tick:
    """The rooms of one instance, walked once per call; time and store are handed in."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        *,
        ids: Ids,
        holder: str,
        limits: Limits,
        duty: Duty | None = None,
        policies: PolicyWatch | None = None,
    ) -> None:
        self.store = store
        self.launcher = launcher
        self.ids = ids
        self.holder = holder
        self.limits = limits
        self.duty = duty or Duty(store, holder=holder)
        self.policies = policies
        self.leasing = True
        self.in_doubt = False
        self.settles = True
        self.waits_for_room = False
        self.freed_gates = False
        self.hurries = False
        self._leased_at: datetime | None = None
        self._ends_seen = 0
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
        # Those that wait already go first; nobody waits after them, and what is due then starts at once.
        leased = self._take(now=now, moment=moment, tell=tell) if self._backlog else None
        admitted = self.admit(now=now)
        tell(admitted.facts)
        started = [_lease_of(run, schedule) for run, schedule in admitted.leased]
        self.launch(started, now=now, moment=moment, tell=tell)
        self.hurries = admitted.full
        if (leased is None or not leased.more) and not self._goes_on(admitted, now=now):
            leased = self._take(now=now, moment=moment, tell=tell)
        if self.in_doubt and self.leasing:
            self.launch(self.take_up(now=now), now=now, moment=moment, tell=tell)
        return admitted.full or self._may_take_more(leased)

    def _take(self, *, now: datetime, moment: float, tell: Tell) -> Leased:
        leased = self.lease(now=now)
        tell(leased.facts)
        self.launch(leased.leases, now=now, moment=moment, tell=tell)
        return leased

    def _may_take_more(self, leased: Leased | None) -> bool:
        """Whether someone waits for room and there is some: we took some, or others ended since we looked.

        Who ends from here on calls us, because we said that we wait.
        """
        moved = bool(leased is not None and leased.leases) or self.launcher.ends != self._ends_seen
        return self.waits_for_room and moved and self.room > 0

    def _goes_on(self, admitted: Admitted, *, now: datetime) -> bool:
        """Whether more is due at once, and all before it starts here: who waits is then looked for later."""
        is_fresh = self._leased_at is not None and timedelta(0) <= now - self._leased_at < LEASE_AT_LEAST
        return admitted.full and len(admitted.leased) == admitted.looked_at and is_fresh

    @property
    def room(self) -> int:
        """How many more runs this instance may start."""
        return self.launcher.room(self.limits.capacity) if self.leasing else 0

    def settle(self, *, now: datetime) -> list[Fact]:
        """Write what has come back; answers that cannot be written are kept for the next pass."""
        return self.write(self.launcher.take_answers(), now=now)

    def write(self, answers: list[Answer], *, now: datetime) -> list[Fact]:
        """Write answers that were taken; those that cannot be written are put back."""
        try:
            # Last words first: whoever sees that an attempt is over finds all it said.
            self.launcher.sayings.write_last(self.store, now=now)
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
        passes: list[Admitted] = []
        for part in self.duty.parts(now=now):
            room = self.room - sum(len(one.leased) for one in passes)
            passes.append(self._admit_part(part, room=room, now=now))
        return passes[0] if len(passes) == 1 else joined(passes)

    def lease(self, *, now: datetime) -> Leased:
        """Take ready runs up to our room."""
        self._leased_at, self._ends_seen = now, self.launcher.ends
        room = self.room if self.limits.leases else 0
        if not room:
            self.waits_for_room = self.limits.leases
            # What is due next must not go before those who wait.
            self._backlog = not self.limits.leases or self.store.read(lambda tx: tx.any_ready())
            return Leased()
        leased = lease_ready(
            self.store,
            ids=self.ids,
            holder=self.holder,
            capacity=room,
            now=now,
            policy_file=self.policies.keep(self.store) if self.policies is not None else None,
        )
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

    def _admit_part(self, part: Part, *, room: int, now: datetime) -> Admitted:
        own = not part.waited
        admitted = admit_due(
            self.store,
            ids=self.ids,
            now=now,
            limit=self.limits.batch,
            since=self._lower_bound(now=now) if own else None,
            offer=Offer(holder=self.holder, capacity=room) if room > 0 and not self._backlog else None,
            shard=part.shard,
            waited=part.waited,
        )
        if own and not admitted.full:
            self._looked_to = now
        return admitted

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
