"""How statements of the book are spoken to PostgreSQL: many rows as arrays, spelled by hand.

The driver's own way to spell a list takes twice the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

from timewright.stores.revisions import Revisions
from timewright.stores.rows import Row
from timewright.stores.statements import Statement


class PostgresSpeaker:
    """Runs statements of the book on one connection; those that only read are not prepared."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        book: Mapping[str, Statement],
        revisions: Revisions | None = None,
        *,
        prepares: bool = False,
    ) -> None:
        self.revisions = revisions or Revisions()
        self.drafting = False
        self._connection = connection
        self._book = book
        self._prepare = None if prepares else False

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement."""
        bound = {k: texts(v) if isinstance(v, list) else v for k, v in parameters.items()}
        return self._speak(self._book[name].sql, bound)

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows: each column travels as one array."""
        if not rows:
            return []
        statement = self._book[name]
        columns = zip(statement.kinds, zip(*rows, strict=True), strict=True)
        arrays = [texts(column) if kind == "text" else numbers(column) for kind, column in columns]
        return self._speak(statement.sql, arrays)

    def _speak(self, sql: str, parameters: Mapping[str, Any] | Sequence[str]) -> list[Row]:
        cursor = self._connection.execute(sql, parameters, prepare=self._prepare)
        return cursor.fetchall() if cursor.description is not None else []


def numbers(column: Iterable[int | None]) -> str:
    """An array of numbers, some of which may be missing."""
    return f"{{{','.join(map(str, column)).replace('None', 'NULL')}}}"


def texts(column: Sequence[str]) -> str:
    """An array of texts."""
    if not column:
        return "{}"
    spelled = '","'.join(column)
    if "\\" in spelled or spelled.count('"') != 2 * len(column) - 2:
        spelled = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in column])
    return f'{{"{spelled}"}}'
