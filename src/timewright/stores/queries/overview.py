"""Queries for overview pages over many schedules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from timewright.core.moments import EPOCH, to_micros
from timewright.ports import LiveCount
from timewright.ports.overview import GroupCounts, PastRun, RecentRun, RunCounts
from timewright.stores.queries.base import SqlQueries
from timewright.stores.queries.runs import since_parameters
from timewright.stores.rows import MICROSECOND, Row, to_instant


class SqlOverviewQueries(SqlQueries):
    """Implements most of `ports.overview.OverviewQueries`."""

    def count_live(self, *, now: datetime, max_rows: int) -> list[LiveCount]:
        """Count live rows by kind, reading at most `max_rows` of each kind."""
        oldest = {(row[0], row[1]): row[2] for row in self._query("oldest_ready", {"max_rows": max_rows})}
        rows = self._query("count_live", {"now": to_micros(now), "max_rows": max_rows})
        return [
            LiveCount(
                namespace=row[0],
                queue=row[1],
                kind=row[2],
                count=int(row[3]),
                oldest=to_instant(oldest.get((row[0], row[1])) if row[2] == "ready" else None),
            )
            for row in rows
        ]

    def count_namespace(self, namespace: str, *, max_schedules: int, max_runs: int) -> tuple[int, int]:
        """Count schedules in use and waiting runs, each up to its maximum."""
        parameters = {"namespace": namespace, "max_schedules": max_schedules, "max_runs": max_runs}
        ((schedules, waiting),) = self._query("count_namespace", parameters)
        return int(schedules), int(waiting)

    def next_schedule_ids(self, namespace: str, *, until: datetime, limit: int) -> list[str]:
        """Return the ids of the schedules with the earliest wake-ups, earliest first."""
        parameters = {"namespace": namespace, "until": to_micros(until), "limit": limit}
        return [row[0] for row in self._query("next_schedule_ids", parameters)]

    def recent_runs(
        self, schedule_ids: Iterable[str], *, limit_each: int
    ) -> dict[str, tuple[RecentRun, ...]]:
        """Return the newest occurrences of schedules, oldest first, at most `limit_each` per schedule."""
        found: dict[str, list[RecentRun]] = {}
        for row in self._query("recent_runs", {"ids": list(schedule_ids), "limit_each": limit_each}):
            found.setdefault(row[0], []).append(_recent_run(row))
        return {schedule_id: tuple(reversed(runs)) for schedule_id, runs in found.items()}

    def count_runs_by_state(self, namespace: str, *, failed_since: datetime, max_count: int) -> RunCounts:
        """Count runs by state, each up to `max_count`."""
        parameters = {"namespace": namespace, "max_count": max_count, **since_parameters(failed_since)}
        ((leased, ready, failed, parked),) = self._query("count_runs_by_state", parameters)
        return RunCounts(leased=leased, ready=ready, failed=failed, parked=parked)

    def list_groups(self, namespace: str, *, after: str, limit: int) -> list[GroupCounts]:
        """Return the groups after a name, in order. Scans the schedules of the namespace."""
        rows = self._query("list_groups", {"namespace": namespace, "after": after, "limit": limit})
        return [
            GroupCounts(name=row[0], schedules=row[1], active=row[2], paused=row[3], parked=row[4])
            for row in rows
        ]

    def past_runs(self, namespace: str, *, since: datetime, limit: int) -> list[PastRun]:
        """Return the occurrences planned since an instant, newest first."""
        rows = self._query("past_runs", {"namespace": namespace, "limit": limit, **since_parameters(since)})
        return [_past_run(*row) for row in rows]


def _past_run(state: str, planned_at: int, fire_at: int, started_at: int | None) -> PastRun:
    late_by = None if started_at is None else (started_at - fire_at) * MICROSECOND
    return PastRun(state, EPOCH + planned_at * MICROSECOND, late_by)


def _recent_run(row: Row) -> RecentRun:
    planned_at = to_instant(row[2])
    assert planned_at is not None
    return RecentRun(
        schedule_id=row[0],
        run=row[1],
        planned_at=planned_at,
        started_at=to_instant(row[3]),
        finished_at=to_instant(row[4]),
        state=row[5],
        reason=row[6],
        dropped=int(row[7]),
    )
