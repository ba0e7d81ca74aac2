"""Which due schedules this instance decides at once, and which it leaves to other instances first."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.schedule.shards import FULL_SHARD, Shard
from timewright.engine.constants import CHECK_INTERVAL, LEADER_TERM, ORPHAN_AFTER
from timewright.ledger.leader import resign, take_leadership
from timewright.ports import Store


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
