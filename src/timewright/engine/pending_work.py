"""Queries the store before a tick writes: what there is to do, and when the next work is due."""

from __future__ import annotations

from datetime import datetime, timedelta

from timewright.engine.admission_scope import ORPHAN_AFTER, AdmissionScope, has_elapsed
from timewright.ports import Store
from timewright.ports.pending_work import PendingWork

EXPIRY_CHECK_INTERVAL = timedelta(seconds=1)


class PendingWorkProbe:
    """The pending work of the last query, and whether it is still valid.

    Expired leases and releasable held runs are queried once a second. The next lease end is also queried if
    nothing else is due soon, because it may then decide how long the loop sleeps.
    """

    def __init__(self, store: Store, *, holder: str, admission_scope: AdmissionScope) -> None:
        self.read_at: datetime | None = None
        self.is_stale = True
        self.checks_expiry = True
        self._store = store
        self._holder = holder
        self._admission_scope = admission_scope
        self._last_read = PendingWork()
        self._expiry_checked_at: datetime | None = None

    def begin_pass(self, *, now: datetime) -> None:
        """Begin a pass: the last read may be out of date."""
        self.is_stale = True
        self.checks_expiry = has_elapsed(self._expiry_checked_at, EXPIRY_CHECK_INTERVAL, now=now)

    def invalidate(self) -> None:
        """Note that the store was changed since the last read."""
        self.is_stale = True

    @property
    def last_read(self) -> PendingWork:
        """The last read, however old."""
        return self._last_read

    def read_pending(self, *, now: datetime) -> PendingWork:
        """Query the pending work, and remember it."""
        wake_at = self._last_read.wake_at
        # While runs wait, a lease end does not decide the sleep, and finding it among many leases is slow.
        is_idle = not self._last_read.has_ready_runs and (
            wake_at is None or wake_at - now >= EXPIRY_CHECK_INTERVAL
        )
        self._last_read = self.peek(
            now=now, with_lease_end=self.checks_expiry or is_idle, with_held=self.checks_expiry
        )
        self.is_stale = False
        self.read_at = now
        if self.checks_expiry:
            self._expiry_checked_at = now
        return self._last_read

    def peek(self, *, now: datetime, with_lease_end: bool = True, with_held: bool = False) -> PendingWork:
        """Query the pending work outside of a pass; nothing is remembered."""
        shard, holder = self._admission_scope.owned_shard(now=now), self._holder
        return self._store.read(
            lambda tx: tx.read_pending_work(
                holder=holder,
                shard=shard,
                orphan_after=ORPHAN_AFTER,
                with_lease_end=with_lease_end,
                with_held=with_held,
            )
        )
