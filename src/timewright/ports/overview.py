"""Read-only store queries over many rows: pending work, counts, overview lists, verification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run.needs import LeaseOffer
from timewright.ports.pending_work import PendingWork
from timewright.ports.rows import (
    LiveCount,
)

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


class PastRun(Struct, frozen=True, gc=False):
    """The state of a past occurrence and the delay of its first start."""

    state: str
    planned_at: datetime
    late_by: timedelta | None


class RunCounts(Struct, frozen=True, kw_only=True):
    """Run counts by state for an overview."""

    leased: int
    ready: int
    failed: int
    parked: int


class GroupCounts(Struct, frozen=True, kw_only=True):
    """Schedule counts of one group by state."""

    name: str
    schedules: int
    active: int
    paused: int
    parked: int


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

    def count_live(self, *, now: datetime, max_rows: int) -> list[LiveCount]:
        """Count live rows by kind, reading at most `max_rows` of each kind.

        Kinds of runs are `ready`, `waiting` (deferred), `leased`, `held` and `parked`; of schedules `due` and
        `parked_schedule`; and `capacity`, whose queue is the key of a limit.
        """
        ...

    def count_namespace(self, namespace: str, *, max_schedules: int, max_runs: int) -> tuple[int, int]:
        """Count schedules in use and waiting runs, each up to its maximum."""
        ...

    def count_runs_by_state(self, namespace: str, *, failed_since: datetime, max_count: int) -> RunCounts:
        """Count runs by state, each up to `max_count`."""
        ...

    def next_schedule_ids(self, namespace: str, *, until: datetime, limit: int) -> list[str]:
        """Return the ids of the schedules with the earliest wake-ups, earliest first."""
        ...

    def recent_runs(
        self, schedule_ids: Iterable[str], *, limit_each: int
    ) -> dict[str, tuple[RecentRun, ...]]:
        """Return the newest occurrences of schedules, oldest first, at most `limit_each` per schedule."""
        ...

    def past_runs(self, namespace: str, *, since: datetime, limit: int) -> list[PastRun]:
        """Return the occurrences planned since an instant, newest first."""
        ...

    def list_groups(self, namespace: str, *, after: str, limit: int) -> list[GroupCounts]:
        """Return the groups after a name, in order. Scans the schedules of the namespace."""
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
