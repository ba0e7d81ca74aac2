"""Read-only store queries over many rows: pending work, counts, overview lists, verification."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from msgspec import Struct, field

from timewright.core.moments import ZERO
from timewright.core.run.needs import LeaseOffer
from timewright.core.run.run import Run
from timewright.ports.rows import LiveCount, ScheduleFilter, Selection

R = TypeVar("R", bound=Struct)


class RecentRun(Struct, frozen=True, kw_only=True):
    """One occurrence in a strip of recent outcomes, with the id of its run and its first start."""

    run: str
    schedule_id: str
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: str
    reason: str
    dropped: int = 0


class SearchHit(Struct, frozen=True):
    """A schedule or run that was found by a text; the name of a run is the id of its schedule.

    The kind `tagged` is a schedule whose definition has the text after the word tags.
    """

    kind: str
    id: str
    name: str
    state: str
    error: str = ""


class MinuteCounts(Struct, frozen=True, kw_only=True):
    """The ended runs that were planned in one minute and ended in one minute, by result.

    `missed` are the skipped ones that no instance was there for. `delays` counts the first starts by an upper
    bound of their delay in microseconds.
    """

    namespace: str
    planned_minute: datetime
    finished_minute: datetime
    succeeded: int = 0
    failed: int = 0
    parked: int = 0
    cancelled: int = 0
    skipped: int = 0
    missed: int = 0
    started: int = 0
    delay_max: timedelta = ZERO
    delays: dict[int, int] = field(default_factory=dict)


class RunCountChange(Struct, frozen=True, kw_only=True):
    """Counts to store: the minutes they cover, completely, and the recounts that they answer."""

    counted_until: datetime
    expected_until: datetime | None
    minutes: tuple[tuple[datetime, datetime], ...]
    counts: tuple[MinuteCounts, ...]
    recount_ids: tuple[int, ...] = ()
    keep_since: datetime


class GroupCounts(Struct, frozen=True, kw_only=True):
    """Schedule counts of one group by state."""

    name: str
    schedules: int
    active: int
    paused: int
    parked: int


class LiveCounts(Selection[LiveCount], frozen=True, kw_only=True):
    """The numbers of live rows by kind, reading at most `max_rows` of each kind.

    Kinds of runs are `ready`, `waiting` (deferred), `leased`, `held` and `parked`; of schedules `due` and
    `parked_schedule`; and `capacity`, whose queue is the key of a limit.
    """

    now: datetime
    max_rows: int


class ScheduleGroups(Selection[GroupCounts], frozen=True, kw_only=True):
    """The groups after a name, in order; scans the schedules of the namespace."""

    namespace: str
    after: str = ""
    limit: int


class TextSearch(Selection[SearchHit], frozen=True, kw_only=True):
    """Schedules with a text in their name, id or tags, and runs with it in their id or error.

    At most `limit` schedules by name and `limit` runs, the runs among the newest `max_rows` of all, of the
    failed ones and of the parked ones.
    """

    namespace: str
    text: str
    limit: int
    max_rows: int


class FinishedRunCounts(Selection[MinuteCounts], frozen=True, kw_only=True):
    """The counts of the runs that ended in a range of whole minutes, made from the run rows."""

    since: datetime
    until: datetime


class StoredRunCounts(Selection[MinuteCounts], frozen=True, kw_only=True):
    """The stored counts of the runs of a namespace that were planned in a range."""

    namespace: str
    since: datetime
    until: datetime


class FinishInstant(Selection[datetime], frozen=True, kw_only=True):
    """When the run ended that is `offset` rows after the first one since an instant, if there is one."""

    since: datetime
    offset: int


class RunsByState(Struct, frozen=True, kw_only=True):
    """Counts `leased`, `ready`, `failed` (planned since then) and `parked` runs, each up to `max_count`."""

    namespace: str
    failed_since: datetime
    max_count: int


class QuotaUse(Struct, frozen=True, kw_only=True):
    """Counts `schedules` in use and `runs` that wait, each up to its maximum."""

    namespace: str
    max_schedules: int
    max_runs: int


class ManualRuns(Struct, frozen=True):
    """Counts the manual runs that are kept, by schedule id; a schedule without one is left out."""

    schedule_ids: Collection[str]


class DeferredRuns(Struct, frozen=True, kw_only=True):
    """Counts `runs` that are deferred for a reason that begins with `prefix`."""

    namespace: str
    prefix: str


class LimitHolds(Struct, frozen=True):
    """Counts the `leases` that hold a limit with a key, whatever its value."""

    limit_key: str


class OverviewQueries(Protocol):
    """Read-only queries over many rows: pending work, counts, lists for the overview, and verification."""

    def read_pending_work(
        self,
        *,
        holder: str = "",
        shard: tuple[int, int] | None = (1, 1),
        orphan_after: timedelta = ZERO,
        with_lease_end: bool = False,
        with_held: bool = False,
        offer: LeaseOffer | None = None,
        now: datetime | None = None,
    ) -> PendingWork:
        """Return the pending work of a holder that serves a shard and can run what it offers. Read-only.

        Schedules outside `shard` count as due only `orphan_after` later; a shard of None owns no schedule.
        With `now`, older instants may be left out for a while if looking for them is slow (`complete_in`).
        """
        ...

    def count(
        self, which: RunsByState | QuotaUse | ManualRuns | DeferredRuns | LimitHolds | ScheduleFilter
    ) -> dict[str, int]:
        """Count rows in one query; of a filter, the `schedules` of a namespace on all its pages."""
        ...

    def recent_runs(
        self, schedule_ids: Iterable[str], *, limit_each: int, since: datetime | None = None
    ) -> dict[str, tuple[RecentRun, ...]]:
        """Return the newest runs of schedules, oldest first, at most `limit_each` per schedule.

        With `since`, occurrences are read until one that was created before; that one is among the rows.
        """
        ...

    def read_counted_until(self) -> tuple[datetime | None, dict[int, datetime]]:
        """Return until when runs are counted, and the minutes to count again, by the id of the request."""
        ...

    def save_run_counts(self, change: RunCountChange) -> bool:
        """Store counts; false, and nothing is stored, if another instance has counted meanwhile."""
        ...

    def list_rows(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        since: datetime | None = None,
        after: R | None = None,
        unfinished_before: datetime | None = None,
        run_ids: Sequence[str] | None = None,
        limit: int = 1000,
    ) -> list[R]:
        """Return a page of raw rows after the row `after`; runs and audit entries newest first.

        With `unfinished_before`, only unfinished runs created before that instant, by id. Attempts are
        selected by `run_ids` alone.
        """
        ...


class PendingWork(Struct, frozen=True, kw_only=True):
    """The work that waits for an engine, and the next instants at which work may appear.

    The fields that cost more are read only on request.
    """

    schedule_due_at: datetime | None = None
    """When the next schedule is due here."""
    first_wake_at: datetime | None = None
    """The earliest wake-up of all schedules, where a scan may begin."""
    run_due_at: datetime | None = None
    """The earliest instant of a deferred run."""
    has_ready_runs: bool = False
    """Whether a run can be leased now."""
    cancel_requested: tuple[Run, ...] = ()
    """The holder's leased runs with a cancel request."""
    includes_lease_end: bool = False
    """Whether `lease_expires_at` was read."""
    lease_expires_at: datetime | None = None
    """The earliest end of a lease, if read."""
    has_releasable_runs: bool = False
    """Whether a held run can be released, if read."""
    complete_in: timedelta | None = None
    """If set, only recent instants were looked at; after this time all are looked at again."""
    has_wakeable_schedules: bool = False
    """Whether due schedules were set aside, by an instance that cannot run them, and the holder can."""

    @property
    def wake_at(self) -> datetime | None:
        """The first instant at which a schedule or a run is due."""
        schedule, run = self.schedule_due_at, self.run_due_at
        if schedule is None or run is None:
            return schedule or run
        return min(schedule, run)

    def has_due_schedule(self, *, now: datetime) -> bool:
        """Whether a schedule is due."""
        return self.schedule_due_at is not None and self.schedule_due_at <= now

    def has_runs_to_lease(self, *, now: datetime) -> bool:
        """Whether a run may be ready to lease."""
        return self.has_ready_runs or (self.run_due_at is not None and self.run_due_at <= now)

    def has_expired_lease(self, *, now: datetime) -> bool:
        """Whether a lease has expired, if that was read."""
        return self.lease_expires_at is not None and self.lease_expires_at <= now
