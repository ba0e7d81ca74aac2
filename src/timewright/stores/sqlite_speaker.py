"""How statements of the book are spoken to SQLite: row by row, in one process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from timewright.ports import Turn
from timewright.stores.revisions import Revisions
from timewright.stores.rows import Row
from timewright.stores.sqlite_together import FEW, differing, together
from timewright.stores.statements import SQLITE, Statement, load_book

_write_json = msgspec.json.Encoder().encode
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b")
_OF_LIST = re.compile(r"IN \(SELECT value FROM json_each\((:\w+)\)\)")


class SqliteSpeaker:
    """Runs statements of the book on one connection."""

    is_far = False

    def __init__(
        self,
        connection: apsw.Connection,
        revisions: Revisions | None = None,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self.connection = connection
        self.now = now
        self.revisions = revisions or Revisions()
        self.drafting = False
        self.flush: Callable[[], None] | None = None
        self._book = dict(_terse_book())

    def make_ready(self) -> None:
        """Bring what is written to the disk, uncommitted: the commit has one page left to add."""
        if self.flush is not None:
            self.flush()

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement."""
        if list in map(type, parameters.values()):
            return self._ask_of_lists(self._book[name].sql, parameters)
        return list(self.connection.execute(self._book[name].sql, parameters))

    def _ask_of_lists(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """A list of one, as most are, is asked for as the value it holds."""
        for value in parameters.values():
            if type(value) is list and len(value) != 1:
                return self._ask_in_json(sql, parameters)
        alone = {k: v[0] if type(v) is list else v for k, v in parameters.items()}
        try:
            return list(self.connection.execute(_of_one(sql), alone))
        except UnicodeEncodeError:
            # Half a character cannot be bound; in JSON it is found nowhere.
            return self._ask_in_json(sql, parameters)

    def _ask_in_json(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        listed = {k: _listed(v) if type(v) is list else v for k, v in parameters.items()}
        return list(self.connection.execute(sql, listed))

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows."""
        statement = self._book[name]
        if len(rows) == 1:
            return self._told_one(statement, rows)
        told = self._together(statement, rows) if statement.varying and len(rows) >= FEW else None
        if told is not None:
            return told
        if statement.kept:
            return self._kept(statement.sql, rows)
        return list(self.connection.executemany(statement.sql, rows))

    def keep(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows that come as columns; all of them, where it keeps no account."""
        kept = self.tell(name, list(zip(*columns, strict=True)))
        is_all = not self._book[name].kept or len(kept) == len(columns[0])
        return columns[0] if is_all else [row[0] for row in kept]

    def take_turn(self, *, patience: timedelta) -> Turn:
        """Whoever writes to a file is alone with it."""
        return Turn(had=True, at=self.now())

    def _told_one(self, statement: Statement, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for one row: to go through many costs more than the statement does."""
        connection = self.connection
        if not statement.kept:
            return list(connection.execute(statement.sql, rows[0]))
        before = connection.total_changes()
        connection.execute(statement.sql, rows[0])
        return list(rows) if connection.total_changes() != before else []

    def _together(self, statement: Statement, rows: Sequence[Row]) -> list[Row] | None:
        """Run one statement for all rows that differ in little; nothing where they differ too much."""
        one = together(statement.sql, differing(rows, statement.varying))
        batches = one.batches(rows)
        if batches is None:
            return None
        execute, total_changes = self.connection.execute, self.connection.total_changes
        before = total_changes()
        found = [row for batch in batches for row in execute(one.sql, batch)]
        if not statement.kept:
            return found
        if total_changes() - before == len(rows):
            return list(rows)
        return self.tell(f"{statement.name}_kept", rows)

    def _kept(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Every row that took effect; each is counted before the next one is asked for."""
        total_changes = self.connection.total_changes
        kept: list[Row] = []

        def counted() -> Iterator[Row]:
            before = total_changes()
            for row in rows:
                yield row
                after = total_changes()
                if after != before:
                    kept.append(row)
                    before = after

        self.connection.executemany(sql, counted())
        return kept


class Onlooker(SqliteSpeaker):
    """Only looks, on the one connection that a store in memory has.

    SQLite could forbid the connection to write for a while, at the price of every plan it has made.
    """

    def __init__(
        self, connection: apsw.Connection, revisions: Revisions, *, now: Callable[[], datetime]
    ) -> None:
        super().__init__(connection, revisions, now=now)
        self._book = _Looks({n: one for n, one in self._book.items() if not _WRITES.search(one.sql)})


class _Looks(dict[str, Statement]):
    """The statements that only look."""

    def __missing__(self, name: str) -> Statement:
        raise apsw.ReadOnlyError(f"{name} writes, and this is a picture of the store")


@cache
def _terse_book() -> dict[str, Statement]:
    """The book without its layout: to find a plan, the driver goes through all of a statement's text."""
    return {
        name: one if one.kinds else replace(one, sql=" ".join(map(str.strip, one.sql.splitlines())))
        for name, one in load_book(SQLITE).items()
    }


@cache
def _of_one(sql: str) -> str:
    """The same statement for lists that hold one value."""
    return _OF_LIST.sub(r"= \1", sql)


def _listed(values: list[Any]) -> str:
    """A list as JSON; half a character, which only the slower way can write, is found nowhere."""
    try:
        return _write_json(values).decode()
    except UnicodeEncodeError:
        return json.dumps(values)
