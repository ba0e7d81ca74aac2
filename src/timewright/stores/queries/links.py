"""Queries for dependencies between schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from timewright.core.moments import from_micros, to_micros
from timewright.core.run.run import Run
from timewright.core.schedule.upstream import EndKind
from timewright.ports.links import FollowUp, Link, RunEndEffects
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import MICROSECOND, Row, micros_or_none, read_run, to_instant


class SqlLinkQueries(SqlQueries):
    """Dependencies between schedules, of `ports.workflow.WorkflowQueries`."""

    def read_run_end_effects(self) -> RunEndEffects:
        """Return what the end of a run may affect, in constant time."""
        ((held, linked, failing),) = self._query("run_end_effects", {})
        return RunEndEffects(bool(held), bool(linked), bool(failing))

    def replace_links(self, downstream: str, links: Sequence[Link]) -> None:
        """Replace all upstream links of a schedule."""
        self._query("delete_links", {"downstream": downstream})
        if links:
            self._execute_many("insert_links", [_link_row(link) for link in links])

    def get_links(
        self, *, downstreams: Iterable[str] = (), upstreams: Iterable[str] = (), lock: bool = False
    ) -> list[Link]:
        """Return the links of downstream or of upstream schedules."""
        if wanted := sorted(set(upstreams)):
            rows = self._query("downstream_links", {"ids": wanted})
        else:
            statement = "lock_upstream_links" if lock else "upstream_links"
            rows = self._query(statement, {"ids": sorted(set(downstreams))})
        return [_link(row) for row in rows]

    def mark_links_met(self, links: Sequence[Link]) -> None:
        """Record the end that met each link, unless a later one is recorded."""
        rows = [
            (
                link.upstream,
                link.downstream,
                link.kind,
                link.on.value,
                micros_or_none(link.met_at),
                link.met_by,
            )
            for link in links
        ]
        # PostgreSQL applies only one of several rows with the same key, in no order; send the last.
        last = {row[:4]: row for row in sorted(rows, key=lambda row: (row[:4], row[4] or 0))}
        if last:
            self._execute_many("mark_links_met", list(last.values()))

    def add_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Insert follow-ups of ended runs; existing ones stay as they are."""
        if rows:
            values = [
                (row.downstream, row.upstream_run, row.upstream, row.on.value, to_micros(row.due_at))
                for row in rows
            ]
            self._execute_many("insert_follow_ups", values)

    def wake_schedules(self, wakes: Sequence[tuple[str, datetime]]) -> None:
        """Move the wake-up of schedules to an instant, if it is earlier."""
        earliest: dict[str, int] = {}
        for schedule_id, at in wakes:
            earliest[schedule_id] = min(to_micros(at), earliest.get(schedule_id, to_micros(at)))
        if earliest:
            self._execute_many("wake_schedules", sorted(earliest.items()))

    def get_open_follow_ups(self, downstreams: Iterable[str], *, limit: int) -> dict[str, list[FollowUp]]:
        """Return undecided follow-ups per schedule, earliest first, at most `limit` each."""
        found: dict[str, list[FollowUp]] = {schedule_id: [] for schedule_id in sorted(set(downstreams))}
        if found:
            for row in self._execute_many(
                "get_open_follow_ups", [(schedule_id, limit) for schedule_id in found]
            ):
                found[row[0]].append(_follow_up(row))
        return found

    def close_follow_ups(self, rows: Sequence[FollowUp]) -> None:
        """Write the decision on follow-ups."""
        if rows:
            values = [(row.downstream, row.upstream_run, row.state, row.run_id) for row in rows]
            self._execute_many("close_follow_ups", values)

    def delete_open_follow_ups(self, downstream: str) -> None:
        """Delete the undecided follow-ups of a schedule."""
        self._query("delete_open_follow_ups", {"downstream": downstream})

    def find_follow_ups(
        self, *, run_ids: Iterable[str] = (), upstream_runs: Iterable[str] = ()
    ) -> list[FollowUp]:
        """Return the follow-ups that led to runs or came from upstream runs, earliest first."""
        parameters = {"ids": list(run_ids), "upstream_runs": list(upstream_runs)}
        return [_follow_up(row) for row in self._query("find_follow_ups", parameters)]

    def future_manual_runs(self, schedule_ids: Iterable[str], *, limit: int) -> list[Run]:
        """Return manual runs of schedules for a future instant, earliest first."""
        parameters = {"ids": list(schedule_ids), "limit": limit}
        return [read_run(row) for row in self._query("future_manual_runs", parameters)]

    def add_dependency_waits(self, waits: Sequence[tuple[str, str]]) -> None:
        """Record runs that wait for a dependency, each with its schedule."""
        if waits:
            self._execute_many("insert_dependency_waits", list(waits))

    def get_dependency_waits(self, schedule_ids: Iterable[str]) -> list[str]:
        """Return the ids of runs of schedules that wait for a dependency."""
        return [row[0] for row in self._query("get_dependency_waits", {"ids": list(schedule_ids)})]

    def delete_dependency_waits(self, run_ids: Iterable[str]) -> None:
        """Delete the records of waiting runs."""
        wanted = list(run_ids)
        if wanted:
            self._query("delete_dependency_waits", {"ids": wanted})


def _link_row(link: Link) -> Row:
    key = (link.upstream, link.downstream, link.kind, link.on.value)
    return (*key, link.delay // MICROSECOND, micros_or_none(link.met_at), link.met_by)


def _link(row: Row) -> Link:
    return Link(
        upstream=row[0],
        downstream=row[1],
        kind=row[2],
        on=EndKind(row[3]),
        delay=row[4] * MICROSECOND,
        met_at=to_instant(row[5]),
        met_by=row[6],
    )


def _follow_up(row: Row) -> FollowUp:
    return FollowUp(
        downstream=row[0],
        upstream_run=row[1],
        upstream=row[2],
        on=EndKind(row[3]),
        due_at=from_micros(row[4]),
        state=row[5],
        run_id=row[6],
    )
