"""Values passed between the ledger and a store: records, writes, filters and pages."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from timewright.core.run.admission import InFlightCounts
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState

T = TypeVar("T")
R = TypeVar("R")


class Selection(Struct, Generic[R], frozen=True):
    """Which rows to read: `Transaction.select` returns a list of R for it."""


class ScheduleRecord(Struct, frozen=True, gc=False):
    """A stored schedule: definition, progress, runs in flight, and its newest run."""

    schedule: Schedule
    progress: ScheduleProgress
    in_flight: InFlightCounts
    last_run: str = ""


class ScheduleWrite(Struct, frozen=True, kw_only=True):
    """A schedule to write: the revision it replaces (None if new), who wrote it and why."""

    schedule: Schedule
    progress: ScheduleProgress
    replaces: int | None = None
    actor: str = ""
    reason: str = ""
    at: datetime


class ProgressUpdate(Struct, frozen=True, gc=False):
    """The progress of a schedule to write, and its newest run if that changed.

    `only_advances` says that nothing but cursor, next instant and counters changed.
    """

    schedule_id: str
    progress: ScheduleProgress
    last_run: str = ""
    only_advances: bool = False


class OnTimeStep(Struct, frozen=True, gc=False):
    """A due schedule that gets one run at its planned instant and moves on to `next_at`.

    `record` must be what the store holds. `started_run` is set if the run is leased at once.
    """

    record: ScheduleRecord
    run_id: str
    next_at: datetime
    started_run: Run | None = None


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """A lease to write. It takes effect only if the run is still ready with the same fence."""

    run: Run
    lease_id: str
    holder: str
    leased_at: datetime
    lease_until: datetime


class Renewal(Struct, frozen=True):
    """A lease to renew. It takes effect only if the fence still matches.

    A run that was asked to stop is renewed only `despite_cancel`: its work cannot be killed and still runs.
    """

    run_id: str
    fence: int
    lease_until: datetime
    despite_cancel: bool = False


class Renewed(Struct, frozen=True):
    """A renewed lease, and the cancel request of its run, if any."""

    run_id: str
    fence: int
    cancel_at: datetime | None = None


class ExternalId(Struct, frozen=True):
    """What an external executor calls the run that it started for an attempt."""

    run_id: str
    fence: int
    external_id: str


class RunChange(Struct, frozen=True):
    """A run to rewrite. It takes effect only if state and fence still match."""

    run: Run
    expected_state: RunState
    expected_fence: int


class Unreadable(Struct, frozen=True):
    """A stored row that cannot be decoded, and the error."""

    id: str
    name: str
    error: str


class Page(Struct, frozen=True):
    """A page of a list, and the cursor of the next page ("" after the last)."""

    rows: tuple[Any, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class LiveCount(Struct, frozen=True, kw_only=True):
    """The number of live rows of one kind per namespace and queue, and the oldest instant."""

    namespace: str
    queue: str
    kind: str
    count: int
    oldest: datetime | None = None


ScheduleOrder = Literal["name", "failing", "next", "last", "runs"]


class ScheduleFilter(Struct, frozen=True, kw_only=True):
    """Which schedules to list. `name_contains` in any case, `order` and `offset` are for ordered lists."""

    namespace: str | None = None
    state: ScheduleState | None = None
    group: str | None = None
    name_prefix: str = ""
    name_contains: str = ""
    order: ScheduleOrder = "name"
    offset: int = 0
    limit: int = 50
    cursor: str = ""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list in pages, newest first. With a schedule, its own history is followed.

    `only_manual`, with a schedule, leaves out its occurrences. An empty namespace matches no run; an empty
    queue is no filter.
    """

    namespace: str | None = None
    schedule_id: str | None = None
    only_manual: bool = False
    queue: str | None = None
    state: RunState | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    cursor: str = ""


class LiveRuns(Selection[Run], frozen=True):
    """The ready, leased and held runs of schedules, oldest first."""

    schedule_ids: Collection[str]


class QueuedRuns(Selection[Run], frozen=True):
    """The unfinished runs of a queue, in the order of the queue."""

    namespace: str
    queue: str
    limit: int


class FutureManualRuns(Selection[Run], frozen=True):
    """Manual runs of schedules for a future instant, earliest first."""

    schedule_ids: Collection[str]
    limit: int


class FutureManualRunsIn(Selection[Run], frozen=True, kw_only=True):
    """Manual runs of all schedules of a namespace for a future instant up to `until`, earliest first."""

    namespace: str
    until: datetime
    limit: int


class ReleasableRuns(Selection[Run], frozen=True):
    """The first held run of each given schedule, or of all, that has no ready or leased run."""

    limit: int
    schedule_ids: Collection[str] | None = None


class FirstReadyRuns(Selection[Run], frozen=True):
    """The first ready run of each bucket with needs."""


class LeasedRuns(Selection[Run], frozen=True, kw_only=True):
    """Leased runs by id: all, or those of one holder, or with one lease, or only those asked to stop."""

    holder: str = ""
    lease_id: str | None = None
    cancel_requested: bool = False


class StepRuns(Selection[Run], frozen=True):
    """The step runs of a workflow run in creation order; optionally only unfinished ones."""

    parent: str
    unfinished: bool = False


class RunsOfStep(Selection[Run], frozen=True, kw_only=True):
    """Runs without a schedule, planned at an instant, with `first <= dedupe_scope < last`."""

    planned_at: datetime
    first: str
    last: str


class RunsBesideOccurrence(Selection[Run], frozen=True, kw_only=True):
    """The runs of a schedule at an instant that are not its occurrence, by id: backfills, and by hand."""

    schedule_id: str
    planned_at: datetime


class WaitingSteps(Selection[Run], frozen=True):
    """The steps of a namespace that wait for an event, or without one for an answer, by id."""

    namespace: str
    event: str | None = None


class RunsWithNeeds(Selection[Run], frozen=True):
    """Runs of schedules that were recorded as waiting for the schedules they need, by id."""

    schedule_ids: Collection[str]


class RunsWithExternalId(Selection[Run], frozen=True):
    """The runs that an external executor calls by an id."""

    external_id: str
    limit: int


class RunsWithArtifacts(Selection[Run], frozen=True):
    """The first runs after an id that left artifacts, by id."""

    after: str
    limit: int


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One entry of the audit log: who did what to which object, before and after, and why."""

    at: datetime
    namespace: str
    actor: str
    origin: str
    action: str
    subject: str
    before: str = ""
    after: str = ""
    reason: str = ""


class AuditCheck(Struct, frozen=True):
    """The entries of the audit log, how many are in its hash chain, and the first that does not match."""

    entries: int
    sealed: int
    first_broken: int | None


class StoredObject(Struct, frozen=True, kw_only=True):
    """A small named object with a revision: a queue policy, a limit, a calendar, a workflow."""

    kind: str
    namespace: str
    name: str
    revision: int = 1
    body: bytes
    at: datetime

    @classmethod
    def of(
        cls, kind: str, name: str, value: object, *, namespace: str, at: datetime, revision: int = 1
    ) -> StoredObject:
        """An object whose body is this value as JSON."""
        body = msgspec.json.encode(value)
        return cls(kind=kind, namespace=namespace, name=name, revision=revision, body=body, at=at)

    def decode(self, kind: type[T]) -> T:
        """Return the value in the body."""
        return msgspec.json.decode(self.body, type=kind)


class PruneRequest(Struct, frozen=True, kw_only=True):
    """Finished runs, oldest first: older than an instant, beyond a count, or beyond a size in bytes."""

    older_than: datetime | None = None
    keep_runs: int | None = None
    keep_bytes: int | None = None
    limit: int = 1000


class ObjectPrune(Struct, frozen=True, kw_only=True):
    """The first objects of a kind that were written before an instant."""

    kind: str
    namespace: str
    older_than: datetime
    limit: int = 100


class IncidentPrune(Struct, frozen=True):
    """Incidents that closed before an instant."""

    before: datetime


class LimitKeyPrune(Struct, frozen=True):
    """The rows of keys of limits that were last used before an instant and that no lease holds."""

    before: datetime


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which entries of the audit log to list, newest first; without a namespace, those of all."""

    namespace: str | None = None
    limit: int = 50
    cursor: str = ""


class IncidentFilter(Struct, frozen=True, kw_only=True):
    """Which incidents to list, newest first; without a namespace, those of all."""

    namespace: str | None = None
    incident_id: str = ""
    open_only: bool = False
    limit: int = 50
    cursor: str = ""
