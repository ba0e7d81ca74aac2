"""Queries for what is recorded about runs: attempts, output, progress, artifacts, external ids, charges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from timewright.core.budgets.budgets import Charge
from timewright.core.moments import from_micros, to_micros
from timewright.core.run.run import Artifact, Attempt
from timewright.ports import ExternalId
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt, RunProgress
from timewright.ports.runs import RowOfRun, RunRow
from timewright.ports.workflow import DependencyWait, FollowUp, StepRow
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import Row, read_attempt, storable_text, struct_reader, struct_row


class SqlRunRowQueries(SqlQueries):
    """What is recorded about runs, one statement for each kind of row."""

    def put_run_rows(self, rows: Sequence[RunRow]) -> None:
        """Write what is recorded about runs."""
        batches: dict[str, list[Row]] = {}
        for row in rows:
            statement, values = _WRITES[type(row)](row)
            batches.setdefault(statement, []).append(values)
        for statement, batch in batches.items():
            self._execute_many(statement, batch)

    def get_run_rows(self, kind: type[RowOfRun], run_ids: Iterable[str]) -> dict[str, tuple[RowOfRun, ...]]:
        """Return what is recorded about runs, by run, oldest first; a run without such rows is left out."""
        statement, decode = _READS[kind]
        found: dict[str, list[RowOfRun]] = {}
        for row in self._query(statement, {"ids": list(run_ids)}):
            found.setdefault(row[0], []).append(decode(row))
        return {run_id: tuple(rows) for run_id, rows in found.items()}

    def delete_run_rows(
        self, kind: type[DependencyWait | StepRow | AttemptOutput], keys: Iterable[str | tuple[str, int]]
    ) -> None:
        """Delete waits or steps by run, or output by run and fence, which the ended attempt keeps."""
        wanted = list(keys)
        if kind is AttemptOutput and wanted:
            self._execute_many("delete_attempt_output", [tuple(key) for key in wanted])
        elif wanted:
            self._query("delete_steps" if kind is StepRow else "delete_dependency_waits", {"ids": wanted})


def _write_output(output: AttemptOutput) -> tuple[str, Row]:
    excerpt = output.excerpt
    return "put_attempt_output", (
        output.run_id,
        output.fence,
        output.number,
        to_micros(output.at),
        excerpt.size,
        excerpt.tail_offset,
        storable_text(excerpt.text),
    )


def _write_progress(one: RunProgress) -> tuple[str, Row]:
    checkpoint = "" if one.checkpoint is None else msgspec.json.encode(one.checkpoint).decode()
    values = (one.run_id, one.fence, to_micros(one.at), one.fraction, storable_text(one.note), checkpoint)
    return "put_run_progress", values


def _write_follow_up(row: FollowUp) -> tuple[str, Row]:
    values = struct_row(row)
    if row.state == "open":
        return "insert_follow_ups", values[:5]
    return "close_follow_ups", (*values[:2], *values[5:])


def _decode_progress(row: Row) -> RunProgress:
    checkpoint = msgspec.json.decode(row[5]) if row[5] else None
    return RunProgress(
        run_id=row[0],
        fence=row[1],
        at=from_micros(row[2]),
        fraction=row[3],
        note=row[4],
        checkpoint=checkpoint,
    )


def _decode_output(row: Row) -> AttemptOutput:
    excerpt = OutputExcerpt(size=row[4], tail_offset=row[5], text=row[6])
    return AttemptOutput(run_id=row[0], fence=row[1], number=row[2], at=from_micros(row[3]), excerpt=excerpt)


# The statement of a row and its values.
_WRITES: dict[Any, Callable[[Any], tuple[str, Row]]] = {
    AttemptOutput: _write_output,
    RunProgress: _write_progress,
    Artifact: lambda row: ("add_artifacts", struct_row(row)),
    ExternalId: lambda row: ("put_external_ids", struct_row(row)),
    FollowUp: _write_follow_up,
    DependencyWait: lambda row: ("insert_dependency_waits", struct_row(row)),
}

# The first column is the run.
_READS: dict[Any, tuple[str, Callable[[Row], Any]]] = {
    Attempt: ("get_attempts", read_attempt),
    AttemptOutput: ("get_attempt_output", _decode_output),
    RunProgress: ("get_run_progress", _decode_progress),
    Artifact: ("artifacts_of_runs", struct_reader(Artifact)),
    ExternalId: ("external_ids_of_runs", struct_reader(ExternalId)),
    Charge: ("get_charges", struct_reader(Charge)),
}
