"""One pass through the rooms: settle what finished, reclaim what was lost, admit, lease, launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.facts import AttemptStarted, Fact
from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.engine.duty import Duty, Part, is_over
from timewright.engine.launch import Launcher, begins_at
from timewright.engine.lookout import Lookout
from timewright.engine.rest import give_way
from timewright.engine.writing import write_answers
from timewright.ledger.admission_pass import Offer
from timewright.ledger.admit import Admitted, Vigil, admit_due, joined
from timewright.ledger.lease import Lease, Leased, lease_ready
from timewright.ledger.policy_watch import PolicyWatch
from timewright.ledger.settle import Answer, free_held, reclaim
from timewright.ledger.shelf import terms_for, terms_of
from timewright.ports import Ids, Store, Transaction
from timewright.ports.outlook import Outlook

Tell = Callable[[Sequence[Fact]], None]

SWEEP_EVERY = timedelta(seconds=30)
# However much is due, those that wait are looked for so often.
LEASE_AT_LEAST = timedelta(seconds=0.1)
# Others may keep us from our turn for so long.
LONGEST_TURN = timedelta(seconds=1)
# Whoever did not get a turn goes without for so long: one who has it may be stopped, and keeps it.
NO_TURNS = timedelta(seconds=5)
# A thread that is called needs about so long to come, and then the interpreter, before anything else does.
WAKING = 0.0002
# Many that are quick are over in a moment, and what is done next does better to know it.
BRIEFLY = 0.00002
LONGEST_WAY = 0.002


class Limits(Struct, frozen=True, kw_only=True):
    """How much one pass takes on; on the eve of an instant no more than is decided before it."""

    capacity: int = 100
    batch: int = 1000
    eve: int = 500
    admits: bool = True
    leases: bool = True

    @property
    def most_on_eve(self) -> int:
        """How many schedules are decided on an eve."""
        return min(self.batch, self.eve)


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
        self.lookout = Lookout(store, holder=holder, duty=self.duty)
        self.policies = policies
        self.leasing = True
        self.in_doubt = False
        self.settles = True
        self.gives_way = False
        self.waits_for_room = False
        self.freed_gates = False
        self.hurries = False
        self.starting = threading.Lock()
        self._ends_seen = 0
        self._swept_at: datetime | None = None
        self._looked_to: datetime | None = None
        self._backlog = True
        self._no_turn_at: datetime | None = None

    def run(self, *, now: datetime, moment: float, tell: Tell, vigil: Vigil | None = None) -> bool:
        """One pass; says whether a room was full so that there is more to do at once.

        A room is entered where a look at the store found something for it; whatever comes after the look is
        found by the next. What the last look foresaw for now starts before anything is looked at. Each room
        tells its facts when they are true. `moment` is what the monotonic clock showed before `now` was read.
        Where `now` is a moment ahead, `vigil` waits for it; only what is foreseen begins before that.
        """
        foreseen = self._foresees(now=now)
        if vigil is not None and not foreseen:
            vigil()
        self.lookout.begin(now=now)
        if self.settles:
            tell(self.settle(now=now))
        admitted = self._start_due(now=now, moment=moment, tell=tell, vigil=vigil) if foreseen else Admitted()
        if self._goes_on(admitted, now=now):
            return True
        if self._goes_on_taking(now=now):
            return self._may_take_more(self._take(now=now, moment=moment, tell=tell))
        if self.policies is not None:
            self.policies.keep(self.store)
        tell(self.reclaim(now=now))
        # Those that wait already go first; nobody waits after them, and what is due then starts at once.
        waits = self._backlog and self.look(now=now).waits(now=now)
        leased = self._take(now=now, moment=moment, tell=tell) if waits else Leased()
        if not foreseen and self.limits.admits and self.look(now=now).is_due(now=now):
            admitted = self._start_due(now=now, moment=moment, tell=tell)
        self.hurries = admitted.full
        if not (leased.more or self._goes_on(admitted, now=now)) and self.look(now=now).waits(now=now):
            leased = self._take(now=now, moment=moment, tell=tell)
        if self.in_doubt and self.leasing:
            self.launch(self.take_up(now=now), now=now, moment=moment, tell=tell)
        if admitted.full or self._may_take_more(leased):
            return True
        # The rest is taken from what is seen now.
        self.look(now=now)
        return self._may_take_more(leased)

    def look(self, *, now: datetime) -> Outlook:
        """What there is to do, read again if anything was written since the last look."""
        if not self.lookout.is_stale:
            return self.lookout.last
        # Before the look: who comes after it and found no room is called by whoever has ended since.
        ends, has_room = self.launcher.ends, self.room > 0
        outlook = self.lookout.look(now=now)
        if not outlook.waits(now=now):
            self._backlog = not self.limits.leases
        if not (has_room and outlook.waits(now=now)):
            self._ends_seen = ends
            self.waits_for_room = self.limits.leases and not has_room
        return outlook

    def _foresees(self, *, now: datetime) -> bool:
        """Whether the last look knew of something that is due now, and of nobody who must go before it."""
        waits = self._backlog and self.limits.leases
        return self.limits.admits and not waits and self.lookout.last.is_due(now=now)

    def _start_due(self, *, now: datetime, moment: float, tell: Tell, vigil: Vigil | None = None) -> Admitted:
        """Decide what is due, and start what may start here."""
        if self.lookout.last.due is not None:
            self.look_back(to=self.lookout.last.due)
        admitted = self.admit(now=now, vigil=vigil)
        if admitted.looked_at or admitted.full:
            self.lookout.wrote()
        self.hurries = admitted.full
        started = [_lease_of(run, schedule) for run, schedule in admitted.leased]
        self.launch(started, facts=admitted.facts, now=now, moment=moment, tell=tell)
        return admitted

    def _take(self, *, now: datetime, moment: float, tell: Tell) -> Leased:
        leased = self.lease(now=now)
        self.launch(leased.leases, facts=leased.facts, now=now, moment=moment, tell=tell)
        return leased

    def _may_take_more(self, leased: Leased) -> bool:
        """Whether someone waits for room and there is some: we took some, or others ended since we looked.

        Who ends from here on calls us, because we said that we wait.
        """
        moved = bool(leased.leases) or self.launcher.ends != self._ends_seen
        return self.waits_for_room and moved and self.room > 0

    def _goes_on(self, admitted: Admitted, *, now: datetime) -> bool:
        """Whether more is due at once, and all before it starts here: who waits is then looked for later."""
        all_start = admitted.full and len(admitted.leased) == admitted.looked_at
        return all_start and not is_over(self.lookout.looked_at, LEASE_AT_LEAST, now=now)

    def _goes_on_taking(self, *, now: datetime) -> bool:
        """Whether the last lease left some behind, there is room for them, and nothing else is known of."""
        if self.in_doubt or not (self.waits_for_room and self._backlog and self.room > 0):
            return False
        is_fresh = not is_over(self.lookout.looked_at, LEASE_AT_LEAST, now=now)
        return is_fresh and not self.lookout.checks and not self.lookout.last.is_due(now=now)

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
            facts = write_answers(self.store, answers, now=now)
        except Exception:
            self.launcher.put_back(answers)
            raise
        self.launcher.written(answers)
        self.freed_gates = any(answer.run.gates for answer in answers)
        return facts

    def reclaim(self, *, now: datetime) -> list[Fact]:
        """Take back leases that are over, and let go what waits for nobody; looked for once a second."""
        seen = self.look(now=now)
        over = self.lookout.checks and seen.is_over(now=now)
        lost = reclaim(self.store, now=now, limit=self.limits.batch).facts if over else ()
        freed = free_held(self.store, now=now) if seen.freeable else ()
        if lost or freed:
            self.lookout.wrote()
        return [*lost, *freed]

    def admit(self, *, now: datetime, vigil: Vigil | None = None) -> Admitted:
        """Decide what is due; what fits here is leased in the same breath unless others wait already."""
        if not self.limits.admits:
            return Admitted()
        passes: list[Admitted] = []
        for part in self.duty.parts(now=now):
            room = self.room - sum(len(one.leased) for one in passes)
            passes.append(self._admit_part(part, room=room, now=now, vigil=vigil))
        if vigil is not None:
            vigil()
        return passes[0] if len(passes) == 1 else joined(passes)

    def lease(self, *, now: datetime) -> Leased:
        """Take ready runs up to our room."""
        self._ends_seen = self.launcher.ends
        room = self.room if self.limits.leases else 0
        if not room:
            self.waits_for_room = self.limits.leases
            # What is due next must not go before those who wait.
            self._backlog = True
            return Leased()
        self.lookout.wrote()
        leased = lease_ready(
            self.store,
            ids=self.ids,
            holder=self.holder,
            capacity=room,
            now=now,
            policy_file=self.policies.keep(self.store) if self.policies is not None else None,
            turn=LONGEST_TURN if self._takes_turns(now=now) else None,
        )
        if leased.out_of_turn:
            self._no_turn_at = now
        self._backlog = self.waits_for_room = leased.more
        return leased

    def _takes_turns(self, *, now: datetime) -> bool:
        """Whether we take many from a crowd, as others may too, and nothing is due while we wait."""
        due = self.lookout.last.due
        is_crowd = self.waits_for_room and self.launcher.takes_ahead
        has_time = due is None or due - now > LONGEST_TURN
        return is_crowd and has_time and is_over(self._no_turn_at, NO_TURNS, now=now)

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

    def launch(
        self, leases: Sequence[Lease], *, facts: Sequence[Fact] = (), now: datetime, moment: float, tell: Tell
    ) -> None:
        """Start the work in the breath in which its lease was kept, and then say so, after what led to it.

        Its end may come while we are here: whoever tells of it waits until its start was told.
        """
        with self.starting:
            self.launcher.launch(leases, now=now, moment=moment, most=self.limits.capacity)
            if leases and self.gives_way and not (self.waits_for_room and self.launcher.takes_ahead):
                give_way(min(WAKING + len(leases) * BRIEFLY, LONGEST_WAY))
            tell([*facts, *(_started(lease.run, now=now) for lease in leases)])

    def _admit_part(self, part: Part, *, room: int, now: datetime, vigil: Vigil | None) -> Admitted:
        own = not part.waited
        admitted = admit_due(
            self.store,
            ids=self.ids,
            now=now,
            limit=self.limits.batch if vigil is None else self.limits.most_on_eve,
            since=self._lower_bound(now=now) if own else None,
            offer=Offer(holder=self.holder, capacity=room) if room > 0 and not self._backlog else None,
            shard=part.shard,
            waited=part.waited,
            vigil=vigil,
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
        if is_over(self._swept_at, SWEEP_EVERY, now=now):
            self._swept_at = now
            return None
        return self._looked_to - SWEEP_EVERY if self._looked_to is not None else None


def _started(run: Run, *, now: datetime) -> AttemptStarted:
    return AttemptStarted(
        at=begins_at(run, now=now),
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        fence=run.fence,
        planned_at=run.planned_at,
        source=run.source.value,
        queue=run.queue,
    )


def _lease_of(run: Run, schedule: Schedule) -> Lease:
    return Lease(run=run, schedule=schedule, terms=terms_of(schedule))
