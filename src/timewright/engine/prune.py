"""History has an age: finished runs go in small batches, oldest first."""

from __future__ import annotations

from datetime import datetime, timedelta

from timewright.ports import Prune, Store

PRUNE_EVERY = timedelta(minutes=1)
MOST_BATCHES = 20


class Pruner:
    """Removes what is older than it may be, now and then, a little at a time."""

    def __init__(
        self, store: Store, *, keep: timedelta, keep_runs: int | None = None, keep_bytes: int | None = None
    ) -> None:
        self._store = store
        self._keep = keep
        self._keep_runs = keep_runs
        self._keep_bytes = keep_bytes
        self._pruned_at: datetime | None = None

    def run(self, *, now: datetime) -> int:
        """Prune if a minute has passed since the last time; says how many runs went."""
        if self._pruned_at is not None and timedelta(0) <= now - self._pruned_at < PRUNE_EVERY:
            return 0
        self._pruned_at = now
        what = Prune(older_than=now - self._keep, keep_runs=self._keep_runs, keep_bytes=self._keep_bytes)
        total = 0
        for _ in range(MOST_BATCHES):
            gone = self._store.write(lambda tx: tx.prune(what))
            total += gone
            if gone < what.limit:
                break
        return total
