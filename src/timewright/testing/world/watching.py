"""A transaction that is watched: what leaves no row is noted, and what was refused is counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from timewright.core.budgets import Charge
from timewright.core.moments import micros
from timewright.core.policies import JitterSide
from timewright.core.run import Attempt, Reason, Run, RunState
from timewright.core.upstream import Otherwise
from timewright.ports import Advance, Grant, Prune, Renewal, Renewed, Revised, Stood
from timewright.ports.links import FollowUp
from timewright.ports.said import Said
from timewright.stores.sqlstore import SqlTransaction

_FINISHED = "SELECT id, CASE WHEN lane = '' THEN schedule_id ELSE '' END, planned_at, state FROM runs"
_LEFT = "SELECT id FROM runs"
_LEASE = "SELECT id, fence, lease_until, schedule_id FROM runs WHERE id = ?"

# The transaction in which leases that are over are taken back.
RECLAIMS = "reclaim"

Seen = tuple[str, str, int, int, str, str]


class WatchedTransaction(SqlTransaction):
    """Every verb as it is; some are looked at on the way, and what they did is true after the commit."""

    def __init__(
        self, tx: SqlTransaction, *, name: str, now: int, may_be_early: set[str], has_relations: bool = False
    ) -> None:
        super().__init__(tx._speaker)
        self._has_relations = has_relations
        self._takes_back = name == RECLAIMS
        self._true_now = now
        self._may_be_early = may_be_early
        self.seen: list[Seen] = []
        self.counted: list[str] = []
        self.touches_gates = False
        self.sets_gates = False
        self.changed = True
        self._asked = 0
        self._granted: set[tuple[str, int]] = set()
        speaker: Any = tx._speaker
        self._connection = connection = getattr(speaker, "connection", None) or speaker._connection
        self._total_changes = getattr(connection, "total_changes", None)

    def ask_raw(self, sql: str) -> list[Any]:
        """Rows of a question that is not in the book, in this transaction."""
        return list(self._connection.execute(sql))

    def changes(self) -> int:
        """How many rows were ever changed on this connection; a server does not say, so it always rises."""
        if self._total_changes is None:
            self._asked += 1
            return self._asked
        found: int = self._total_changes()
        return found

    @property
    def only_prolongs(self) -> bool:
        """Whether all it did was to prolong leases."""
        seen = self.seen
        return bool(seen) and seen[0][0] == "renewed" and all(kind == "renewed" for kind, *_ in seen)

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; the same occurrence twice is counted."""
        new: set[str] = super().add_runs(runs)
        self.counted += ["unique-key conflict"] * (len(runs) - len(new))
        self.touches_gates |= any(run.state is RunState.LEASED and run.gates for run in runs)
        for run in runs:
            if run.state is RunState.LEASED and run.id in new:
                self._granted.add((run.id, run.fence))
                self.seen.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            planned_at = micros(run.planned_at)
            if planned_at > self._true_now and run.id in new and self._is_early(run):
                said = "was admitted before its instant"
                self.seen.append(("I5", run.id, run.fence, planned_at, run.schedule_id, said))
        return new

    def _is_early(self, run: Run) -> bool:
        """Whether nothing allows it: neither a person who left it out, nor jitter to both sides."""
        by_hand = run.lane or run.reason == Reason.BY_HAND.value
        return not by_hand and run.schedule_id not in self._may_be_early

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease; ceilings are looked at after the commit."""
        self.touches_gates |= any(grant.run.gates for grant in grants)
        granted: list[Run] = super().lease_runs(grants)
        for run in granted:
            self._granted.add((run.id, run.fence))
            self.seen.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            if micros(run.fire_at) > self._true_now:
                self.seen.append(
                    ("I5", run.id, run.fence, 0, run.schedule_id, "was leased before it may fire")
                )
        if self._has_relations:
            self._look_at_needs([run for run in granted if run.fence == 1 and not run.lane])
        return granted

    def _look_at_needs(self, runs: Sequence[Run]) -> None:
        """What starts for the first time has all it needs, or has waited for it long enough."""
        found = self.get_schedules({run.schedule_id for run in runs if run.schedule_id})
        needy = [run for run in runs if run.schedule_id in found and found[run.schedule_id].schedule.needs]
        links = self.links_of({run.schedule_id for run in needy}) if needy else []
        names = {i: due.schedule.name for i, due in self.get_schedules({x.upstream for x in links}).items()}
        met = {(x.downstream, names.get(x.upstream), x.on): x.met_at for x in links if x.kind == "needs"}
        for run in needy:
            for need in found[run.schedule_id].schedule.needs:
                at = met.get((run.schedule_id, need.schedule, need.on))
                is_fresh = at is not None and at >= run.planned_at - need.within
                has_waited = micros(run.planned_at + need.wait) <= self._true_now
                if not (is_fresh or (need.else_ is Otherwise.RUN and has_waited)):
                    said = f"was leased without an end of {need.schedule}"
                    self.seen.append(("I43", run.id, run.fence, 0, run.schedule_id, said))

    def set_gates(self, limits: Any) -> None:
        """Change ceilings."""
        self.touches_gates = self.sets_gates = True
        super().set_gates(limits)

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Prolong; what was accepted is noted, what was refused is counted."""
        kept: list[Renewed] = super().renew_leases(renewals, now=now)
        fences = {r.run_id: r.fence for r in renewals}
        for run_id, fence, until, schedule_id in self._leases(
            [r.run_id for r in kept if r.cancel_at is None]
        ):
            self.seen.append(("renewed", run_id, fence, until, "", ""))
            if fences[run_id] != fence:
                said = "was prolonged by a lease that was lost"
                self.seen.append(("I11", run_id, fences[run_id], 0, schedule_id, said))
        self.counted += ["stale heartbeat refused"] * (len(renewals) - len(kept))
        return kept

    def _leases(self, run_ids: Sequence[str]) -> list[Any]:
        """The id, fence, end and schedule of leases as they stand; here that is a fraction of a whole run."""
        if self._total_changes is not None:
            return [row for run_id in run_ids for row in self._connection.execute(_LEASE, (run_id,))]
        found = super().get_runs(run_ids).values()
        return [(r.id, r.fence, micros(r.lease_until), r.schedule_id) for r in found if r.lease_until]

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Settle; accepted, reclaimed or refused."""
        kept: set[str] = super().settle_runs(settled)
        for run, attempt in settled:
            kind = (
                "refused" if run.id not in kept else "reclaimed" if attempt.outcome == "lost" else "answered"
            )
            self.seen.append((kind, run.id, attempt.fence, 0, run.schedule_id, ""))
            if kind == "answered" and not self._takes_back:
                self.seen.append(("heard", run.id, attempt.fence, 0, run.schedule_id, ""))
            if kind == "reclaimed" and micros(attempt.lease_until) > self._true_now:
                said = "was taken back before its lease was over"
                self.seen.append(("I16", run.id, attempt.fence, 0, run.schedule_id, said))
            if self._takes_back and attempt.outcome == "released" and run.id in kept:
                said = "was lost, and its attempt was given back"
                self.seen.append(("I18", run.id, attempt.fence, 0, run.schedule_id, said))
        self.touches_gates |= any(run.gates for run, _ in settled)
        return kept

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Charge; what a lease takes must have been left when it is granted."""
        super().add_charges(charges)
        granted = [charge for charge in charges if (charge.run_id, charge.fence) in self._granted]
        if not granted:
            return
        limits = {budget.key: budget.limit for found in self.book().budgets.values() for budget in found}
        accounts = self.read_accounts({(charge.budget, charge.period) for charge in granted})
        for charge in granted:
            account = accounts[charge.budget, charge.period]
            if account.used + account.held > limits[charge.budget]:
                said = f"was leased beyond {charge.budget}"
                self.seen.append(("I44", charge.run_id, charge.fence, 0, "", said))

    def add_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """An end is passed on to whoever waits for it."""
        super().add_follow_ups(rows)
        self.counted += ["end passed on"] * len(rows)

    def close_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """What became of ends that were passed on."""
        super().close_follow_ups(rows)
        self.counted += ["end followed" if row.state == "done" else "end without a follower" for row in rows]

    def add_waits(self, waits: Sequence[tuple[str, str]]) -> None:
        """Runs sleep until what they need has come."""
        super().add_waits(waits)
        self.counted += ["waited for what it needs"] * len(waits)

    def put_said(self, rows: Sequence[Said]) -> None:
        """What work has said so far."""
        super().put_said(rows)
        self.counted += ["words written"] * len(rows)

    def stand(self, rows: Sequence[Stood]) -> None:
        """Write where schedules stand; the cursor is noted."""
        super().stand(rows)
        for row in rows:
            standing = row.standing
            if standing.next_at and standing.wake_at and standing.next_at < standing.wake_at:
                self.counted.append("catch-up limit reached")
            self.seen.append(("cursor", row.schedule_id, 0, micros(row.standing.cursor), "", ""))

    def advance(self, rows: Sequence[Advance], *, now: datetime) -> set[str]:
        """Let schedules go on; the same occurrence twice is counted, the cursor is noted."""
        new: set[str] = super().advance(rows, now=now)
        self.counted += ["unique-key conflict"] * (len(rows) - len(new))
        for row in rows:
            schedule_id, planned_at = row.due.schedule.id, row.due.standing.next_at
            assert planned_at is not None
            if row.started is not None and row.run_id in new:
                self._granted.add((row.run_id, row.started.fence))
                self.seen.append(("leased", row.run_id, row.started.fence, 0, schedule_id, ""))
            is_early = micros(planned_at) > self._true_now and schedule_id not in self._may_be_early
            if is_early and row.run_id in new:
                said = "was admitted before its instant"
                self.seen.append(("I5", row.run_id, 0, micros(planned_at), schedule_id, said))
            self.seen.append(("cursor", schedule_id, 0, micros(planned_at), "", ""))
        return new

    def put_schedules(self, rows: Sequence[Revised]) -> None:
        """Write schedules; the cursor is noted."""
        super().put_schedules(rows)
        for row in rows:
            if row.schedule.jitter_side is JitterSide.BOTH:
                self._may_be_early.add(row.schedule.id)
            self.seen.append(("cursor", row.schedule.id, 0, micros(row.standing.cursor), "", ""))

    def ask_to_cancel(self, asked: Sequence[tuple[str, datetime]], *, at: datetime, reason: str) -> set[str]:
        """Ask to stop; whoever holds the lease hears of it."""
        marked: set[str] = super().ask_to_cancel(asked, at=at, reason=reason)
        self.counted += ["holder asked to stop"] * len(marked)
        # From here on the lease is promised only until its grace is over.
        for run in super().get_runs(marked).values():
            assert run.lease_until is not None
            self.seen.append(("asked to stop", run.id, run.fence, micros(run.lease_until), "", run.holder))
        return marked

    def prune(self, what: Prune) -> int:
        """Prune; every run that went is noted with what it was."""
        before = {row[0]: row for row in self.ask_raw(_FINISHED)}
        gone: int = super().prune(what)
        if gone:
            left = {row[0] for row in self.ask_raw(_LEFT)}
            for run_id, schedule_id, planned_at, state in before.values():
                if run_id not in left:
                    self.seen.append(("pruned", run_id, 0, planned_at, schedule_id, state))
        return gone
