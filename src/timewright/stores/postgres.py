"""How PostgreSQL opens, begins, waits and commits: many instances, the server's clock, no session state."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from timewright.core.jitter import share
from timewright.errors import (
    Conflict,
    ForeignStore,
    MissingExtra,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TimewrightError,
    UnsafeStore,
)
from timewright.ports import Clock
from timewright.stores.hearing import ServerEar
from timewright.stores.migrate import migrations, pending
from timewright.stores.revisions import Revisions
from timewright.stores.sqlstore import SqlTransaction
from timewright.stores.statements import POSTGRES, load_book

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import make_conninfo
    from psycopg_pool import ConnectionPool, PoolTimeout

    from timewright.stores.postgres_connection import Connection
    from timewright.stores.postgres_speaker import PostgresOnlooker, PostgresSpeaker, numbered
except ImportError as missing:
    raise MissingExtra(
        "PostgreSQL support is not installed",
        rule="PostgreSQL needs psycopg 3",
        fix='pip install "timewright[postgres]"',
    ) from missing

T = TypeVar("T")

OLDEST_SERVER = 130_000
MOST_TRIES = 8
PATIENCE = 10.0
MIGRATION_LOCK = 0x54575254
CHANNEL = "timewright"

_FORGOTTEN = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_AGAIN = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, *_FORGOTTEN)


class PostgresStore:
    """A store on a PostgreSQL server, shared by any number of instances."""

    def __init__(self, url: str, *, clock: Clock | None = None, pool: int = 8) -> None:
        self.place = str(psycopg.conninfo.conninfo_to_dict(url).get("dbname") or "postgresql")
        self._clock = clock
        self._book = numbered(load_book(POSTGRES))
        self._revisions = Revisions()
        self._prepares = True
        self._pause = threading.Event()
        self._name = os.urandom(8).hex()
        self._conninfo = conninfo = _with_time_outs(url)
        with self._translated():
            self._pool = ConnectionPool(
                conninfo,
                connection_class=Connection,
                min_size=1,
                max_size=pool,
                open=False,
                timeout=PATIENCE,
                # As long as anybody waits; after that whoever asks next begins anew, without a grown pause.
                reconnect_timeout=PATIENCE,
                kwargs={"autocommit": True},
                configure=_move_in_if_ours,
            )
            self._pool.open(wait=True, timeout=PATIENCE)
            try:
                self._prepare()
            except BaseException:
                self._pool.close()
                raise

    def now(self) -> datetime:
        """The server's clock; an injected one replaces it in tests and simulation."""
        if self._clock is not None:
            return self._clock.now()
        with self._translated(), self._pool.connection() as connection:
            return connection.now()

    def write(self, work: Callable[[Any], T]) -> T:
        """Run `work` in one durable transaction; again from the start after a deadlock or lock time-out."""
        for attempt in range(1, MOST_TRIES + 1):
            try:
                with self._translated():
                    return self._transact(work)
            except _AGAIN as error:
                self._prepares = self._prepares and not isinstance(error, _FORGOTTEN)
                if attempt == MOST_TRIES:
                    raise StoreUnavailable(
                        f"{self.place}: {type(error).__name__} {MOST_TRIES} times in a row",
                        rule="another transaction holds what this one needs",
                        fix="try again; look for a long transaction in pg_stat_activity",
                    ) from error
                self._pause.wait(0.005 * 2**attempt * (0.5 + share(str(id(work)), str(attempt))))
        raise AssertionError("unreachable")

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` over one consistent picture of the store."""
        try:
            return self._picture(work)
        except _FORGOTTEN:
            self._prepares = False
            return self._picture(work)

    def notify(self) -> None:
        """Wake other instances; it may be lost, and nothing depends on it."""
        with suppress(TimewrightError), self._translated(), self._pool.connection() as connection:
            # The call says nothing that could be lost, so it does not wait for the disk.
            words = f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}, '{self._name}'; COMMIT"
            connection.say(words.encode())

    def ear(self) -> ServerEar:
        """What hears when another instance has written."""
        conninfo = self._conninfo
        return ServerEar(lambda: psycopg.connect(conninfo, autocommit=True), channel=CHANNEL, own=self._name)

    def close(self) -> None:
        """Give back every connection."""
        self._pool.close()

    def _picture(self, work: Callable[[Any], T]) -> T:
        with self._translated(), self._pool.connection() as connection:
            onlooker = PostgresOnlooker(
                connection, self._book, self._revisions, prepares=self._prepares, clock=self._clock
            )
            try:
                return work(SqlTransaction(onlooker))
            finally:
                if onlooker.has_begun:
                    _roll_back(connection)

    def _transact(self, work: Callable[[Any], T]) -> T:
        with self._pool.connection() as connection:
            connection.begin_write()
            try:
                speaker = PostgresSpeaker(
                    connection, self._book, self._revisions, prepares=self._prepares, clock=self._clock
                )
                answer = work(SqlTransaction(speaker))
            except BaseException:
                _roll_back(connection)
                raise
            try:
                connection.commit_all()
            except psycopg.Error as error:
                if connection.is_undone:
                    _roll_back(connection)
                    raise
                if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                    raise
                raise OutcomeUnknown(
                    f"{self.place}: the connection broke at commit: {error}",
                    rule="nobody knows whether the transaction happened",
                    fix="read by key or fence before trying again",
                ) from error
            return answer

    def _prepare(self) -> None:
        with self._pool.connection() as connection:
            version = connection.info.server_version
            if version < OLDEST_SERVER:
                raise UnsafeStore(
                    f"PostgreSQL {version // 10_000} is too old",
                    field="store",
                    value=version,
                    rule="PostgreSQL 13 or later",
                    fix="upgrade the server",
                )
            for setting in ("fsync", "full_page_writes"):
                row = connection.execute(f"SHOW {setting}").fetchone()
                if row is not None and row[0] != "on" and not _is_for_tests(connection):
                    raise UnsafeStore(
                        f"the server runs with {setting} = {row[0]}",
                        field=setting,
                        value=row[0],
                        rule="on: otherwise a crash loses acknowledged commits",
                        fix=f"set {setting} = on in postgresql.conf",
                    )
            self._migrate(connection)

    def _migrate(self, connection: Connection) -> None:
        # It waits for whoever migrates, and takes as long as it takes.
        connection.execute("BEGIN; SET LOCAL statement_timeout TO DEFAULT")
        try:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
            )
            applied = connection.execute("SELECT number, checksum FROM migrations ORDER BY number").fetchall()
            for step in pending(migrations("postgres"), applied, place=self.place):
                for statement in step.statements:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO migrations VALUES (%s, %s, %s)", (step.number, step.name, step.checksum)
                )
            connection.execute("COMMIT")
        except (pg.UndefinedColumn, pg.DuplicateObject, pg.DuplicateTable) as error:
            _roll_back(connection)
            raise ForeignStore(
                f"{self.place} holds tables of another application: {error}",
                field="store",
                value=self.place,
                rule="a database of its own, or a schema that comes first in the search path",
                fix="createdb timewright, or add ?options=-csearch_path%3Dtimewright to the URL",
            ) from error
        except BaseException:
            _roll_back(connection)
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """PostgreSQL's errors in our words; those that ask for another try pass through."""
        try:
            yield
        except (TimewrightError, *_AGAIN):
            raise
        except pg.UniqueViolation as error:
            raise Conflict(f"{self.place}: {error}", rule="names and occurrences are unique") from error
        except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as error:
            raise StoreReadOnly(
                f"{self.place} does not take writes: {error}", fix="connect to the primary"
            ) from error
        except (pg.DiskFull, pg.OutOfMemory) as error:
            raise StoreFull(f"{self.place}: no room left: {error}", fix="free space on the server") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise StoreUnavailable(
                f"{self.place} is away: {str(error).strip()}",
                rule="a reachable server",
                fix="it is tried again by itself",
            ) from error
        except psycopg.Error as error:
            raise StoreError(f"{self.place}: {type(error).__name__}: {error}") from error


def _with_time_outs(url: str) -> str:
    """Socket-level time-outs: without them a cut network blocks a client for minutes."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    wanted = {
        "connect_timeout": "5",
        "tcp_user_timeout": "10000",
        "keepalives": "1",
        "keepalives_idle": "5",
        "keepalives_interval": "2",
        "keepalives_count": "3",
        "application_name": "timewright",
    }
    return make_conninfo(url, **{name: value for name, value in wanted.items() if name not in given})


def _move_in_if_ours(connection: Connection) -> None:
    _prepare_if_ours(connection)
    if connection.prepare_threshold is not None:
        connection.move_in()


def _prepare_if_ours(connection: psycopg.Connection[Any]) -> None:
    """Prepared statements are session state; behind a pooler the session may be another's at any moment.

    A pooler names a process of its own at the start, which is not the one that works for us.
    """
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        connection.prepare_threshold = None


def _is_for_tests(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SHOW cluster_name").fetchone()
    return row is not None and row[0] == "timewright-test"


def _roll_back(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.undo_all()
