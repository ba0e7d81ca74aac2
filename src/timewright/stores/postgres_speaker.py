"""How statements of the book are spoken to PostgreSQL: many rows as arrays, spelled by hand.

Rows come back through the driver's loaders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from timewright.ports import Clock, Turn
from timewright.stores.postgres_connection import Connection, Spoken
from timewright.stores.revisions import Revisions
from timewright.stores.rows import Row
from timewright.stores.statements import Statement

# Pictures that begin with these are taken in every tick: to plan one takes ten times as long as to look.
LOOKS = frozenset({"outlook", "asked_to_stop"})

# They wait for the next statement and go with it: nobody listens to their answers, and no verb promises that
# somebody else waits as soon as they are said.
RIDERS = frozenset(
    {
        "lock_schedules",
        "lock_runs",
        "insert_schedules",
        "insert_revisions",
        "insert_new_runs",
        "stand",
        "advance",
        "move_on",
        "insert_holds",
        "delete_holds",
        "insert_attempts",
        "hold_meta",
        "put_meta",
        "insert_audit",
    }
)
_PLACE = re.compile(r"%(?:\((\w+)\))?s")


def numbered(book: Mapping[str, Statement]) -> dict[str, Spoken]:
    """Every statement of the book as the server reads it, with the short forms of some."""
    short = {f"{name}_alike": one.alike for name, one in book.items() if one.alike}
    whole = {name: _numbered(statement) for name, statement in book.items()}
    return whole | {name: _numbered(Statement(name, sql)) for name, sql in short.items()}


class PostgresSpeaker:
    """Runs statements of the book on one connection, in a transaction that was begun."""

    is_far = True

    def __init__(
        self,
        connection: Connection,
        book: Mapping[str, Spoken],
        revisions: Revisions | None = None,
        *,
        prepares: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.revisions = revisions or Revisions()
        self.drafting = False
        self._connection = connection
        self._book = book
        self._prepares = prepares
        self._clock = clock
        self._loads = Transformer(connection)

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement."""
        spoken = self._book[name]
        given = (parameters[name] for name in spoken.names)
        values = [texts(value) if isinstance(value, list) else value for value in given]
        return self._rows(self._speak(spoken, values))

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows: each column travels as one array."""
        return self._rows(self._tell(name, tuple(zip(*rows, strict=True)))) if rows else []

    def keep(self, name: str, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Run one statement for many rows that come as columns; where all are kept, no answer is read."""
        answer = self._tell(name, columns)
        if answer is None or not answer.nfields or answer.ntuples == len(columns[0]):
            return columns[0]
        return [row[0] for row in self._rows(answer)]

    def _tell(self, name: str, columns: Sequence[Sequence[Any]]) -> PGresult | None:
        spoken = self._book[name]
        if spoken.alike and _is_alike(columns, spoken.varying):
            short = self._book[spoken.alike]
            return self._speak(short, _said_once(spoken, columns, order=map(int, short.names)))
        pairs = zip(spoken.kinds, columns, strict=True)
        return self._speak(spoken, [texts(c) if kind == "text" else numbers(c) for kind, c in pairs])

    def take_turn(self, *, patience: timedelta) -> Turn:
        """Wait for those before us, and not for ever: whoever has the turn may have been stopped in it."""
        had, at = self._connection.take_turn(patience=patience)
        return Turn(had=had, at=at if self._clock is None else self._clock.now())

    def now(self) -> datetime:
        """The server's clock; an injected one replaces it in tests and simulation."""
        if self._clock is None:
            return self._connection.now()
        self._connection.send_riders()
        return self._clock.now()

    def make_ready(self) -> None:
        """Send what still waits for a journey: the commit goes alone."""
        self._connection.send_riders()

    def _speak(self, spoken: Spoken, values: Sequence[str | int | None]) -> PGresult | None:
        return self._connection.ask(spoken, values, prepares=self._prepares)

    def _rows(self, result: PGresult | None) -> list[Row]:
        if result is None or not result.ntuples:
            return []
        self._loads.set_pgresult(result)
        return self._loads.load_rows(0, result.ntuples, tuple)


class PostgresOnlooker(PostgresSpeaker):
    """Only looks; the picture begins with the first question, which says how it is taken.

    Most questions are not prepared: their plans depend on what is asked for. A look is a picture by itself.
    """

    has_begun = False

    def _speak(self, spoken: Spoken, values: Sequence[str | int | None]) -> PGresult | None:
        is_look = spoken.name in LOOKS
        if not self.has_begun and not (is_look and self._connection.is_ours):
            self._connection.begin_read(looks=is_look)
            self.has_begun = True
            self._prepares = self._prepares and is_look
        return super()._speak(spoken, values)


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


def _is_alike(columns: Sequence[Sequence[Any]], varying: tuple[int, ...]) -> bool:
    """Whether rows differ in those columns alone."""
    many = len(columns[0])
    return all(place in varying or column.count(column[0]) == many for place, column in enumerate(columns))


def _said_once(
    spoken: Spoken, columns: Sequence[Sequence[Any]], *, order: Iterable[int]
) -> list[str | int | None]:
    """What the short form is given: what differs as arrays, and once what does not."""
    given: list[str | int | None] = []
    for place in order:
        column = columns[place]
        if place in spoken.varying:
            given.append(texts(column) if spoken.kinds[place] == "text" else numbers(column))
        else:
            given.append(None if column[0] is None else str(column[0]))
    return given


def _numbered(statement: Statement) -> Spoken:
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        name = found[1] or str(len(names))
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    sql = _PLACE.sub(place, statement.sql)
    alike = f"{statement.name}_alike" if statement.alike else ""
    is_silent = statement.name.removesuffix("_alike") in RIDERS
    return Spoken(statement.name, sql, tuple(names), statement.kinds, statement.varying, alike, is_silent)
