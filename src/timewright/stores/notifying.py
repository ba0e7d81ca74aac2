"""A store that calls back after every commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from timewright.ports import Store, Transaction
from timewright.ports.nonblocking import NonBlockingReader

T = TypeVar("T")


class NotifyingStore:
    """Wraps a store and calls `on_commit` after every write, so that an engine can react soon."""

    def __init__(self, store: Store, on_commit: Callable[[], object]) -> None:
        self._store = store
        self._announce = on_commit

    def now(self) -> datetime:
        """Return the store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction, then call `on_commit`."""
        answer = self._store.write(work)
        self._announce()
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        return self._store.read(work)

    @property
    def nonblocking_reader(self) -> NonBlockingReader | None:
        """The non-blocking reader of the store, if it has one."""
        return getattr(self._store, "nonblocking_reader", None)

    def close(self) -> None:
        """Close every connection."""
        self._store.close()
