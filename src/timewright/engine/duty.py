"""Which due schedules this instance decides at once, and which it leaves to others for a while."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import SECOND, ZERO
from timewright.core.shards import WHOLE, Shard
from timewright.ledger.leader import resign, take_leadership
from timewright.ports import Store

# Whoever is due for so long was left lying by the one whose duty it is: then everyone decides it. This is
# well below the grace within which an occurrence is late and not missed.
PATIENCE = 10 * SECOND
TERM = 15 * SECOND
RENEW_EVERY = TERM / 3
HELP_EVERY = SECOND


class Part(Struct, frozen=True, kw_only=True):
    """Schedules to look at: those of a shard that were due for so long."""

    shard: Shard
    waited: timedelta = ZERO


class Duty:
    """All schedules, a shard of them, or all while this instance leads; saves work, and guards nothing."""

    def __init__(
        self, store: Store, *, holder: str, admit: Literal["any", "leader"] = "any", shard: Shard = WHOLE
    ) -> None:
        self._store = store
        self._holder = holder
        self._by_leader = admit == "leader"
        self._shard = shard
        self._lock = threading.Lock()
        self._leads_until: datetime | None = None
        self._asked_at: datetime | None = None
        self._helped_at: datetime | None = None

    def mine(self, *, now: datetime) -> Shard | None:
        """The part that is ours as soon as it is due; nothing while another leads."""
        return self._shard if not self._by_leader or self._leads(now=now) else None

    def parts(self, *, now: datetime) -> tuple[Part, ...]:
        """What to look at now: our own, and once a second what everybody else left lying."""
        mine = self.mine(now=now)
        own = (Part(shard=mine),) if mine is not None else ()
        if mine == WHOLE or not is_over(self._helped_at, HELP_EVERY, now=now):
            return own
        self._helped_at = now
        return (*own, Part(shard=WHOLE, waited=PATIENCE))

    def beat(self, *, now: datetime) -> bool:
        """Reach for the leadership, or keep it, every third of a term; says whether it was won just now."""
        if not self._by_leader:
            return False
        with self._lock:
            if not is_over(self._asked_at, RENEW_EVERY, now=now):
                return False
            self._asked_at = now
            led = self._leads(now=now)
            term = take_leadership(self._store, holder=self._holder, now=now, ttl=TERM)
            self._leads_until = term.until if term is not None else None
            return term is not None and not led

    def leave(self) -> None:
        """Let another lead at once."""
        # A word that is not heard is no loss: the term ends by itself.
        with self._lock, suppress(Exception):
            if self._leads_until is not None:
                self._leads_until = None
                resign(self._store, holder=self._holder, now=self._store.now())

    def _leads(self, *, now: datetime) -> bool:
        return self._leads_until is not None and now < self._leads_until


def is_over(since: datetime | None, length: timedelta, *, now: datetime) -> bool:
    """Whether so much time has passed; a clock that was set back counts as if it had."""
    return since is None or not ZERO <= now - since < length
