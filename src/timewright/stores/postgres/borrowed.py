"""A store inside a transaction of the user's own connection: it never begins, commits or retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from msgspec import Struct
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from timewright.errors import NotAllowed, StoreReadOnly, TimewrightError
from timewright.ports import Clock
from timewright.stores.migrate import load_migrations, pending_migrations
from timewright.stores.postgres.connection import PreparedStatement, RawConnection
from timewright.stores.postgres.executor import PostgresExecutor
from timewright.stores.transaction import SqlTransaction

T = TypeVar("T")

# The server, the database and the schema that a connection reaches.
PLACE_SQL = b"""SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || current_database(),
 coalesce(quote_ident(current_schema()), '')"""


class StorePlace(Struct, frozen=True):
    """Where a store is: server and database as one text, and its schema, quoted."""

    database: str
    schema: str


class BorrowedStore:
    """Reads and writes over a connection that the caller has begun a transaction on.

    Everything is inside a savepoint: what is refused leaves nothing and does not end the transaction.
    """

    def __init__(
        self,
        pgconn: PGconn,
        place: StorePlace,
        statements: Mapping[str, PreparedStatement],
        *,
        channel: str,
        clock: Clock | None,
    ) -> None:
        self._raw = RawConnection(pgconn)
        self._place = place
        self._statements = statements
        self._channel = channel
        self._clock = clock
        self.check()

    def check(self) -> None:
        """Refuse a connection without a transaction, or to another database or schema version."""
        if self._raw.pgconn.transaction_status == TransactionStatus.INERROR:
            raise NotAllowed(
                "the transaction has failed",
                field="connection",
                rule="a statement before this one had an error, so nothing can be added or committed",
                fix="roll it back, and begin again",
            )
        if self._raw.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise NotAllowed(
                "the connection has no open transaction",
                field="connection",
                rule="what is added becomes true with your commit",
                fix="begin one first: with connection.transaction():, session.begin(), transaction.atomic()",
            )
        if self._raw.pgconn.parameter_status(b"client_encoding") != b"UTF8":
            raise NotAllowed(
                "the connection does not use UTF-8",
                field="connection",
                rule="texts are stored as UTF-8",
                fix="connect with client_encoding=utf8",
            )
        found = self._raw.texts(PLACE_SQL)[0][0]
        if found != self._place.database:
            own, other = (text.rpartition("/")[2] for text in (self._place.database, found))
            raise NotAllowed(
                "the connection reaches another database than the store",
                field="connection",
                value=other,
                rule=f"the store is in {own}, and one transaction cannot span two databases",
                fix="keep the store in a schema of your own database: "
                "Scheduler('postgresql://…/yours?options=-csearch_path%3Dtimewright')",
            )
        if self._savepoint(self._pending_migrations):
            raise NotAllowed(
                "the store has an older schema than this program",
                field="connection",
                rule="the schema versions must be the same",
                fix="timewright migrate",
            )

    def _pending_migrations(self) -> bool:
        rows = self._raw.texts(b"SELECT number, checksum FROM migrations ORDER BY number")
        applied = [(int(number), checksum) for number, checksum in rows]
        return bool(pending_migrations(load_migrations("postgres"), applied, path=self._place.database))

    def now(self) -> datetime:
        """Return the server's clock."""
        return self._clock.now() if self._clock is not None else self._raw.now()

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` over what the transaction sees."""
        return self._savepoint(lambda: work(self._transaction()))

    def write(self, work: Callable[[Any], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` as a part of the transaction; engines are notified when it commits."""

        def write() -> T:
            answer = work(self._transaction())
            self._raw.run(f"NOTIFY {self._channel}, 'inside'".encode())
            return answer

        return self._savepoint(write)

    def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""

    def _transaction(self) -> SqlTransaction:
        return SqlTransaction(PostgresExecutor(self._raw, self._statements, clock=self._clock))

    def _savepoint(self, work: Callable[[], T]) -> T:
        self._raw.run(b"SAVEPOINT timewright")
        try:
            with self._in_schema(), _translated():
                answer = work()
        except BaseException:
            self._raw.run(b"ROLLBACK TO SAVEPOINT timewright")
            self._raw.run(b"RELEASE SAVEPOINT timewright")
            raise
        self._raw.run(b"RELEASE SAVEPOINT timewright")
        return answer

    @contextmanager
    def _in_schema(self) -> Iterator[None]:
        """Find our tables first; the search path is as before afterwards, also by a rollback."""
        before = self._raw.texts(b"SELECT current_setting('search_path')")[0][0]
        self._set_path(self._place.schema)
        yield
        self._set_path(before)

    def _set_path(self, path: str) -> None:
        self._raw.run(b"SELECT set_config('search_path', $1, true)", [path.encode()])


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TimewrightError:
        raise
    except pg.InsufficientPrivilege as error:
        raise StoreReadOnly(
            f"the role of your connection may not write the store: {error}",
            rule="it needs SELECT, INSERT, UPDATE and DELETE on the tables of the store",
            fix="GRANT ALL ON ALL TABLES IN SCHEMA … TO …, or connect with the role of the store",
        ) from error


def read_place(connection: psycopg.Connection[Any]) -> StorePlace:
    """Return where a connection of the store leads."""
    return StorePlace(*RawConnection(connection.pgconn).texts(PLACE_SQL)[0])
