"""One pass of an instance: reclaim expired leases, admit due schedules, lease, launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import AttemptStarted, Fact
from timewright.core.run.run import Run
from timewright.engine.in_flight import attempt_started_at
from timewright.engine.launch import Launcher
from timewright.engine.pending_work import AdmissionScope, PendingWorkReader
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.admit import AdmissionResult, admit_due
from timewright.ledger.lease import Lease, LeaseResult, add_checkpoints, lease_ready
from timewright.ledger.lookups import load_terms, schedule_terms
from timewright.ledger.queues.policies import PolicyFile, PolicyFileWatcher
from timewright.ledger.records.instances import FleetOffers
from timewright.ledger.records.schedule_states import load_states
from timewright.ledger.settle import reclaim, release_held_runs
from timewright.ports import Ids, Store, Transaction
from timewright.ports.overview import PendingWork
from timewright.ports.rows import LeasedRuns

NotifyFacts = Callable[[Sequence[Fact]], None]


class TickLimits(Struct, frozen=True, kw_only=True):
    """At most how many schedules one tick decides, and before their instant; whether it decides any."""

    batch: int = 1000
    ahead: int = 500
    admits_schedules: bool = True


class Tick:
    """Runs the passes of one instance; the caller gives the time and the store."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        *,
        ids: Ids,
        holder: str,
        limits: TickLimits | None = None,
        scope: AdmissionScope | None = None,
        policies: PolicyFileWatcher | None = None,
        fleet: FleetOffers | None = None,
    ) -> None:
        self.store = store
        self.launcher = launcher
        self.ids = ids
        self.holder = holder
        self.limits = limits or TickLimits()
        self.scope = scope or AdmissionScope(store, holder=holder)
        self.pending = PendingWorkReader(store, holder=holder, scope=self.scope, offer=launcher.lease_offer)
        self.policies = policies
        self.fleet = fleet
        # Set by any thread after an error: a commit may have succeeded although no answer came, so the store
        # may hold leases of this instance that the launcher does not know.
        self.may_have_unknown_leases = False

    def run(
        self, *, now: datetime, monotonic_now: float, notify: NotifyFacts, commit_at: datetime | None = None
    ) -> bool:
        """Reclaim, admit, lease, launch; return whether to run the next tick at once.

        Facts are sent as soon as they are committed. `monotonic_now` was read before `now`, so that leases
        end early rather than late. `commit_at` is given if `now` is a due instant that lies a few
        milliseconds in the future, and is the same instant: the schedules that are due then are decided
        immediately, and the store commits when its clock reaches the instant.
        """
        launch = partial(self.launch, now=now, monotonic_now=monotonic_now, notify=notify)
        policy_file = self.policies.apply(self.store) if self.policies is not None else None
        work, admit_again = self.pending.read(now=now), False
        notify(self.reclaim(work, now=now))
        is_due = self.limits.admits_schedules and work.has_due_schedule(now=now)
        if is_due:
            for admitted in self.admit(work, now=now, commit_at=commit_at):
                if admitted.too_early:
                    # Nothing was written: sleep until the instant, and decide at it.
                    self.pending.mark_too_early(now)
                    return False
                launch(_leases(admitted), facts=admitted.facts)
                admit_again = admit_again or admitted.admit_again
        if commit_at is not None and admit_again:
            # Without an answer from the store, the commit may have failed before the instant, so `now` may
            # still lie in the future. No run may be leased before it: the next tick leases.
            return True
        if is_due or self.pending.is_stale:
            work = self.pending.refresh(now=now)
        leased = self.lease(work, policy_file, now=now)
        launch(leased.leases, facts=leased.facts)
        if self.may_have_unknown_leases and self.launcher.is_open:
            launch(self.adopt_unknown_leases(now=now))
        return admit_again or bool(leased.leases)

    def reclaim(self, work: PendingWork, *, now: datetime) -> list[Fact]:
        """Reclaim expired leases, and release held runs that wait for nothing."""
        lost: Sequence[Fact] = ()
        released: Sequence[Fact] = ()
        if work.has_expired_lease(now=now):
            lost = reclaim(self.store, now=now, limit=self.limits.batch).facts
        if work.has_releasable_runs:
            released = release_held_runs(self.store, now=now)
        if work.has_wakeable_schedules:
            offer = self.launcher.lease_offer()
            self.store.write(lambda tx: tx.wake_waiting_schedules(offer, now=now))
        if lost or released or work.has_wakeable_schedules:
            self.pending.is_stale = True
        return [*lost, *released]

    def admit(
        self, work: PendingWork, *, now: datetime, commit_at: datetime | None = None
    ) -> Iterator[AdmissionResult]:
        """Decide the due schedules. Unless older runs wait, new runs that fit here are inserted leased."""
        for part in self.scope.slices_to_scan(now=now):
            free = 0 if work.has_runs_to_lease(now=now) else self.launcher.free
            offer = self.launcher.lease_offer()
            capacity = LocalCapacity(holder=self.holder, free_slots=free, offer=offer) if free else None
            yield admit_due(
                self.store,
                ids=self.ids,
                now=now,
                limit=min(self.limits.batch, self.limits.ahead) if commit_at else self.limits.batch,
                since=None if part.overdue_by else work.first_wake_at,
                local_capacity=capacity,
                shard=part.shard,
                overdue_by=part.overdue_by,
                commit_at=commit_at,
                fleet=self.fleet,
            )

    def lease(
        self, work: PendingWork, policy_file: PolicyFile | None = None, *, now: datetime
    ) -> LeaseResult:
        """Lease ready runs up to the free capacity."""
        # Read after the query for ready runs: if it is 0, the next run that ends wakes the tick.
        free = self.launcher.free
        if not free or not work.has_runs_to_lease(now=now):
            return LeaseResult()
        self.pending.is_stale = True
        return lease_ready(
            self.store,
            ids=self.ids,
            holder=self.holder,
            capacity=free,
            now=now,
            policy_file=policy_file,
            offer=self.launcher.lease_offer(),
        )

    def adopt_unknown_leases(self, *, now: datetime) -> list[Lease]:
        """Return the leases of this instance that the store has and the launcher does not know.

        Their commit succeeded, but the connection broke before the answer arrived. The launcher is read
        before the store: a run that is settled in between is still known, and is not started a second time.
        """
        known = self.launcher.known_leases()

        def work(tx: Transaction) -> list[Lease]:
            leased = tx.select(LeasedRuns(holder=self.holder))
            unknown = [run for run in leased if (run.id, run.fence) not in known]
            live = [run for run in unknown if run.lease_until is not None and run.lease_until > now]
            terms = load_terms(tx, live)
            return [Lease(run=r, schedule=terms[r.id].schedule, terms=terms[r.id].terms) for r in live]

        found = self.store.read(work)
        self.may_have_unknown_leases = False
        return found

    def launch(
        self,
        leases: Sequence[Lease],
        *,
        facts: Sequence[Fact] = (),
        now: datetime,
        monotonic_now: float,
        notify: NotifyFacts,
    ) -> None:
        """Start the work of leases, then send `facts` and the starts.

        A run may end while this runs: the settle thread takes `launch_lock` before it reports an end, so
        that observers receive the start first.
        """
        leases = self._with_states(leases)
        if any(one.run.fence > 1 for one in leases):
            again = leases
            leases = self.store.read(lambda tx: add_checkpoints(tx, again))
        with self.launcher.launch_lock:
            self.launcher.launch(leases, now=now, monotonic_now=monotonic_now)
            notify([*facts, *(_attempt_started(lease.run, now=now) for lease in leases)])

    def _with_states(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Add the states of schedules that use them; most use none."""
        schedules = [s for one in leases if (s := one.schedule) is not None and s.uses_state]
        if not schedules:
            return leases
        states = self.store.read(lambda tx: load_states(tx, schedules))
        return [
            replace(one, state=states.get(one.schedule.id)) if one.schedule is not None else one
            for one in leases
        ]


def _leases(admitted: AdmissionResult) -> list[Lease]:
    """The runs that were admitted leased."""
    return [Lease(run=run, schedule=of, terms=schedule_terms(of)) for run, of in admitted.leased]


def _attempt_started(run: Run, *, now: datetime) -> AttemptStarted:
    return AttemptStarted(
        at=attempt_started_at(run, now=now),
        namespace=run.namespace,
        run_id=run.id,
        schedule_id=run.schedule_id,
        fence=run.fence,
        planned_at=run.planned_at,
        source=run.source.value,
        queue=run.queue,
    )
