"""Store queries for schedules, their revisions and their progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ports.rows import (
    OnTimeStep,
    Page,
    ProgressUpdate,
    ScheduleFilter,
    ScheduleRecord,
    ScheduleWrite,
    Selection,
)


class ScheduleListRow(Struct, frozen=True, gc=False):
    """A schedule in a list: definition and progress, without the runs in flight."""

    schedule: Schedule
    progress: ScheduleProgress


class ScheduleHead(Struct, frozen=True, gc=False):
    """A schedule without its definition: which revision it is at, and its state."""

    id: str
    name: str
    revision: int
    state: ScheduleState


class SchedulesNamed(Selection[ScheduleHead], frozen=True):
    """Schedules of a namespace by name, in any state; also unreadable ones."""

    namespace: str
    names: Collection[str]


class SchedulesWithIds(Selection[ScheduleHead], frozen=True):
    """Schedules by id, in any state; also unreadable ones."""

    ids: Collection[str]


class SchedulesAtStart(Selection[ScheduleHead], frozen=True):
    """Active schedules that may have `run_at_start`; a scan, once per start."""


class NextSchedules(Selection[ScheduleHead], frozen=True, kw_only=True):
    """The schedules of a namespace with the earliest wake-ups, earliest first."""

    namespace: str
    until: datetime
    limit: int


class DueSchedules(Selection[ScheduleHead], frozen=True, kw_only=True):
    """The schedules of all namespaces that will be due at an instant, earliest first; nothing is locked."""

    until: datetime
    limit: int


class OrderedSchedules(Selection[ScheduleHead], frozen=True):
    """A page of the schedules of a namespace in an order; scans them. Without a state, not archived ones."""

    which: ScheduleFilter


class SetAsideSchedules(Selection[ScheduleHead], frozen=True):
    """Schedules that were set aside, because no instance could run them."""

    limit: int


class StoredRevision(NamedTuple):
    """A revision of a schedule: when it was written, by whom, and why."""

    schedule: Schedule
    at: datetime
    actor: str
    reason: str


class RevisionsOf(Selection[StoredRevision], frozen=True):
    """The revisions of a schedule, newest first."""

    schedule_id: str
    limit: int = 50


class ScheduleSnapshot(Struct, frozen=True, gc=False):
    """One schedule, and which related rows exist, so that the caller can skip queries."""

    record: ScheduleRecord
    has_downstream: bool = True
    """Whether other schedules may depend on it."""
    has_manual_runs: bool = True
    """Whether it may have manual runs for a future instant."""
    has_notes: bool = True
    """Whether its occurrences may have notes."""
    has_skips: bool = True
    """Whether occurrences after its cursor may be skipped by hand, which an edit may cause."""


class ScheduleQueries(Protocol):
    """Queries for schedules, their revisions and their progress; most handle many rows."""

    def put_schedules(self, rows: Sequence[ScheduleWrite]) -> None:
        """Write schedules with a new revision. Raises Conflict for a taken name or a stale revision."""
        ...

    def get_schedules(self, ids: Iterable[str], *, lock: bool = False) -> dict[str, ScheduleRecord]:
        """Return existing schedules by id; `lock` keeps other writers out until the transaction ends."""
        ...

    def get_schedule_snapshot(self, namespace: str, name: str) -> ScheduleSnapshot | None:
        """Return a schedule by its name."""
        ...

    def list_schedules(self, which: ScheduleFilter) -> Page:
        """Return a page of `ScheduleListRow` of one namespace, by name; unreadable rows are listed apart."""
        ...

    def get_revisions(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Schedule]:
        """Return schedule definitions by id and revision."""
        ...

    def due_schedules(
        self, *, until: datetime, limit: int, since: datetime | None = None, shard: tuple[int, int] = (1, 1)
    ) -> list[ScheduleRecord]:
        """Lock and return schedules due by `until`, longest waiting first, skipping rows locked by others.

        A shard (k, n) is the k-th of n parts of all schedules, by a hash of their ids.
        """
        ...

    def save_progress(self, rows: Sequence[ProgressUpdate]) -> None:
        """Write the progress of schedules."""
        ...

    def advance_schedules(self, rows: Sequence[OnTimeStep], *, now: datetime) -> set[str]:
        """Insert one run per schedule and move the schedules on; returns the ids of new runs.

        An occurrence that exists stays as it is; its schedule moves on all the same.
        """
        ...

    def wake_schedules(self, wakes: Sequence[tuple[str, datetime]]) -> None:
        """Move the wake-up of schedules to an instant, if it is earlier."""
        ...
