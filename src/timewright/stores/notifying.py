"""A store that calls back after every commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from timewright.ports import Store, Transaction
from timewright.ports.nonblocking import NonBlockingReader
from timewright.ports.store import ClockDoubt, ClockSource

T = TypeVar("T")


class NotifyingStore:
    """Wraps a store and calls `on_commit` after every write, so that an engine can react soon."""

    def __init__(self, store: Store, on_commit: Callable[[], object]) -> None:
        self._store = store
        self._announce = on_commit

    def now(self) -> datetime:
        """Return the store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction, then call `on_commit`."""
        answer = self._store.write(work, commit_at=commit_at)
        self._announce()
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        return self._store.read(work)

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading of the store's clock in doubt, if the store checks it."""
        doubt: ClockDoubt | None = getattr(self._store, "clock_doubt", None)
        return doubt

    def accept_clock(self) -> None:
        """Use the reading in doubt, then call `on_commit`."""
        if isinstance(self._store, ClockSource):
            self._store.accept_clock()
            self._announce()

    @property
    def nonblocking_reader(self) -> NonBlockingReader | None:
        """The non-blocking reader of the store, if it has one."""
        return getattr(self._store, "nonblocking_reader", None)

    def close(self) -> None:
        """Close every connection."""
        self._store.close()
