"""Looks before a tick writes: what there is to do, and until when nothing will be."""

from __future__ import annotations

from datetime import datetime, timedelta

from timewright.engine.duty import PATIENCE, Duty, is_over
from timewright.ports import Store
from timewright.ports.outlook import Outlook

CHECK_EVERY = timedelta(seconds=1)


class Lookout:
    """What the store showed at the last look, and whether that still holds.

    Leases that are over and held runs that wait for nobody are looked for once a second. The end of leases is
    also asked for where nothing else is near: then it may be what ends the rest.
    """

    def __init__(self, store: Store, *, holder: str, duty: Duty) -> None:
        self.looked_at: datetime | None = None
        self._store = store
        self._holder = holder
        self._duty = duty
        self._seen = Outlook()
        self.is_stale = True
        self._checked_at: datetime | None = None
        self.checks = True

    def begin(self, *, now: datetime) -> None:
        """A pass begins: whatever was seen before may have changed."""
        self.is_stale = True
        self.checks = is_over(self._checked_at, CHECK_EVERY, now=now)

    def wrote(self) -> None:
        """A room has changed the store since the last look."""
        self.is_stale = True

    @property
    def last(self) -> Outlook:
        """What was seen last, however long ago."""
        return self._seen

    def look(self, *, now: datetime) -> Outlook:
        """What the store shows now."""
        wake_at = self._seen.wake_at
        # Where runs wait, the end of a lease would not be what ends the rest; among many it is dear to find.
        is_far = not self._seen.ready and (wake_at is None or wake_at - now >= CHECK_EVERY)
        self._seen = self.glance(now=now, ends=self.checks or is_far, held=self.checks)
        self.is_stale = False
        self.looked_at = now
        if self.checks:
            self._checked_at = now
        return self._seen

    def glance(self, *, now: datetime, ends: bool = True, held: bool = False) -> Outlook:
        """What the store shows, for whoever is not in a pass; nothing is remembered."""
        shard, holder = self._duty.mine(now=now), self._holder
        return self._store.read(
            lambda tx: tx.outlook(holder=holder, shard=shard, patience=PATIENCE, ends=ends, held=held)
        )
