"""The store interface: transactions and their queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from timewright.ports.alerts import AlertQueries
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
    AlertQueries,
    Protocol,
):
    """All queries of a store inside one transaction."""

    def now(self) -> datetime:
        """Return the store's clock, read in this transaction after it has waited for its locks."""
        ...


class Store(Protocol):
    """Persists everything. Behaves the same on every database."""

    def now(self) -> datetime:
        """Return the store's clock: the server's, or the host's, never below the highest recorded."""
        ...

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction. It may run again, so it must have no other effects.

        With `commit_at`, an instant some milliseconds ahead, the transaction is committed when the store's
        clock shows it. Raises ClockBehind, and writes nothing, if the clock does not get there.
        """
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class ClockDoubt(Struct, frozen=True, kw_only=True):
    """The first reading in doubt, what the monotonic clock allowed instead, and since when."""

    reading: datetime
    expected: datetime
    since: datetime

    def describe(self) -> str:
        """One sentence for logs, findings and probes."""
        return (
            f"the clock reads {self.reading:%Y-%m-%d %H:%M:%S} UTC,"
            f" but by the time since the last reading it is {self.expected:%Y-%m-%d %H:%M:%S} UTC"
        )


@runtime_checkable
class ClockSource(Protocol):
    """A store that checks its clock."""

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading in doubt, if there is one."""
        ...

    def accept_clock(self) -> None:
        """Use the reading in doubt from now on, in every process."""
        ...
