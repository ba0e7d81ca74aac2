"""A transaction that is watched: what leaves no row is noted, and what was refused is counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from timewright.core.moments import micros
from timewright.core.policies import JitterSide
from timewright.core.run import Attempt, Reason, Run, RunState
from timewright.ports import Grant, Prune, Renewal, Renewed, Revised, Stood

_FINISHED = "SELECT id, CASE WHEN lane = '' THEN schedule_id ELSE '' END, planned_at, state FROM runs"
_LEFT = "SELECT id FROM runs"

# The transaction in which leases that are over are taken back.
RECLAIMS = "reclaim"

Seen = tuple[str, str, int, int, str, str]


class WatchedTransaction:
    """Passes every verb on; some are looked at on the way, and what they did is true after the commit."""

    def __init__(self, tx: Any, *, name: str, now: int, may_be_early: set[str]) -> None:
        self._tx = tx
        self._takes_back = name == RECLAIMS
        self._true_now = now
        self._may_be_early = may_be_early
        self.seen: list[Seen] = []
        self.counted: list[str] = []
        self.touches_gates = False
        self.changed = True
        self._asked = 0
        self._connection = _connection_of(tx)

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._tx, verb)
        setattr(self, verb, found)
        return found

    def ask_raw(self, sql: str) -> list[Any]:
        """Rows of a question that is not in the book, in this transaction."""
        return list(self._connection.execute(sql))

    def changes(self) -> int:
        """How many rows were ever changed on this connection; a server does not say, so it always rises."""
        count = getattr(self._connection, "total_changes", None)
        if count is None:
            self._asked += 1
            return self._asked
        found: int = count()
        return found

    def add_runs(self, runs: Sequence[Run]) -> set[str]:
        """Insert runs; the same occurrence twice is counted."""
        new: set[str] = self._tx.add_runs(runs)
        self.counted += ["unique-key conflict"] * (len(runs) - len(new))
        self.touches_gates |= any(run.state is RunState.LEASED and run.gates for run in runs)
        for run in runs:
            if run.state is RunState.LEASED and run.id in new:
                self.seen.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            if micros(run.planned_at) > self._true_now and run.id in new and self._is_early(run):
                self.seen.append(
                    ("I5", run.id, run.fence, 0, run.schedule_id, "was admitted before its instant")
                )
        return new

    def _is_early(self, run: Run) -> bool:
        """Whether nothing allows it: neither a person who left it out, nor jitter to both sides."""
        by_hand = run.lane or run.reason == Reason.BY_HAND.value
        return not by_hand and run.schedule_id not in self._may_be_early

    def lease_runs(self, grants: Sequence[Grant]) -> list[Run]:
        """Lease; ceilings are looked at after the commit."""
        self.touches_gates |= any(grant.run.gates for grant in grants)
        granted: list[Run] = self._tx.lease_runs(grants)
        for run in granted:
            self.seen.append(("leased", run.id, run.fence, 0, run.schedule_id, ""))
            if micros(run.fire_at) > self._true_now:
                self.seen.append(
                    ("I5", run.id, run.fence, 0, run.schedule_id, "was leased before it may fire")
                )
        return granted

    def set_gates(self, limits: Any) -> None:
        """Change ceilings."""
        self.touches_gates = True
        self._tx.set_gates(limits)

    def renew_leases(self, renewals: Sequence[Renewal], *, now: datetime) -> list[Renewed]:
        """Prolong; what was accepted is noted, what was refused is counted."""
        kept: list[Renewed] = self._tx.renew_leases(renewals, now=now)
        fences = {r.run_id: r.fence for r in renewals}
        for run in self._tx.get_runs([r.run_id for r in kept if r.cancel_at is None]).values():
            self.seen.append(("renewed", run.id, run.fence, micros(run.lease_until), "", ""))
            if fences[run.id] != run.fence:
                said = "was prolonged by a lease that was lost"
                self.seen.append(("I11", run.id, fences[run.id], 0, run.schedule_id, said))
        self.counted += ["stale heartbeat refused"] * (len(renewals) - len(kept))
        return kept

    def settle_runs(self, settled: Sequence[tuple[Run, Attempt]]) -> set[str]:
        """Settle; accepted, reclaimed or refused."""
        kept: set[str] = self._tx.settle_runs(settled)
        for run, attempt in settled:
            kind = (
                "refused" if run.id not in kept else "reclaimed" if attempt.outcome == "lost" else "answered"
            )
            self.seen.append((kind, run.id, attempt.fence, 0, run.schedule_id, ""))
            if kind == "reclaimed" and micros(attempt.lease_until) > self._true_now:
                said = "was taken back before its lease was over"
                self.seen.append(("I16", run.id, attempt.fence, 0, run.schedule_id, said))
            if self._takes_back and attempt.outcome == "released" and run.id in kept:
                said = "was lost, and its attempt was given back"
                self.seen.append(("I18", run.id, attempt.fence, 0, run.schedule_id, said))
        self.touches_gates |= any(run.gates for run, _ in settled)
        return kept

    def stand(self, rows: Sequence[Stood]) -> None:
        """Write where schedules stand; the cursor is noted."""
        self._tx.stand(rows)
        for row in rows:
            standing = row.standing
            if standing.next_at and standing.wake_at and standing.next_at < standing.wake_at:
                self.counted.append("catch-up limit reached")
            self.seen.append(("cursor", row.schedule_id, 0, micros(row.standing.cursor), "", ""))

    def put_schedules(self, rows: Sequence[Revised]) -> None:
        """Write schedules; the cursor is noted."""
        self._tx.put_schedules(rows)
        for row in rows:
            if row.schedule.jitter_side is JitterSide.BOTH:
                self._may_be_early.add(row.schedule.id)
            self.seen.append(("cursor", row.schedule.id, 0, micros(row.standing.cursor), "", ""))

    def ask_to_cancel(self, asked: Sequence[tuple[str, datetime]], *, at: datetime, reason: str) -> set[str]:
        """Ask to stop; whoever holds the lease hears of it."""
        marked: set[str] = self._tx.ask_to_cancel(asked, at=at, reason=reason)
        self.counted += ["holder asked to stop"] * len(marked)
        # From here on the lease is promised only until its grace is over.
        for run in self._tx.get_runs(marked).values():
            self.seen.append(("asked to stop", run.id, run.fence, micros(run.lease_until), "", ""))
        return marked

    def prune(self, what: Prune) -> int:
        """Prune; every run that went is noted with what it was."""
        before = {row[0]: row for row in self.ask_raw(_FINISHED)}
        gone: int = self._tx.prune(what)
        if gone:
            left = {row[0] for row in self.ask_raw(_LEFT)}
            for run_id, schedule_id, planned_at, state in before.values():
                if run_id not in left:
                    self.seen.append(("pruned", run_id, 0, planned_at, schedule_id, state))
        return gone


def _connection_of(tx: Any) -> Any:
    """The connection that a transaction of either store speaks on."""
    speaker = tx._ask.__self__
    return getattr(speaker, "connection", None) or speaker._connection
