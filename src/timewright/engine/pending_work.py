"""Reads what there is to do before a tick writes, and remembers when the next work is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from timewright.core.run.needs import LeaseOffer
from timewright.engine.admission_scope import AdmissionScope, has_elapsed
from timewright.engine.constants import CHECK_INTERVAL, ORPHAN_AFTER
from timewright.ports import Store
from timewright.ports.overview import PendingWork


class PendingWorkReader:
    """The pending work of the last query.

    Expired leases and releasable held runs are queried once a second. The next lease end is also queried if
    nothing else is due soon, because it may then decide how long the loop sleeps. Only the tick thread
    changes the attributes; others read `last`, which is one immutable value.
    """

    def __init__(
        self,
        store: Store,
        *,
        holder: str,
        scope: AdmissionScope,
        offer: Callable[[], LeaseOffer] | None = None,
    ) -> None:
        self.last = PendingWork()
        self.announced_at: datetime | None = None
        self.is_stale = True
        self._store = store
        self._holder = holder
        self._scope = scope
        self._offer = offer
        self._checked_at: datetime | None = None
        self._too_early_for: datetime | None = None

    def read(self, *, now: datetime) -> PendingWork:
        """Return what there is to do now.

        Schedules that the last query announced for `now` are returned without a query, so that they start
        at their instant; the next call queries.
        """
        announced, self.announced_at = self.announced_at, None
        if announced is not None and announced <= now:
            self.is_stale = True
            return PendingWork(schedule_due_at=announced, first_wake_at=self.last.first_wake_at)
        return self.query(now=now)

    def query(self, *, now: datetime) -> PendingWork:
        """Query what there is to do. The next schedule is announced if no run waits before it."""
        checks_expiry = self._checked_at == now or has_elapsed(self._checked_at, CHECK_INTERVAL, now=now)
        wake_at = self.last.wake_at
        # While runs wait, a lease end does not decide the sleep, and finding it among many leases is slow.
        is_idle = not self.last.has_ready_runs and (wake_at is None or wake_at - now >= CHECK_INTERVAL)
        work = self.peek(now=now, with_lease_end=checks_expiry or is_idle, with_held=checks_expiry)
        self.last, self.is_stale = work, False
        self._checked_at = now if checks_expiry else self._checked_at
        due = work.schedule_due_at
        is_first = due != self._too_early_for and not work.has_runs_to_lease(now=now)
        self.announced_at = due if is_first else None
        return work

    def latest(self, *, now: datetime) -> PendingWork:
        """Return the last query, or a new one if something was written since."""
        return self.query(now=now) if self.is_stale else self.last

    def mark_too_early(self, instant: datetime) -> None:
        """Note that the schedules of this instant cannot be decided before it."""
        self._too_early_for = instant

    def peek(self, *, now: datetime, with_lease_end: bool = True, with_held: bool = False) -> PendingWork:
        """Query outside of a tick; nothing is remembered."""
        shard, holder = self._scope.owned_shard(now=now), self._holder
        offer = self._offer() if self._offer is not None else None
        return self._store.read(
            lambda tx: tx.read_pending_work(
                holder=holder,
                shard=shard,
                orphan_after=ORPHAN_AFTER,
                with_lease_end=with_lease_end,
                with_held=with_held,
                offer=offer,
                now=now,
            )
        )
