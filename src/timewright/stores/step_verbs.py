"""What a store does for workflows: counts that only rise and fall, and runs found by their parent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import astuple

from timewright.core.moments import micros
from timewright.core.run import Run
from timewright.ports.steps import StepRow, TakeOver
from timewright.stores.rows import Row, extra_of, read_run, to_int
from timewright.stores.verbs import Verbs


class SqlStepVerbs(Verbs):
    """The verbs of `ports.steps.StepVerbs`."""

    def take_over(self, rows: Sequence[TakeOver]) -> set[str]:
        """Pass leases on, with their fence; gives back the ids of runs that were still held so."""
        told = [
            (
                row.run.id,
                row.run.fence,
                row.was,
                row.run.holder,
                to_int(row.run.started_at),
                to_int(row.run.lease_until),
                extra_of(row.run),
            )
            for row in rows
        ]
        return {row[0] for row in self._tell("take_over", told)} if told else set()

    def prolong(self, run_id: str, *, until: datetime, started_at: datetime | None = None) -> bool:
        """Move the end of a lease that was not asked to stop; it also began, if an instant says so."""
        parameters = {"id": run_id, "until": micros(until), "started_at": to_int(started_at)}
        return bool(self._ask("prolong", parameters))

    def hold_wholes(self, parents: Iterable[str]) -> dict[str, StepRow]:
        """The rows of whole workflow runs, held until the transaction ends."""
        rows = (_step(row) for row in self._ask("hold_wholes", {"ids": sorted(set(parents))}))
        return {row.parent: row for row in rows}

    def add_to_steps(self, rows: Sequence[StepRow]) -> list[StepRow]:
        """Add to the counts of steps, and set a state or a run where one is named; gives back the sums."""
        told: dict[Row, Row] = {}
        for row in map(astuple, rows):
            before = told.get(row[:2])
            told[row[:2]] = _both(before, row) if before is not None else row
        return [_step(row) for row in self._tell("add_to_steps", list(told.values()))] if told else []

    def get_steps(self, parent: str, steps: Iterable[str] | None = None) -> dict[str, StepRow]:
        """The rows of some steps of a workflow run by name, or of all."""
        if steps is None:
            rows = self._ask("all_steps", {"parent": parent})
        else:
            rows = self._ask("get_steps", {"parent": parent, "steps": sorted(set(steps))})
        return {row[1]: _step(row) for row in rows}

    def delete_steps(self, parents: Iterable[str]) -> None:
        """Forget where the steps of workflow runs stand."""
        self._ask("delete_steps", {"ids": list(parents)})

    def child_runs(self, parent: str, *, unfinished: bool = False) -> list[Run]:
        """The runs that the steps of a workflow run became, in the order they came; or those not over."""
        rows = self._ask("child_runs", {"parent": parent, "finished": int(not unfinished)})
        return sorted((read_run(row) for row in rows), key=lambda run: (run.created_at, run.lane))

    def lane_runs(self, planned_at: datetime, *, first: str, last: str) -> list[Run]:
        """The runs of no schedule, of one planned instant, in the lanes from `first` up to before `last`."""
        parameters = {"planned_at": micros(planned_at), "first": first, "last": last}
        return [read_run(row) for row in self._ask("lane_runs", parameters)]


def _step(row: Row) -> StepRow:
    return StepRow(**dict(zip(StepRow.__struct_fields__, row, strict=True)))


def _both(first: Row, second: Row) -> Row:
    """All that is told of one step at once: a server takes one row for each."""
    counts = (a + b for a, b in zip(first[2:8], second[2:8], strict=True))
    return (*first[:2], *counts, *(b or a for a, b in zip(first[8:], second[8:], strict=True)))
