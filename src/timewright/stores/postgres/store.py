"""The PostgreSQL store: connection pool, transactions with retries, and the server's clock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from timewright.clocks import SystemClock
from timewright.core.moments import from_micros, to_micros
from timewright.core.policies.backoff import hash_fraction
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
from timewright.ports.store import ClockDoubt, SessionLock
from timewright.stores.cache import RowCache
from timewright.stores.clock_guard import ClockGuard, CommitTimer
from timewright.stores.listeners import PostgresListener, is_pooled
from timewright.stores.migrate import load_migrations, pending_migrations
from timewright.stores.sqlite.file_safety import FROZEN
from timewright.stores.statements import POSTGRES, load_statements
from timewright.stores.transaction import SqlTransaction

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.pq.abc import PGconn
    from psycopg_pool import ConnectionPool, PoolTimeout

    from timewright.stores.postgres.borrowed import BorrowedStore, StorePlace, read_place
    from timewright.stores.postgres.connection import Connection, with_timeouts
    from timewright.stores.postgres.executor import PostgresExecutor, PostgresReadExecutor, number_parameters
except ImportError as missing:
    raise MissingExtra(
        "PostgreSQL support is not installed",
        rule="PostgreSQL needs psycopg 3",
        fix='pip install "timewright[postgres]"',
    ) from missing

T = TypeVar("T")

MIN_POSTGRES_VERSION = 130_000
MAX_TRIES = 8
POOL_TIMEOUT_S = 10.0
MIGRATION_LOCK = 0x54575254
# The class of the advisory locks that show which processes have a session; the second number is the process.
SESSION_LOCK_CLASS = 0x54575350
# The server must not end the session of a holder that is only cut off before its lease of 60 s has ended.
_SERVER_KEEPALIVE = "SET tcp_keepalives_idle = 120"
_HELD_SESSION_LOCKS = """
SELECT DISTINCT objid::bigint, extract(epoch FROM pg_postmaster_start_time())::text FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s::bigint AND objsubid = 2 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
CHANNEL = "timewright"
# The time that is used is recorded this often, so that a process that starts can judge the server's clock.
MARK_INTERVAL_S = 60.0
_CLOCK_RECORDS = """
SELECT value::bigint, EXISTS (SELECT 1 FROM pauses WHERE origin = 'clock' AND ended_at IS NULL)
FROM meta WHERE name = 'high_water'
"""

_LOST_PREPARED = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_RETRYABLE = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable, *_LOST_PREPARED)


class PostgresStore:
    """A store on a PostgreSQL server, shared by any number of instances."""

    def __init__(self, url: str, *, clock: Clock | None = None, pool: int = 8) -> None:
        self.database = str(psycopg.conninfo.conninfo_to_dict(url).get("dbname") or "postgresql")
        self._clock = clock
        self._commit_timer = CommitTimer(clock or SystemClock())
        self.lead_time = self._commit_timer.lead_time
        self.clock_guard = ClockGuard((clock or SystemClock()).monotonic)
        self._statements = number_parameters(load_statements(POSTGRES))
        self._cache = RowCache()
        self._prepares = True
        self._pause = threading.Event()
        self._place: StorePlace | None = None
        self._marked_at: float | None = None
        self._name = os.urandom(8).hex()
        self._lock_key = int.from_bytes(os.urandom(4), "big") >> 1
        self._conninfo = conninfo = with_timeouts(url)
        with self._translate_errors():
            self._pool = ConnectionPool(
                conninfo,
                connection_class=Connection,
                min_size=1,
                max_size=pool,
                open=False,
                timeout=POOL_TIMEOUT_S,
                # Like the pool timeout: the next caller then reconnects at once, without a longer backoff.
                reconnect_timeout=POOL_TIMEOUT_S,
                kwargs={"autocommit": True},
                configure=self._configure,
            )
            self._pool.open(wait=True, timeout=POOL_TIMEOUT_S)
            try:
                self._check_and_migrate()
            except BaseException:
                self._pool.close()
                raise

    def now(self) -> datetime:
        """Return the server's clock; tests and simulation inject another."""
        if self._clock is not None:
            now = self.clock_guard.check(self._clock.now())
        else:
            with self._translate_errors(), self._pool.connection() as connection:
                now = self.clock_guard.check(connection.now())
        if self.clock_guard.doubt is not None:
            self._adopt_accepted_clock()
        return now

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading of the server's clock that is not used because it cannot be right."""
        return self.clock_guard.doubt

    def accept_clock(self) -> None:
        """Use the server's clock as it is now, in every process."""
        reading = self._read_clock()
        self.write(lambda tx: tx.put_meta("clock_accepted", str(to_micros(reading))))
        self.clock_guard.accept(reading)

    def _adopt_accepted_clock(self) -> None:
        """Accept the reading in doubt if a person has accepted it, or another process uses such a time."""
        reading = self._read_clock()
        found = self.read(lambda tx: [tx.get_meta(name) for name in ("clock_accepted", "high_water")])
        trusted = [from_micros(int(value)) for value in found if value is not None]
        if any(abs(reading - instant) <= self.clock_guard.max_step for instant in trusted):
            self.clock_guard.accept(reading)

    def _save_mark(self, executor: PostgresExecutor) -> None:
        """Record the time that is used; in doubt, only if it is later than what another process recorded."""
        at = self._commit_timer.begin()
        if self._marked_at is None or at - self._marked_at >= MARK_INTERVAL_S:
            self._marked_at, now = at, executor.now()
            statement = "put_meta" if self.clock_guard.doubt is None else "raise_meta"
            executor.query(statement, {"name": "high_water", "value": str(to_micros(now))})

    def _read_clock(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        with self._translate_errors(), self._pool.connection() as connection:
            return connection.now()

    def write(self, work: Callable[[Any], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction; retries from the start after a deadlock or lock timeout.

        With `commit_at`, commit when the server's clock shows that instant.
        """
        for attempt in range(1, MAX_TRIES + 1):
            try:
                with self._translate_errors():
                    return self._transact(work, commit_at)
            except _RETRYABLE as error:
                self._prepares = self._prepares and not isinstance(error, _LOST_PREPARED)
                if attempt == MAX_TRIES:
                    raise StoreUnavailable(
                        f"{self.database}: {type(error).__name__} {MAX_TRIES} times in a row",
                        rule="another transaction holds a lock that this one needs",
                        fix="retry; look for a long transaction in pg_stat_activity",
                    ) from error
                self._pause.wait(0.005 * 2**attempt * (0.5 + hash_fraction(str(id(work)), str(attempt))))
        raise AssertionError("unreachable")

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        try:
            return self._read_snapshot(work)
        except _LOST_PREPARED:
            self._prepares = False
            return self._read_snapshot(work)

    def notify(self) -> None:
        """Notify other instances. A lost notification only delays them."""
        with suppress(TimewrightError), self._translate_errors(), self._pool.connection() as connection:
            # NOTIFY writes no data, so it need not wait for the disk.
            sql = f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}, '{self._name}'; COMMIT"
            connection.execute_raw(sql.encode())

    def borrow(self, pgconn: PGconn) -> BorrowedStore:
        """Return the store inside the open transaction of another connection to the same database."""
        with self._translate_errors():
            if self._place is None:
                with self._pool.connection() as connection:
                    self._place = read_place(connection)
            return BorrowedStore(pgconn, self._place, self._statements, channel=CHANNEL, clock=self._clock)

    def change_listener(self) -> PostgresListener:
        """Return a listener for writes by other instances."""
        conninfo = self._conninfo

        def connect() -> psycopg.Connection[Any]:
            connection = psycopg.connect(conninfo, autocommit=True)
            if not is_pooled(connection):
                # It lives as long as the process: while others see its lock, they leave our leases alone.
                connection.execute(self._lock_session_sql())
            return connection

        return PostgresListener(connect, channel=CHANNEL, own_id=self._name)

    def session_lock(self) -> SessionLock | None:
        """The lock of this process; None behind a pooler."""
        with self._translate_errors(), self._pool.connection() as connection:
            row = connection.execute("SELECT extract(epoch FROM pg_postmaster_start_time())::text").fetchone()
            if row is None or connection.prepare_threshold is None:
                return None
            return SessionLock(key=self._lock_key, server=row[0])

    def held_session_locks(self) -> frozenset[SessionLock]:
        """The locks of all processes that have a session on this database now."""
        with self._translate_errors(), self._pool.connection() as connection:
            rows = connection.execute(_HELD_SESSION_LOCKS, (SESSION_LOCK_CLASS,)).fetchall()
        return frozenset(SessionLock(key=key, server=server) for key, server in rows)

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _configure(self, connection: Connection) -> None:
        """Prepare a new connection; behind a pooler, which shares sessions, nothing is set for it."""
        if is_pooled(connection):
            connection.prepare_threshold = None
        else:
            connection.set_planner_settings()
            connection.execute_raw(self._lock_session_sql())

    def _lock_session_sql(self) -> bytes:
        lock = f"SELECT pg_advisory_lock_shared({SESSION_LOCK_CLASS}, {self._lock_key})"
        return f"{_SERVER_KEEPALIVE}; {lock}".encode()

    def _read_snapshot(self, work: Callable[[Any], T]) -> T:
        with self._translate_errors(), self._pool.connection() as connection:
            executor = PostgresReadExecutor(
                connection,
                self._statements,
                self._cache,
                prepares=self._prepares,
                clock=self._clock,
                guard=self.clock_guard,
            )
            try:
                return work(SqlTransaction(executor))
            finally:
                if executor.has_begun:
                    _roll_back(connection)

    def _transact(self, work: Callable[[Any], T], commit_at: datetime | None) -> T:
        began = self._commit_timer.begin()
        with self._pool.connection() as connection:
            connection.begin_write()
            try:
                executor = PostgresExecutor(
                    connection,
                    self._statements,
                    self._cache,
                    prepares=self._prepares,
                    clock=self._clock,
                    guard=self.clock_guard,
                )
                answer = work(SqlTransaction(executor))
                if commit_at is None and connection.has_statements:
                    # The last statement, so its row is locked only for the commit.
                    self._save_mark(executor)
                elif commit_at is not None:
                    connection.flush_pipeline()
                    self._commit_timer.wait(commit_at, began=began, read_clock=executor.now)
            except BaseException:
                _roll_back(connection)
                raise
            try:
                connection.commit_transaction()
            except psycopg.Error as error:
                if connection.has_failed:
                    _roll_back(connection)
                    raise
                if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                    raise
                raise OutcomeUnknown(
                    f"{self.database}: the connection broke at commit: {error}",
                    rule="it is unknown whether the transaction was committed",
                    fix="read by key or fence before retrying",
                ) from error
            return answer

    def _check_and_migrate(self) -> None:
        with self._pool.connection() as connection:
            version = connection.info.server_version
            if version < MIN_POSTGRES_VERSION:
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
                        rule="must be on; otherwise a crash loses acknowledged commits",
                        fix=f"set {setting} = on in postgresql.conf",
                    )
            self._migrate(connection)
            found = connection.execute(_CLOCK_RECORDS).fetchone()
            if found is not None:
                self.clock_guard.start(from_micros(found[0]), is_in_doubt=found[1])

    def _migrate(self, connection: Connection) -> None:
        # No statement timeout: another instance may be migrating.
        connection.execute("BEGIN; SET LOCAL statement_timeout TO DEFAULT")
        try:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
            )
            applied = connection.execute("SELECT number, checksum FROM migrations ORDER BY number").fetchall()
            for migration in pending_migrations(load_migrations("postgres"), applied, path=self.database):
                for statement in migration.statements:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO migrations VALUES (%s, %s, %s)",
                    (migration.number, migration.name, migration.checksum),
                )
            connection.execute("COMMIT")
        except (pg.UndefinedColumn, pg.DuplicateObject, pg.DuplicateTable) as error:
            _roll_back(connection)
            raise ForeignStore(
                f"{self.database} contains tables of another application: {error}",
                field="store",
                value=self.database,
                rule="a dedicated database, or a schema that is first in the search path",
                fix="createdb timewright, or add ?options=-csearch_path%3Dtimewright to the URL",
            ) from error
        except BaseException:
            _roll_back(connection)
            raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate PostgreSQL's errors into ours; those that call for a retry pass through."""
        try:
            yield
        except (TimewrightError, *_RETRYABLE):
            raise
        except pg.UniqueViolation as error:
            raise Conflict(f"{self.database}: {error}", rule="names and occurrences are unique") from error
        except (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege) as error:
            fix = "use the new store" if FROZEN in str(error) else "connect to the primary"
            raise StoreReadOnly(f"{self.database} cannot be written: {error}", fix=fix) from error
        except (pg.DiskFull, pg.OutOfMemory) as error:
            raise StoreFull(f"{self.database}: disk full: {error}", fix="free space on the server") from error
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise StoreUnavailable(
                f"{self.database} cannot be reached: {str(error).strip()}",
                rule="the server must be reachable",
                fix="it is retried automatically",
            ) from error
        except psycopg.Error as error:
            raise StoreError(f"{self.database}: {type(error).__name__}: {error}") from error


def _is_for_tests(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SHOW cluster_name").fetchone()
    return row is not None and row[0] == "timewright-test"


def _roll_back(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.rollback_transaction()
