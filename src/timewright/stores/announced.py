"""A store that says aloud when something was written through it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from timewright.ports import Store, Transaction
from timewright.ports.glimpse import Glimpses

T = TypeVar("T")


class Announced:
    """Another store, and a call after every commit: for those whose writing an engine should hear of soon."""

    def __init__(self, store: Store, announce: Callable[[], object]) -> None:
        self._store = store
        self._announce = announce

    def now(self) -> datetime:
        """The store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction, and say so when it is kept."""
        answer = self._store.write(work)
        self._announce()
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent picture of the store."""
        return self._store.read(work)

    @property
    def glimpses(self) -> Glimpses | None:
        """Reads that are over at once, where the store has them."""
        return getattr(self._store, "glimpses", None)

    def close(self) -> None:
        """Give back every connection."""
        self._store.close()
