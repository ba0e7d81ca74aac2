"""How statements of the book are spoken to SQLite: row by row, in one process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from timewright.stores.revisions import Revisions
from timewright.stores.rows import Row
from timewright.stores.statements import SQLITE, load_book

_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b")


class SqliteSpeaker:
    """Runs statements of the book on one connection."""

    def __init__(self, connection: apsw.Connection, revisions: Revisions | None = None) -> None:
        self.connection = connection
        self.revisions = revisions or Revisions()
        self.drafting = False
        self._book = load_book(SQLITE)

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement; lists are handed over as JSON."""
        bound = {k: json.dumps(v) if isinstance(v, list) else v for k, v in parameters.items()}
        return list(self.connection.execute(self._book[name].sql, bound))

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows."""
        statement = self._book[name]
        if statement.kept:
            return self._kept(statement.sql, rows)
        return list(self.connection.executemany(statement.sql, rows))

    def _kept(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """The first column of every row that took effect."""
        execute, total_changes = self.connection.cursor().execute, self.connection.total_changes
        kept: list[Row] = []
        before = total_changes()
        for row in rows:
            execute(sql, row)
            after = total_changes()
            if after != before:
                kept.append(row[:1])
                before = after
        return kept


class Onlooker(SqliteSpeaker):
    """Only looks, on the one connection that a store in memory has.

    SQLite could forbid the connection to write for a while, at the price of every plan it has made.
    """

    def __init__(self, connection: apsw.Connection, revisions: Revisions | None = None) -> None:
        super().__init__(connection, revisions)
        self._forbidden = {name for name, statement in self._book.items() if _WRITES.search(statement.sql)}

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement that only looks."""
        self._check(name)
        return super().ask(name, parameters)

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement that only looks, for many rows."""
        self._check(name)
        return super().tell(name, rows)

    def _check(self, name: str) -> None:
        if name in self._forbidden:
            raise apsw.ReadOnlyError(f"{name} writes, and this is a picture of the store")
