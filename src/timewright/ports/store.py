"""The store interface: transactions and their queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from timewright.ports.objects import ObjectQueries
from timewright.ports.overview import OverviewQueries
from timewright.ports.runs import RunQueries
from timewright.ports.schedules import ScheduleQueries
from timewright.ports.workflow import WorkflowQueries

T = TypeVar("T")


class Transaction(
    ScheduleQueries,
    RunQueries,
    WorkflowQueries,
    ObjectQueries,
    OverviewQueries,
    Protocol,
):
    """All queries of a store inside one transaction."""

    def now(self) -> datetime:
        """Return the store's clock, read in this transaction after it has waited for its locks."""
        ...

    def prepare_commit(self) -> None:
        """Flush uncommitted writes to disk where that makes the commit itself shorter."""
        ...


class Store(Protocol):
    """Persists everything. Behaves the same on every database."""

    def now(self) -> datetime:
        """Return the store's clock: the server's, or the host's, never below the highest recorded."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one durable transaction. It may run again, so it must have no other effects."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
