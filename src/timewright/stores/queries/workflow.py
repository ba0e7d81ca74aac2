"""Queries for workflows and for dependencies between schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import astuple

from timewright.core.moments import to_micros
from timewright.ports.workflow import (
    LeaseTransfer,
    Link,
    RunEndEffects,
    StepRow,
)
from timewright.stores.queries.base import MAX_PAGE_ROWS, SqlQueries
from timewright.stores.rows import (
    Row,
    extra_json,
    micros_or_none,
    struct_reader,
    struct_row,
)


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


_step = struct_reader(StepRow)


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

    def replace_links(
        self, downstream: str, links: Sequence[Link], *, delete_follow_ups: bool = False
    ) -> None:
        """Replace all upstream links of a schedule; optionally delete its undecided follow-ups."""
        if delete_follow_ups:
            self._query("delete_open_follow_ups", {"downstream": downstream})
        self._query("delete_links", {"downstream": downstream})
        if links:
            self._execute_many("insert_links", [struct_row(link) for link in links])

    def mark_links_met(self, links: Sequence[Link]) -> None:
        """Record the end that met each link, unless a later one is recorded."""
        values = map(struct_row, links)
        rows = [(*row[:4], *row[5:]) for row in values]
        # PostgreSQL applies only one of several rows with the same key, in no order; send the last.
        last = {row[:4]: row for row in sorted(rows, key=lambda row: (row[:4], row[4] or 0))}
        if last:
            self._execute_many("mark_links_met", list(last.values()))

    def wake_schedules(self, wakes: Sequence[tuple[str, datetime]]) -> None:
        """Move the wake-up of schedules to an instant, if it is earlier."""
        earliest: dict[str, int] = {}
        for schedule_id, at in wakes:
            earliest[schedule_id] = min(to_micros(at), earliest.get(schedule_id, to_micros(at)))
        if earliest:
            self._execute_many("wake_schedules", sorted(earliest.items()))
