"""Run read operations on the event loop thread: over reads that never block."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from timewright.operations.context import OperationContext
from timewright.ports import Transaction
from timewright.ports.nonblocking import NonBlockingReader, WouldBlock

T = TypeVar("T")


class NonBlockingStore:
    """A read-only store that answers without blocking or raises `WouldBlock`."""

    def __init__(self, nonblocking_reader: NonBlockingReader) -> None:
        self.now: Callable[[], datetime] = nonblocking_reader.now
        self._nonblocking_reader = nonblocking_reader

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot of the store."""
        return self._nonblocking_reader.read(work)

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Raise WouldBlock: a write waits for the disk."""
        raise WouldBlock

    def close(self) -> None:
        """Do nothing: the code that opened the store closes it."""


def non_blocking_reader(context: OperationContext) -> NonBlockingReader | None:
    """Return the store's non-blocking reader, if it has one."""
    nonblocking_reader: NonBlockingReader | None = getattr(context.store, "nonblocking_reader", None)
    return nonblocking_reader


def check_may_block(context: OperationContext) -> None:
    """Raise WouldBlock on a non-blocking store; called before work of unbounded length."""
    if isinstance(context.store, NonBlockingStore):
        raise WouldBlock
