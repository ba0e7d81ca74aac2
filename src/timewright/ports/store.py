"""The store interface: transactions and their queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from timewright.errors import TimewrightError
from timewright.ports.objects import ObjectQueries
from timewright.ports.overview import OverviewQueries
from timewright.ports.rows import AuditFilter, IncidentFilter, Page, RunFilter, ScheduleFilter, Selection
from timewright.ports.runs import RunQueries
from timewright.ports.schedules import ScheduleQueries, SchedulesWithIds
from timewright.ports.workflow import WorkflowQueries

R = TypeVar("R")
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

    def find(self, which: ScheduleFilter | RunFilter | AuditFilter | IncidentFilter) -> Page:
        """Return a page of schedules (`ScheduleRecord`, by name), or runs, audit entries or incidents.

        Unreadable schedules and runs are listed apart.
        """
        ...

    def select(self, which: Selection[R]) -> list[R]:
        """Return the rows that a selection describes; only `UpstreamLinks` can lock them."""
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


class SessionLock(Struct, frozen=True, kw_only=True):
    """A lock that every database session of a process shares; the server releases it with the last of them.

    `server` names one start of the server: a restart releases locks of processes that live on.
    """

    key: int
    server: str


@runtime_checkable
class SessionLocks(Protocol):
    """A store on a server that shows which processes still have a session."""

    def session_lock(self) -> SessionLock | None:
        """The lock of this process; None behind a pooler, which keeps sessions of ended processes."""
        ...

    def held_session_locks(self) -> frozenset[SessionLock]:
        """The locks of all processes that have a session now, and always our own."""
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


MAX_CACHED_NAMES = 10_000
CACHE_TTL_S = 30.0


class ScheduleNames:
    """Looks up names of schedules; cached for 30 s, because schedules can be renamed."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._names: dict[str, str] = {}
        self._expires_at = 0.0

    def __call__(self, schedule_id: str) -> str:
        """The name of a schedule; empty if it is unknown or the store does not answer."""
        now = time.monotonic()
        if now >= self._expires_at or len(self._names) >= MAX_CACHED_NAMES:
            self._names, self._expires_at = {}, now + CACHE_TTL_S
        names = self._names
        if schedule_id and schedule_id not in names:
            with suppress(TimewrightError):
                names[schedule_id] = self._read(schedule_id)
        return names.get(schedule_id, "")


def names_in(store: Store) -> ScheduleNames:
    """The names of the schedules in a store."""

    def read(schedule_id: str) -> str:
        heads = store.read(lambda tx: tx.select(SchedulesWithIds([schedule_id])))
        return heads[0].name if heads else ""

    return ScheduleNames(read)
