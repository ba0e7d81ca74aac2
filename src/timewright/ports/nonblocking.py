"""Reads that never block, for callers on an event loop. A store may offer them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from timewright.ports.store import Transaction

T = TypeVar("T")


class WouldBlock(Exception):
    """The read would block or take long: repeat it on a thread that may wait."""


class NonBlockingReader(Protocol):
    """Reads that wait for no lock and touch few rows."""

    def now(self) -> datetime:
        """Return the store's clock from what this process already knows."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot, or raise `WouldBlock`."""
        ...

    def data_version(self) -> int:
        """Return a number that changes with every commit of any process, or raise `WouldBlock`."""
        ...
