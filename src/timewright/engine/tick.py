"""One pass of an instance: settle results, reclaim expired leases, admit due schedules, lease, launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec import Struct

from timewright.core.facts import AttemptStarted, Fact
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.engine.admission_scope import AdmissionScope, ShardSlice, has_elapsed
from timewright.engine.in_flight import attempt_started_at
from timewright.engine.launch import Launcher
from timewright.engine.pending_work import PendingWorkProbe
from timewright.engine.settle_thread import settle_batch
from timewright.engine.waiting import yield_gil
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.admit import AdmissionResult, WaitForInstant, admit_due, merge_results
from timewright.ledger.lease import Lease, LeaseResult, lease_ready
from timewright.ledger.lookups import load_terms, schedule_terms
from timewright.ledger.queues.policy_file_watcher import PolicyFileWatcher
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import reclaim, release_held_runs
from timewright.ports import Ids, Store, Transaction
from timewright.ports.pending_work import PendingWork

NotifyFacts = Callable[[Sequence[Fact]], None]

# Most scans look back only this far; a scan of all due schedules follows after each interval.
FULL_SCAN_INTERVAL = timedelta(seconds=30)
# While schedules or ready runs keep coming, query for other pending work at least this often.
MAX_LEASE_DELAY = timedelta(seconds=0.1)
# After a launch, sleep for the time a worker thread needs to wake up and take the interpreter lock,
# plus a little for each run: runs that end within it are counted before the next decision.
THREAD_WAKE_S = 0.0002
SHORT_RUN_S = 0.00002
MAX_GIL_YIELD_S = 0.002


class TickLimits(Struct, frozen=True, kw_only=True):
    """How much one tick takes on; `ahead` limits the schedules that are decided before their instant."""

    capacity: int = 100
    batch: int = 1000
    ahead: int = 500
    admits: bool = True
    leases: bool = True

    @property
    def max_schedules_ahead(self) -> int:
        """How many schedules a tick may decide before their instant."""
        return min(self.batch, self.ahead)


class Tick:
    """Runs the passes of one instance; the caller gives the time and the store."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        *,
        ids: Ids,
        holder: str,
        limits: TickLimits,
        admission_scope: AdmissionScope | None = None,
        policies: PolicyFileWatcher | None = None,
    ) -> None:
        self.store = store
        self.launcher = launcher
        self.ids = ids
        self.holder = holder
        self.limits = limits
        self.admission_scope = admission_scope or AdmissionScope(store, holder=holder)
        self.pending_work = PendingWorkProbe(store, holder=holder, admission_scope=self.admission_scope)
        self.policies = policies
        self.is_leasing = True
        self.has_unknown_grants = False
        self.settles_inline = True
        self.yields_gil = False
        self.waits_for_capacity = False
        self.freed_limits = False
        self.more_due = False
        self.launch_lock = threading.Lock()
        self._ended_count_seen = 0
        self._full_scan_at: datetime | None = None
        self._scanned_until: datetime | None = None
        self._has_backlog = True

    def run(
        self,
        *,
        now: datetime,
        monotonic_now: float,
        notify: NotifyFacts,
        wait_for_instant: WaitForInstant | None = None,
    ) -> bool:
        """Run one pass; return whether there is more to do at once.

        A step runs only if a query found work for it; what is written after the query is found by the next
        pass. Schedules that the last query announced for `now` start before anything is queried. Facts are
        sent as soon as they are committed. `monotonic_now` was read before `now`. If `now` lies slightly
        ahead, `wait_for_instant` waits for it, and only the announced schedules are decided before that.
        """
        is_known = self._due_is_known(now=now)
        if wait_for_instant is not None and not is_known and not wait_for_instant(self.store.now):
            return False
        self.pending_work.begin_pass(now=now)
        if self.settles_inline:
            notify(self.settle(now=now))
        start_due = partial(self._admit_and_launch, now=now, monotonic_now=monotonic_now, notify=notify)
        admitted = start_due(wait_for_instant=wait_for_instant) if is_known else AdmissionResult()
        if wait_for_instant is not None and wait_for_instant.is_behind:
            return False
        if self._continue_admitting(admitted, now=now):
            return True
        if self._continue_leasing(now=now):
            return self._can_lease_more(
                self._lease_and_launch(now=now, monotonic_now=monotonic_now, notify=notify)
            )
        if self.policies is not None:
            self.policies.apply(self.store)
        notify(self.reclaim(now=now))
        # Waiting runs go first. Once none waits, due schedules may start their runs in the same transaction.
        leased = LeaseResult()
        if self._has_backlog and self.read_pending(now=now).has_runs_to_lease(now=now):
            leased = self._lease_and_launch(now=now, monotonic_now=monotonic_now, notify=notify)
        if not is_known and self.limits.admits and self.read_pending(now=now).has_due_schedule(now=now):
            admitted = start_due()
        self.more_due = admitted.more_due
        may_lease = not (leased.more or self._continue_admitting(admitted, now=now))
        if may_lease and self.read_pending(now=now).has_runs_to_lease(now=now):
            leased = self._lease_and_launch(now=now, monotonic_now=monotonic_now, notify=notify)
        if self.has_unknown_grants and self.is_leasing:
            adopted = self.adopt_unknown_leases(now=now)
            self.launch(adopted, now=now, monotonic_now=monotonic_now, notify=notify)
        if admitted.more_due or self._can_lease_more(leased):
            return True
        # The loop computes its sleep from this read.
        self.read_pending(now=now)
        return self._can_lease_more(leased)

    def read_pending(self, *, now: datetime) -> PendingWork:
        """Return what there is to do; query again if something was written since the last query."""
        if not self.pending_work.is_stale:
            return self.pending_work.last_read
        # Read `ended_count` before querying, so that a run that ends after the query still wakes us.
        ended_count, has_capacity = self.launcher.ended_count, self.free_slots > 0
        pending = self.pending_work.read_pending(now=now)
        if not pending.has_runs_to_lease(now=now):
            self._has_backlog = not self.limits.leases
        if not (has_capacity and pending.has_runs_to_lease(now=now)):
            self._ended_count_seen = ended_count
            self.waits_for_capacity = self.limits.leases and not has_capacity
        return pending

    def _due_is_known(self, *, now: datetime) -> bool:
        """Whether the last query announced a schedule that is due now, and no run waits before it."""
        waits = self._has_backlog and self.limits.leases
        return self.limits.admits and not waits and self.pending_work.last_read.has_due_schedule(now=now)

    def _admit_and_launch(
        self,
        *,
        now: datetime,
        monotonic_now: float,
        notify: NotifyFacts,
        wait_for_instant: WaitForInstant | None = None,
    ) -> AdmissionResult:
        """Decide the due schedules, and launch the runs that were leased with their admission."""
        if self.pending_work.last_read.schedule_due_at is not None:
            self.widen_scan(to=self.pending_work.last_read.schedule_due_at)
        admitted = self.admit(now=now, wait_for_instant=wait_for_instant)
        if admitted.schedules_read or admitted.more_due:
            self.pending_work.invalidate()
        self.more_due = admitted.more_due
        leases = [_lease_of(run, schedule) for run, schedule in admitted.leased]
        self.launch(leases, facts=admitted.facts, now=now, monotonic_now=monotonic_now, notify=notify)
        return admitted

    def _lease_and_launch(self, *, now: datetime, monotonic_now: float, notify: NotifyFacts) -> LeaseResult:
        leased = self.lease(now=now)
        self.launch(leased.leases, facts=leased.facts, now=now, monotonic_now=monotonic_now, notify=notify)
        return leased

    def _can_lease_more(self, leased: LeaseResult) -> bool:
        """Whether runs wait for capacity and there is some: we leased some, or others ended since the query.

        A run that ends later wakes the tick, because `waits_for_capacity` is set.
        """
        moved = bool(leased.leases) or self.launcher.ended_count != self._ended_count_seen
        return self.waits_for_capacity and moved and self.free_slots > 0

    def _continue_admitting(self, admitted: AdmissionResult, *, now: datetime) -> bool:
        """Whether to admit the next batch first: more is due, and all schedules of this one start here."""
        all_start = admitted.more_due and len(admitted.leased) == admitted.schedules_read
        return all_start and not has_elapsed(self.pending_work.read_at, MAX_LEASE_DELAY, now=now)

    def _continue_leasing(self, *, now: datetime) -> bool:
        """Whether to lease again without a query: runs were left, there is capacity, nothing else is due."""
        if self.has_unknown_grants or not (
            self.waits_for_capacity and self._has_backlog and self.free_slots > 0
        ):
            return False
        is_fresh = not has_elapsed(self.pending_work.read_at, MAX_LEASE_DELAY, now=now)
        is_due = self.pending_work.last_read.has_due_schedule(now=now)
        return is_fresh and not self.pending_work.checks_expiry and not is_due

    @property
    def free_slots(self) -> int:
        """How many more runs this instance may lease."""
        return self.launcher.free_slots(self.limits.capacity) if self.is_leasing else 0

    def settle(self, *, now: datetime) -> list[Fact]:
        """Write the results that have arrived; those that cannot be written are kept for the next pass."""
        return self.write_results(self.launcher.take_results(), now=now)

    def write_results(self, results: list[AttemptResult], *, now: datetime) -> list[Fact]:
        """Write results that were taken from the launcher; if that fails, put them back."""
        try:
            # Output first: a reader that sees an ended attempt must find all of its output.
            self.launcher.output_buffer.write_final(self.store, now=now)
            facts = settle_batch(self.store, results, now=now)
        except Exception:
            self.launcher.put_back_results(results)
            raise
        self.launcher.confirm_written(results)
        self.freed_limits = any(result.run.limit_keys for result in results)
        return facts

    def reclaim(self, *, now: datetime) -> list[Fact]:
        """Reclaim expired leases and release held runs that wait for nothing; checked once a second."""
        pending = self.read_pending(now=now)
        expired = self.pending_work.checks_expiry and pending.has_expired_lease(now=now)
        lost = reclaim(self.store, now=now, limit=self.limits.batch).facts if expired else ()
        released = release_held_runs(self.store, now=now) if pending.has_releasable_runs else ()
        if lost or released:
            self.pending_work.invalidate()
        return [*lost, *released]

    def admit(self, *, now: datetime, wait_for_instant: WaitForInstant | None = None) -> AdmissionResult:
        """Decide the due schedules; unless other runs wait, runs that fit here are leased at once."""
        if not self.limits.admits:
            return AdmissionResult()
        results: list[AdmissionResult] = []
        for part in self.admission_scope.slices_to_scan(now=now):
            free_slots = self.free_slots - sum(len(one.leased) for one in results)
            results.append(
                self._admit_slice(part, free_slots=free_slots, now=now, wait_for_instant=wait_for_instant)
            )
        if wait_for_instant is not None and not results:
            wait_for_instant(self.store.now)
        return results[0] if len(results) == 1 else merge_results(results)

    def lease(self, *, now: datetime) -> LeaseResult:
        """Lease ready runs up to the free capacity."""
        self._ended_count_seen = self.launcher.ended_count
        free_slots = self.free_slots if self.limits.leases else 0
        if not free_slots:
            self.waits_for_capacity = self.limits.leases
            # Schedules that become due must not overtake the runs that wait.
            self._has_backlog = True
            return LeaseResult()
        self.pending_work.invalidate()
        leased = lease_ready(
            self.store,
            ids=self.ids,
            holder=self.holder,
            capacity=free_slots,
            now=now,
            policy_file=self.policies.apply(self.store) if self.policies is not None else None,
        )
        self._has_backlog = self.waits_for_capacity = leased.more
        return leased

    def adopt_unknown_leases(self, *, now: datetime) -> list[Lease]:
        """Return leases that the store assigns to us and the launcher does not know.

        The commit succeeded, but the connection broke before its answer arrived.
        """

        def work(tx: Transaction) -> list[Lease]:
            unknown = [run for run in tx.leased_runs(holder=self.holder) if not self.launcher.has_lease(run)]
            live = [run for run in unknown if run.lease_until is not None and run.lease_until > now]
            terms = load_terms(tx, live)
            return [Lease(run=r, schedule=terms[r.id].schedule, terms=terms[r.id].terms) for r in live]

        found = self.store.read(work)
        self.has_unknown_grants = False
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
        with self.launch_lock:
            self.launcher.launch(
                leases, now=now, monotonic_now=monotonic_now, max_running=self.limits.capacity
            )
            if leases and self.yields_gil and not (self.waits_for_capacity and self.launcher.is_prefetching):
                yield_gil(min(THREAD_WAKE_S + len(leases) * SHORT_RUN_S, MAX_GIL_YIELD_S))
            notify([*facts, *(_attempt_started(lease.run, now=now) for lease in leases)])

    def _admit_slice(
        self, part: ShardSlice, *, free_slots: int, now: datetime, wait_for_instant: WaitForInstant | None
    ) -> AdmissionResult:
        is_own = not part.overdue_by
        capacity = None
        if free_slots > 0 and not self._has_backlog:
            capacity = LocalCapacity(holder=self.holder, capacity=free_slots)
        admitted = admit_due(
            self.store,
            ids=self.ids,
            now=now,
            limit=self.limits.batch if wait_for_instant is None else self.limits.max_schedules_ahead,
            since=self._scan_from(now=now) if is_own else None,
            local_capacity=capacity,
            shard=part.shard,
            overdue_by=part.overdue_by,
            wait_for_instant=wait_for_instant,
        )
        if is_own and not admitted.more_due:
            self._scanned_until = now
        return admitted

    def widen_scan(self, *, to: datetime) -> None:
        """Scan all due schedules next time if `to` lies before the part that is usually scanned."""
        if self._scanned_until is not None and to < self._scanned_until - FULL_SCAN_INTERVAL:
            self._full_scan_at = None

    def _scan_from(self, *, now: datetime) -> datetime | None:
        """Where to start scanning: earlier instants were scanned before; None once per interval, for all."""
        if has_elapsed(self._full_scan_at, FULL_SCAN_INTERVAL, now=now):
            self._full_scan_at = now
            return None
        return self._scanned_until - FULL_SCAN_INTERVAL if self._scanned_until is not None else None


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


def _lease_of(run: Run, schedule: Schedule) -> Lease:
    return Lease(run=run, schedule=schedule, terms=schedule_terms(schedule))
