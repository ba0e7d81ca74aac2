"""Queries for the output of running attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timewright.core.moments import from_micros, to_micros
from timewright.ports.attempt_output import AttemptOutput, OutputExcerpt
from timewright.stores.queries.base import SqlQueries
from timewright.stores.rows import Row, storable_text


class SqlOutputQueries(SqlQueries):
    """The attempt output of `ports.runs.RunQueries`."""

    def put_attempt_output(self, rows: Sequence[AttemptOutput]) -> None:
        """Write the output of attempts so far, replacing what was written before."""
        if rows:
            self._execute_many("put_attempt_output", [_output_row(output) for output in rows])

    def get_attempt_output(self, run_ids: Iterable[str]) -> dict[str, tuple[AttemptOutput, ...]]:
        """Return the output of the attempts of runs, oldest first."""
        found: dict[str, list[AttemptOutput]] = {}
        for row in self._query("get_attempt_output", {"ids": list(run_ids)}):
            found.setdefault(row[0], []).append(_decode_output(row))
        return {run_id: tuple(outputs) for run_id, outputs in found.items()}

    def delete_attempt_output(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Delete the output of attempts by run and fence; the ended attempt keeps it."""
        if attempts:
            self._execute_many("delete_attempt_output", list(attempts))


def _output_row(output: AttemptOutput) -> Row:
    excerpt = output.excerpt
    return (
        output.run_id,
        output.fence,
        output.number,
        to_micros(output.at),
        excerpt.size,
        excerpt.tail_offset,
        storable_text(excerpt.text),
    )


def _decode_output(row: Row) -> AttemptOutput:
    excerpt = OutputExcerpt(size=row[4], tail_offset=row[5], text=row[6])
    return AttemptOutput(run_id=row[0], fence=row[1], number=row[2], at=from_micros(row[3]), excerpt=excerpt)
