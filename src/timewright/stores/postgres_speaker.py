"""How statements of the book are spoken to PostgreSQL: many rows as arrays, spelled by hand.

Statements go to the server past the driver's cursors, and rows come back through its loaders: for a
statement that is answered in no time, a cursor takes longer than the server does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import psycopg
from msgspec import Struct
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from timewright.core.moments import from_micros
from timewright.ports import Clock
from timewright.stores.revisions import Revisions
from timewright.stores.rows import Row
from timewright.stores.statements import Statement

# A statement that was spoken so often is prepared.
OFTEN = 5
# Pictures that begin with these are taken in every tick: to plan one takes ten times as long as to look.
LOOKS = frozenset({"outlook", "asked_to_stop"})

_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'"
# As in a write: a prepared plan may be older than its tables are large, and is not made again for each value.
_BEGIN_LOOK = (
    _BEGIN_READ + b"; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;"
    b" SET LOCAL plan_cache_mode = force_generic_plan"
)

_BIGINT, _ANY = 20, 0
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# The server's clock in microseconds, without a detour through a float.
_NOW = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_PLACE = re.compile(r"%(?:\((\w+)\))?s")


class Connection(psycopg.Connection[Any]):
    """A connection that knows what was said on it, how often, and under which name it was prepared."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.said: dict[tuple[str, tuple[int, ...]], int] = {}

    def say(self, words: bytes) -> None:
        """Run words that ask for nothing and are given nothing: begin, commit, roll back."""
        self._checked(self.pgconn.exec_(words))

    def number(self, words: bytes) -> int:
        """Ask for one number."""
        return int(self._checked(self.pgconn.exec_(words)).get_value(0, 0) or 0)

    def now(self) -> datetime:
        """What the server's clock shows."""
        return from_micros(self.number(_NOW))

    def ask(self, spoken: Spoken, values: Sequence[str | int | None], *, prepares: bool) -> PGresult:
        """Run one statement; one that is spoken often is prepared, if it may be."""
        encoding, types = self.info.encoding, tuple(map(_type, values))
        sent = [_sent(value, encoding) for value in values]
        if not prepares or self.prepare_threshold is None:
            return self._checked(self.pgconn.exec_params(spoken.sql.encode(), sent, types))
        key = (spoken.name, types)
        said = self.said[key] = self.said.get(key, 0) + 1
        if said < OFTEN:
            return self._checked(self.pgconn.exec_params(spoken.sql.encode(), sent, types))
        name = f"{spoken.name}_{'_'.join(map(str, types))}".encode()
        if said == OFTEN:
            self._checked(self.pgconn.prepare(name, spoken.sql.encode(), types))
        # What is missing travels as nothing, which the driver knows and its types do not.
        return self._checked(self.pgconn.exec_prepared(name, cast("list[bytes]", sent)))

    def _checked(self, result: PGresult) -> PGresult:
        if result.status in _DONE:
            return result
        if self.pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError(self.pgconn.get_error_message(self.info.encoding))
        raise error_from_result(result, encoding=self.info.encoding)


class Spoken(Struct, frozen=True):
    """A statement with its places numbered, as the server reads it."""

    name: str
    sql: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


def numbered(book: Mapping[str, Statement]) -> dict[str, Spoken]:
    """Every statement of the book as the server reads it."""
    return {name: _numbered(statement) for name, statement in book.items()}


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
        return self._speak(spoken, [texts(value) if isinstance(value, list) else value for value in given])

    def tell(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run one statement for many rows: each column travels as one array."""
        if not rows:
            return []
        spoken = self._book[name]
        columns = zip(spoken.kinds, zip(*rows, strict=True), strict=True)
        return self._speak(spoken, [texts(c) if kind == "text" else numbers(c) for kind, c in columns])

    def now(self) -> datetime:
        """The server's clock; an injected one replaces it in tests and simulation."""
        return self._clock.now() if self._clock is not None else self._connection.now()

    def _speak(self, spoken: Spoken, values: Sequence[str | int | None]) -> list[Row]:
        result = self._connection.ask(spoken, values, prepares=self._prepares)
        if not result.ntuples:
            return []
        self._loads.set_pgresult(result)
        return self._loads.load_rows(0, result.ntuples, tuple)


class PostgresOnlooker(PostgresSpeaker):
    """Only looks; the picture begins with the first question, which says how it is taken.

    Most questions are not prepared: their plans depend on what is asked for.
    """

    has_begun = False

    def _speak(self, spoken: Spoken, values: Sequence[str | int | None]) -> list[Row]:
        if not self.has_begun:
            is_look = spoken.name in LOOKS
            self._connection.say(_BEGIN_LOOK if is_look else _BEGIN_READ)
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


def _numbered(statement: Statement) -> Spoken:
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        name = found[1] or str(len(names))
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    sql = _PLACE.sub(place, statement.sql)
    return Spoken(statement.name, sql, tuple(names), statement.kinds)


def _sent(value: str | int | None, encoding: str) -> bytes | None:
    if value is None:
        return None
    sent = str(value).encode(encoding)
    if b"\0" in sent:
        raise psycopg.DataError("a text with NUL in it would be cut short there")
    return sent


def _type(value: str | int | None) -> int:
    return _BIGINT if isinstance(value, int) else _ANY
