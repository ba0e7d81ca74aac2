"""Queries for workflows and for dependencies between schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter

from msgspec.structs import astuple

from timewright.core.moments import from_micros, to_micros
from timewright.core.run.needs import ANSWER, needs_of_wait
from timewright.core.run.run import Run
from timewright.core.schedule.upstream import EndKind
from timewright.ports.workflow import FollowUp, LeaseTransfer, Link, RunEndEffects, StepRow
from timewright.stores.queries.base import MAX_PAGE_ROWS, SqlQueries
from timewright.stores.rows import (
    MICROSECOND,
    Row,
    extra_json,
    micros_or_none,
    read_run,
    ready_bucket,
    to_instant,
)

LAST_CHARACTER = "\U0010ffff"


class SqlWorkflowQueries(SqlQueries):
    """Workflow runs, of `ports.workflow.WorkflowQueries`."""

    def transfer_leases(self, rows: Sequence[LeaseTransfer]) -> set[str]:
        """Transfer leases with their fence; returns the ids of runs whose holder still matched."""
        values = [
            (
                row.run.id,
                row.run.fence,
                row.previous_holder,
                row.run.holder,
                micros_or_none(row.run.started_at),
                micros_or_none(row.run.lease_until),
                extra_json(row.run),
            )
            for row in rows
        ]
        return {row[0] for row in self._execute_many("transfer_leases", values)} if values else set()

    def extend_lease(self, run_id: str, *, until: datetime, started_at: datetime | None = None) -> bool:
        """Set the end of a lease without a cancel request, and its start if given; returns whether it did."""
        parameters = {"id": run_id, "until": to_micros(until), "started_at": micros_or_none(started_at)}
        return bool(self._query("extend_lease", parameters))

    def lock_parents(self, parents: Iterable[str]) -> dict[str, StepRow]:
        """Lock the rows of whole workflow runs until the transaction ends and return them by parent."""
        rows = (_step(row) for row in self._query("lock_parents", {"ids": sorted(set(parents))}))
        return {row.parent: row for row in rows}

    def add_to_steps(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Add to the counters of steps; set state and run where given. Returns the new rows."""
        combined: dict[Row, Row] = {}
        for row in map(astuple, rows):
            before = combined.get(row[:2])
            combined[row[:2]] = _combine(before, row) if before is not None else row
        if not combined:
            return []
        return [_step(row) for row in self._execute_many("add_to_steps", list(combined.values()))]

    def get_steps(self, parent: str, steps: Iterable[str] | None = None) -> dict[str, StepRow]:
        """Return the rows of some or all steps of a workflow run, by step name."""
        if steps is None:
            rows = self._query("get_all_steps", {"parent": parent})
        else:
            rows = self._query("get_steps", {"parent": parent, "steps": sorted(set(steps))})
        return {row[1]: _step(row) for row in rows}

    def waiting_steps(self, namespace: str, *, event: str | None = None) -> list[Run]:
        """Return the steps of a namespace that wait for an event, or without one for an answer."""
        if event is None:
            first = ready_bucket((ANSWER,), ())
            ranges = [(first, f"{first}\n{LAST_CHARACTER}")]
        else:
            buckets = [ready_bucket(needs_of_wait(answer=also, event=event), ()) for also in (False, True)]
            ranges = [(bucket, bucket) for bucket in buckets]
        rows = [
            row
            for first, last in ranges
            for row in self._query("waiting_steps", {"namespace": namespace, "first": first, "last": last})
        ]
        return [read_run(row) for row in sorted(rows, key=itemgetter(0))]

    def delete_steps(self, parents: Iterable[str]) -> None:
        """Delete the step rows of workflow runs."""
        self._query("delete_steps", {"ids": list(parents)})

    def child_runs(self, parent: str, *, unfinished: bool = False) -> list[Run]:
        """Return the step runs of a workflow run in creation order; optionally only unfinished ones."""
        rows = self._query("child_runs", {"parent": parent, "finished": int(not unfinished)})
        return sorted((read_run(row) for row in rows), key=lambda run: (run.created_at, run.dedupe_scope))

    def find_runs_by_dedupe_scope(self, planned_at: datetime, *, first: str, last: str) -> list[Run]:
        """Return unscheduled runs planned at an instant with `first <= dedupe_scope < last`."""
        parameters = {"planned_at": to_micros(planned_at), "first": first, "last": last}
        return [read_run(row) for row in self._query("find_runs_by_dedupe_scope", parameters)]


def _step(row: Row) -> StepRow:
    return StepRow(**dict(zip(StepRow.__struct_fields__, row, strict=True)))


def _combine(first: Row, second: Row) -> Row:
    """Combine two rows of one step: a batch may update each row only once."""
    counts = (a + b for a, b in zip(first[2:8], second[2:8], strict=True))
    return (*first[:2], *counts, *(b or a for a, b in zip(first[8:], second[8:], strict=True)))


class SqlLinkQueries(SqlQueries):
    """Dependencies between schedules, of `ports.workflow.WorkflowQueries`."""

    def read_run_end_effects(self, schedule_ids: Iterable[str] = ()) -> RunEndEffects:
        """Return what the end of runs may affect, in constant time, and which of the schedules fail.

        If very many schedules fail, all are returned: each is locked and looked at then.
        """
        ((held, linked, any_failing),) = self._query("run_end_effects", {})
        failing = wanted = frozenset(schedule_ids if any_failing else ())
        if wanted:
            rows = self._query("failing_schedules", {"limit": MAX_PAGE_ROWS})
            failing = wanted.intersection(row[0] for row in rows) if len(rows) < MAX_PAGE_ROWS else wanted
        return RunEndEffects(bool(held), bool(linked), failing)

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
