"""The read that starts a tick: one statement, and more only where it found something."""

from __future__ import annotations

from datetime import timedelta

from timewright.core.moments import ZERO
from timewright.ports.pending_work import PendingWork
from timewright.stores.queries.leases import SqlLeaseQueries
from timewright.stores.queries.runs import SqlRunQueries
from timewright.stores.queries.schedules import SqlScheduleQueries
from timewright.stores.rows import to_instant


class SqlPendingWorkQueries(SqlScheduleQueries, SqlRunQueries, SqlLeaseQueries):
    """The pending work of `ports.overview.OverviewQueries`."""

    def read_pending_work(
        self,
        *,
        holder: str = "",
        shard: tuple[int, int] | None = (1, 1),
        orphan_after: timedelta = ZERO,
        with_lease_end: bool = False,
        with_held: bool = False,
    ) -> PendingWork:
        """Return the pending work of a holder that serves a shard. Read-only."""
        parameters = {"holder": holder, "with_lease_end": int(with_lease_end), "with_held": int(with_held)}
        ((schedule_due, run_due, ready, cancelled, lease_end, held),) = self._query(
            "pending_work", parameters
        )
        return PendingWork(
            schedule_due_at=to_instant(self._next_wake_in(shard, schedule_due, orphan_after=orphan_after)),
            run_due_at=to_instant(run_due),
            has_ready_runs=ready is not None,
            cancel_requested=tuple(self.leased_runs(holder=holder, cancel_requested=True))
            if cancelled is not None
            else (),
            includes_lease_end=with_lease_end,
            lease_expires_at=to_instant(lease_end),
            has_releasable_runs=held is not None and bool(self.releasable_runs(limit=1)),
        )
