"""What attempts say while they run, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timewright.core.moments import from_micros, micros
from timewright.ports.said import Said, Spoken
from timewright.stores.rows import Row, clean
from timewright.stores.verbs import Verbs


class SqlSaidVerbs(Verbs):
    """The verbs of `ports.said.SaidVerbs`."""

    def put_said(self, rows: Sequence[Said]) -> None:
        """Write what attempts have said so far, in place of what they had said before."""
        if rows:
            self._tell("put_said", [_row(one) for one in rows])

    def get_said(self, run_ids: Iterable[str]) -> dict[str, tuple[Said, ...]]:
        """What the attempts of runs have said, oldest first."""
        found: dict[str, list[Said]] = {}
        for row in self._ask("get_said", {"ids": list(run_ids)}):
            found.setdefault(row[0], []).append(_said(row))
        return {run_id: tuple(said) for run_id, said in found.items()}

    def drop_said(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Forget what attempts have said, each by its run and fence: their ends tell it."""
        if attempts:
            self._tell("drop_said", list(attempts))


def _row(one: Said) -> Row:
    words = one.spoken
    return (one.run_id, one.fence, one.number, micros(one.at), words.size, words.cut, clean(words.text))


def _said(row: Row) -> Said:
    spoken = Spoken(size=row[4], cut=row[5], text=row[6])
    return Said(run_id=row[0], fence=row[1], number=row[2], at=from_micros(row[3]), spoken=spoken)
