"""Which schedules this instance decides, what there is to do before a tick writes, and when more is due."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run.needs import LeaseOffer
from timewright.core.schedule.shards import FULL_SHARD, Shard
from timewright.engine.constants import CHECK_INTERVAL, LEADER_TERM, ORPHAN_AFTER
from timewright.ledger.leader import resign, take_leadership
from timewright.ports import Store
from timewright.ports.overview import PendingWork


class ShardSlice(Struct, frozen=True, kw_only=True):
    """Schedules to scan: those of a shard that are overdue by at least `overdue_by`."""

    shard: Shard
    overdue_by: timedelta = ZERO


class AdmissionScope:
    """All schedules, one shard of them, or all while this instance leads.

    It only avoids duplicate work; correctness does not depend on it.
    """

    def __init__(
        self, store: Store, *, holder: str, admit: Literal["any", "leader"] = "any", shard: Shard = FULL_SHARD
    ) -> None:
        self._store = store
        self._holder = holder
        self._needs_leadership = admit == "leader"
        self._shard = shard
        self._lock = threading.Lock()
        self._leads_until: datetime | None = None
        self._tried_at: datetime | None = None
        self._orphan_scan_at: datetime | None = None

    def owned_shard(self, *, now: datetime) -> Shard | None:
        """The shard that this instance decides as soon as it is due; None while another instance leads."""
        return self._shard if not self._needs_leadership or self._leads(now=now) else None

    def slices_to_scan(self, *, now: datetime) -> tuple[ShardSlice, ...]:
        """What to scan now: our own shard, and once a second the orphaned schedules of all shards."""
        owned = self.owned_shard(now=now)
        own = (ShardSlice(shard=owned),) if owned is not None else ()
        if owned == FULL_SHARD or not has_elapsed(self._orphan_scan_at, CHECK_INTERVAL, now=now):
            return own
        self._orphan_scan_at = now
        return (*own, ShardSlice(shard=FULL_SHARD, overdue_by=ORPHAN_AFTER))

    def renew_leadership(self, *, now: datetime) -> bool:
        """Try to become or stay the leader, three times per term; return whether we just became it."""
        if not self._needs_leadership:
            return False
        with self._lock:
            if not has_elapsed(self._tried_at, LEADER_TERM / 3, now=now):
                return False
            self._tried_at = now
            was_leader = self._leads(now=now)
            term = take_leadership(self._store, holder=self._holder, now=now, ttl=LEADER_TERM)
            self._leads_until = term.until if term is not None else None
            return term is not None and not was_leader

    def release_leadership(self) -> None:
        """Resign, so that another instance can lead at once."""
        # Errors do not matter here: the term expires by itself.
        with self._lock, suppress(Exception):
            if self._leads_until is not None:
                self._leads_until = None
                resign(self._store, holder=self._holder, now=self._store.now())

    def _leads(self, *, now: datetime) -> bool:
        return self._leads_until is not None and now < self._leads_until


def has_elapsed(since: datetime | None, interval: timedelta, *, now: datetime) -> bool:
    """Whether `interval` has passed since an instant; also true if the clock was set back."""
    return since is None or not ZERO <= now - since < interval


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
        """Return what there is to do now: the schedules that the last query announced, or a new query.

        Announced schedules that are due need no query, so that they start at their instant; the next call
        queries.
        """
        announced, self.announced_at = self.announced_at, None
        if announced is not None and announced <= now:
            self.is_stale = True
            return PendingWork(schedule_due_at=announced, first_wake_at=self.last.first_wake_at)
        return self.refresh(now=now)

    def refresh(self, *, now: datetime) -> PendingWork:
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
        return self.refresh(now=now) if self.is_stale else self.last

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
