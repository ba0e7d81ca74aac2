"""Queries for workflows: counters per step, and runs by parent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import astuple

from timewright.core.moments import to_micros
from timewright.core.run.run import Run
from timewright.ports.workflow import LeaseTransfer, StepRow
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import Row, extra_json, micros_or_none, read_run


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
