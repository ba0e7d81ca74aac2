"""A transaction that records events that leave no row, and counts refusals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from timewright.core.budgets.budgets import Charge
from timewright.core.moments import to_micros
from timewright.core.policies.policies import JitterSide
from timewright.core.run.run import HOLDER_DIED, Attempt, Reason, Run, RunState
from timewright.core.schedule.upstream import UnmetAction
from timewright.ledger.settle import reclaim
from timewright.ports import Grant, OnTimeStep, ProgressUpdate, PruneRequest, Renewal, Renewed, ScheduleWrite
from timewright.ports.attempt_output import AttemptOutput
from timewright.ports.rows import LeasedRuns
from timewright.ports.workflow import DependencyWait, FollowUp, UpstreamLinks
from timewright.stores.transaction import SqlTransaction

_ALL_RUNS = "SELECT id, CASE WHEN dedupe_scope = '' THEN schedule_id ELSE '' END, planned_at, state FROM runs"
_REMAINING = "SELECT id FROM runs"
_LEASE = "SELECT id, fence, lease_until, schedule_id FROM runs WHERE id = ?"

# The transaction that reclaims expired leases.
RECLAIM_TRANSACTION = reclaim.__qualname__

RecordedEvent = tuple[str, str, int, int, str, str]


class RecordingTransaction(SqlTransaction):
    """Forwards every query; records some events, which count after the commit."""

    def __init__(
        self,
        tx: SqlTransaction,
        *,
        name: str,
        now: int,
        may_be_early: set[str],
        has_dependencies: bool = False,
    ) -> None:
        super().__init__(tx._executor)
        self._has_dependencies = has_dependencies
        self._is_reclaim = name == RECLAIM_TRANSACTION
        self._true_now = now
        self._may_be_early = may_be_early
        self.events: list[RecordedEvent] = []
        self.counters: list[str] = []
        self.touches_limits = False
        self.sets_limits = False
        self.changed = True
        self._change_queries = 0
        self._granted: set[tuple[str, int]] = set()
        executor: Any = tx._executor
        self._connection = connection = getattr(executor, "connection", None) or executor._connection
        self._total_changes = getattr(connection, "total_changes", None)

    def query_sql(self, sql: str) -> list[Any]:
        """Rows of an ad-hoc query in this transaction."""
        return list(self._connection.execute(sql))

    def change_count(self) -> int:
        """How many rows this connection ever changed; always rises on a server, which does not report it."""
        if self._total_changes is None:
            self._change_queries += 1
            return self._change_queries
        found: int = self._total_changes()
        return found

    @property
    def only_renews(self) -> bool:
        """Whether it did nothing but renew leases."""
        seen = self.events
        return bool(seen) and seen[0][0] == "renewed" and all(kind == "renewed" for kind, *_ in seen)

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; count duplicate occurrences."""
        new: set[str] = super().add_runs(runs)
        self.counters += ["unique-key conflict"] * (len(runs) - len(new))
        self.touches_limits |= any(run.state is RunState.LEASED and run.limit_keys for run in runs)
        for run in runs:
            if run.state is RunState.LEASED and run.id in new:
                self._granted.add((run.id, run.fence))
                self.events.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            planned_at = to_micros(run.planned_at)
            if planned_at > self._true_now and run.id in new and self._is_early(run):
                message = "was admitted before its instant"
                self.events.append(("I5", run.id, run.fence, planned_at, run.schedule_id, message))
        return new

    def _is_early(self, run: Run) -> bool:
        """Whether a run may not be early: not skipped by hand, and without jitter to both sides."""
        # A skip by hand also records what the clamp moved to the skipped instant.
        by_hand = run.dedupe_scope or run.reason == Reason.BY_HAND.value or run.made_by
        return not by_hand and run.schedule_id not in self._may_be_early

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease runs; limits are checked after the commit."""
        self.touches_limits |= any(grant.run.limit_keys for grant in grants)
        granted: list[Run] = super().lease_runs(grants)
        for run in granted:
            self._granted.add((run.id, run.fence))
            self.events.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            if to_micros(run.fire_at) > self._true_now:
                self.events.append(
                    ("I5", run.id, run.fence, 0, run.schedule_id, "was leased before it may fire")
                )
        if self._has_dependencies:
            self._check_needs([run for run in granted if run.fence == 1 and not run.dedupe_scope])
        return granted

    def _check_needs(self, runs: Sequence[Run]) -> None:
        """Check that each first lease has fresh ends of everything it needs, or has waited long enough."""
        found = self.get_schedules({run.schedule_id for run in runs if run.schedule_id})
        needy = [run for run in runs if run.schedule_id in found and found[run.schedule_id].schedule.needs]
        links = self.select(UpstreamLinks({run.schedule_id for run in needy})) if needy else []
        names = {i: due.schedule.name for i, due in self.get_schedules({x.upstream for x in links}).items()}
        met = {(x.downstream, names.get(x.upstream), x.on): x.met_at for x in links if x.kind == "needs"}
        for run in needy:
            for need in found[run.schedule_id].schedule.needs:
                at = met.get((run.schedule_id, need.schedule, need.on))
                is_fresh = at is not None and at >= run.planned_at - need.within
                has_waited = to_micros(run.planned_at + need.wait) <= self._true_now
                if not (is_fresh or (need.else_ is UnmetAction.RUN and has_waited)):
                    message = f"was leased without an end of {need.schedule}"
                    self.events.append(("I43", run.id, run.fence, 0, run.schedule_id, message))

    def set_limits(self, limits: Any) -> None:
        """Change limits."""
        self.touches_limits = self.sets_limits = True
        super().set_limits(limits)

    def define_limit(self, namespace: str, limit: Any) -> None:
        """Change a named limit."""
        self.touches_limits = self.sets_limits = True
        super().define_limit(namespace, limit)

    def renew_leases(self, renewals: Sequence[Renewal]) -> list[Renewed]:
        """Renew leases; record accepted renewals, count refused ones."""
        stopping = [r.id for r in super().select(LeasedRuns(cancel_requested=True))] if renewals else []
        until = {row[0]: row[2] for row in self._leases(stopping)}
        kept: list[Renewed] = super().renew_leases(renewals)
        killable = {r.run_id for r in renewals if not r.despite_cancel} & until.keys()
        for run_id, fence, later, schedule_id in self._leases(sorted(killable)):
            if later > until[run_id]:
                message = "was renewed though it was asked to stop"
                self.events.append(("I17", run_id, fence, 0, schedule_id, message))
        # An instance may renew two leases of one run: a lost one whose thread goes on, and its successor.
        asked = {(r.run_id, r.fence) for r in renewals}
        for run_id, fence, until, schedule_id in self._leases(
            [r.run_id for r in kept if r.cancel_at is None]
        ):
            self.events.append(("renewed", run_id, fence, until, "", ""))
            if (run_id, fence) not in asked:
                message = "was renewed by a lost lease"
                self.events.append(("I11", run_id, fence, 0, schedule_id, message))
        self.counters += ["stale heartbeat refused"] * (len(renewals) - len(kept))
        return kept

    def _leases(self, run_ids: Sequence[str]) -> list[Any]:
        """Id, fence, end and schedule of leases; reading whole runs would be slower."""
        if self._total_changes is not None:
            return [row for run_id in run_ids for row in self._connection.execute(_LEASE, (run_id,))]
        found = super().get_runs(run_ids).values()
        return [(r.id, r.fence, to_micros(r.lease_until), r.schedule_id) for r in found if r.lease_until]

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Settle runs; record them as settled, reclaimed or refused."""
        kept: set[str] = super().settle_runs(settled)
        for run, attempt in settled:
            is_reclaimed = attempt.outcome == "lost" and self._is_reclaim
            kind = "refused" if run.id not in kept else "reclaimed" if is_reclaimed else "settled"
            self.events.append((kind, run.id, attempt.fence, 0, run.schedule_id, ""))
            if kind == "settled" and not self._is_reclaim:
                self.events.append(("settled by its holder", run.id, attempt.fence, 0, run.schedule_id, ""))
            is_early = to_micros(attempt.lease_until) > self._true_now and attempt.error != HOLDER_DIED
            if kind == "reclaimed" and is_early:
                message = "was reclaimed before its lease ended"
                self.events.append(("I16", run.id, attempt.fence, 0, run.schedule_id, message))
            if self._is_reclaim and attempt.outcome == "released" and run.id in kept:
                message = "was lost, but its attempt was refunded"
                self.events.append(("I18", run.id, attempt.fence, 0, run.schedule_id, message))
        self.touches_limits |= any(run.limit_keys for run, _ in settled)
        return kept

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Charge budgets; a granted lease must fit what was left."""
        super().add_charges(charges)
        granted = [charge for charge in charges if (charge.run_id, charge.fence) in self._granted]
        if not granted:
            return
        limits = {
            budget.account_name: budget.limit
            for found in self.read_budgets().budgets.values()
            for budget in found
        }
        accounts = self.get_accounts({(charge.budget, charge.period) for charge in granted})
        for charge in granted:
            account = accounts[charge.budget, charge.period]
            if account.used + account.held > limits[charge.budget]:
                message = f"was leased beyond {charge.budget}"
                self.events.append(("I44", charge.run_id, charge.fence, 0, "", message))

    def put_run_rows(self, rows: Sequence[Any]) -> None:
        """Write what is recorded about runs; count output, follow-ups, and runs that wait for their needs."""
        super().put_run_rows(rows)
        self.counters += ["output written"] * sum(isinstance(row, AttemptOutput) for row in rows)
        self.counters += ["waited for its needs"] * sum(isinstance(row, DependencyWait) for row in rows)
        counted = {"open": "follow-up created", "done": "follow-up run", "void": "follow-up skipped"}
        self.counters += [counted[row.state] for row in rows if isinstance(row, FollowUp)]

    def save_progress(self, rows: Sequence[ProgressUpdate]) -> None:
        """Save the progress of schedules; record the cursor."""
        super().save_progress(rows)
        for row in rows:
            progress = row.progress
            if progress.next_at and progress.wake_at and progress.next_at < progress.wake_at:
                self.counters.append("catch-up limit reached")
            self.events.append(("cursor", row.schedule_id, 0, to_micros(row.progress.cursor), "", ""))

    def advance_schedules(self, rows: Sequence[OnTimeStep], *, now: datetime) -> set[str]:
        """Advance schedules; count duplicate occurrences, record the cursor."""
        new: set[str] = super().advance_schedules(rows, now=now)
        self.counters += ["unique-key conflict"] * (len(rows) - len(new))
        for row in rows:
            schedule_id, planned_at = row.record.schedule.id, row.record.progress.next_at
            assert planned_at is not None
            if row.started_run is not None and row.run_id in new:
                self._granted.add((row.run_id, row.started_run.fence))
                self.events.append(("leased", row.run_id, row.started_run.fence, 0, schedule_id, ""))
            is_early = to_micros(planned_at) > self._true_now and schedule_id not in self._may_be_early
            if is_early and row.run_id in new:
                message = "was admitted before its instant"
                self.events.append(("I5", row.run_id, 0, to_micros(planned_at), schedule_id, message))
            self.events.append(("cursor", schedule_id, 0, to_micros(planned_at), "", ""))
        return new

    def put_schedules(self, rows: Sequence[ScheduleWrite]) -> None:
        """Write schedules; record the cursor."""
        super().put_schedules(rows)
        for row in rows:
            if row.schedule.jitter_side is JitterSide.BOTH:
                self._may_be_early.add(row.schedule.id)
            self.events.append(("cursor", row.schedule.id, 0, to_micros(row.progress.cursor), "", ""))

    def request_cancel(self, asked: Sequence[tuple[str, datetime]], *, at: datetime, reason: str) -> set[str]:
        """Request cancellation; the holder learns of it."""
        marked: set[str] = super().request_cancel(asked, at=at, reason=reason)
        self.counters += ["cancellation requested"] * len(marked)
        # From now on the lease lasts only until its grace ends.
        for run in super().get_runs(marked).values():
            assert run.lease_until is not None
            self.events.append(
                ("cancel requested", run.id, run.fence, to_micros(run.lease_until), "", run.holder)
            )
        return marked

    def prune(self, what: Any) -> int:
        """Prune; record every deleted run."""
        if not isinstance(what, PruneRequest):
            return super().prune(what)
        before = {row[0]: row for row in self.query_sql(_ALL_RUNS)}
        gone: int = super().prune(what)
        if gone:
            left = {row[0] for row in self.query_sql(_REMAINING)}
            for run_id, schedule_id, planned_at, state in before.values():
                if run_id not in left:
                    self.events.append(("pruned", run_id, 0, planned_at, schedule_id, state))
        return gone
