"""The SQLite store: one writer per process, group commit, and migrations when it is opened."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from timewright.clocks import SystemClock
from timewright.errors import StoreFull, StoreUnavailable
from timewright.ports import Clock
from timewright.ports.store import ClockDoubt
from timewright.stores.cache import RowCache
from timewright.stores.clock_guard import CommitTimer
from timewright.stores.listeners import FilePoller
from timewright.stores.migrate import Migration, load_migrations, pending_migrations
from timewright.stores.sqlite.clock import NonDecreasingClock
from timewright.stores.sqlite.executor import SqliteExecutor, SqliteReadExecutor
from timewright.stores.sqlite.file_safety import (
    APPLICATION_ID,
    check_fork,
    check_library,
    check_local_disk,
    check_not_replaced,
    check_owner,
    create_file,
    file_inodes,
    register_closed,
    register_open,
    set_durable,
    translate_errors,
)
from timewright.stores.sqlite.nonblocking import SqliteNonBlockingReader
from timewright.stores.sqlite.wal import WalMaintainer, WriterLock
from timewright.stores.transaction import SqlTransaction

T = TypeVar("T")

MAX_BUSY_WAIT_S = 10.0
MAX_GROUP_COMMITS = 64
CACHE_KIB = 32_768
# More than there are statements, because an evicted one is parsed again on each use. The driver caches one
# entry per row of a batch.
STATEMENT_CACHE_SIZE = 512


class _WriteJob(Generic[T]):
    """Work that waits for a commit, its own or a group's."""

    def __init__(
        self, work: Callable[[Any], T], *, commit_at: datetime | None = None, began: float = 0.0
    ) -> None:
        self.work = work
        self.commit_at = commit_at
        self.began = began
        self.is_done = False
        self.results: list[T] = []
        self.error: BaseException | None = None


class SqliteStore:
    """A store in one file, or in memory."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, clock: Clock | None = None) -> None:
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        host = clock or SystemClock()
        self._clock = NonDecreasingClock(host, connect=None if self._in_memory else self._open_reader)
        self.clock_guard = self._clock.guard
        self._commit_timer = CommitTimer(host)
        self.lead_time = self._commit_timer.lead_time
        self._waiting: deque[_WriteJob[Any]] = deque()
        self._queue_lock = threading.Lock()
        self._writer_lock = WriterLock(self.path)
        self._wal = WalMaintainer(self.path, self._writer_lock)
        self._readers: deque[SqliteExecutor] = deque()
        self._closed = False
        self._changes = 0
        self._cache = RowCache(is_sole_writer=self._in_memory)
        self._nonblocking = SqliteNonBlockingReader(
            self.path, self._cache, connect=self._open_reader, now=self._clock.now_cached
        )
        check_library()
        if not self._in_memory:
            check_fork(self.path)
        with translate_errors(self.path):
            self._writer = SqliteExecutor(self._open_writer(), self._cache, now=self._clock.now)
            self._memory_reader = SqliteReadExecutor(
                self._writer.connection, self._cache, now=self._clock.now
            )
            self._check_and_migrate()
        self._inodes = () if self._in_memory else file_inodes(self.path)
        if not self._in_memory:
            register_open(self.path)

    def now(self) -> datetime:
        """Return the host's clock, but never less than the highest instant recorded in the file."""
        return self._clock.now()

    def write(self, work: Callable[[Any], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction; concurrent calls share one commit.

        With `commit_at`, commit alone when the clock shows that instant.
        """
        try:
            return self._write(work, commit_at)
        except StoreFull:
            # The disk may be full of our own WAL: copy it into the file, empty it, and try once more.
            if self._in_memory or not self._wal.empty():
                raise
        return self._write(work, commit_at)

    def _write(self, work: Callable[[Any], T], commit_at: datetime | None) -> T:
        job: _WriteJob[T] = _WriteJob(work, commit_at=commit_at, began=self._commit_timer.begin())
        self._writer_lock.check_not_held()
        with self._queue_lock:
            self._check_open()
            self._waiting.append(job)
        with self._writer_lock:
            # A group has at most MAX_GROUP_COMMITS jobs; lead further groups until this job is done.
            while not job.is_done:
                self._commit_group()
        if job.error is not None:
            raise job.error
        return job.results[0]

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading of the host's clock that is not used because it cannot be right."""
        return self.clock_guard.doubt

    def accept_clock(self) -> None:
        """Use the host's clock as it is now, in every process."""
        self.write(lambda _: self._clock.accept(self._writer))

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        self._check_open()
        if self._in_memory:
            # No other thread writes while we hold the lock, so the snapshot needs no transaction.
            with self._writer_lock:
                try:
                    return work(SqlTransaction(self._memory_reader))
                except apsw.Error:
                    with translate_errors(self.path):
                        raise
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = SqliteExecutor(self._open_reader(), self._cache, now=self._clock.now)
        try:
            with translate_errors(self.path):
                return self._read_snapshot(reader, work)
        finally:
            self._readers.append(reader)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to another file while it is in use."""
        with self._writer_lock, translate_errors(str(path)):
            if self._in_memory:
                self._clock.save_mark(self._writer)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # only its owner may read it
            target = apsw.Connection(str(path))
            with target.backup("main", self._writer.connection, "main") as copy:
                while not copy.done:
                    copy.step(1000)
            target.close()

    def data_version(self) -> int | None:
        """Return a number that changes when another connection writes; None while this one writes."""
        if not self._writer_lock.try_acquire():
            return None
        try:
            self._check_open()
            with translate_errors(self.path):
                found: Any = self._writer.connection.pragma("data_version")
                return int(found)
        finally:
            self._writer_lock.release()

    @property
    def nonblocking_reader(self) -> SqliteNonBlockingReader | None:
        """The non-blocking reader; None in memory, where a read may wait for the writer."""
        return None if self._in_memory else self._nonblocking

    def change_listener(self) -> FilePoller | None:
        """Return a listener for writes by other processes; None in memory."""
        return None if self._in_memory else FilePoller(self.data_version)

    def close(self) -> None:
        """Close every connection."""
        with self._queue_lock, self._writer_lock:
            if not self._closed and not self._in_memory:
                register_closed(self.path)
            self._closed = True
            self._wal.close()
            self._clock.close()
            self._nonblocking.close()
            while self._readers:
                self._readers.pop().connection.close()
            self._writer.connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed", fix="open the store again")

    def _read_snapshot(self, executor: SqliteExecutor, work: Callable[[Any], T]) -> T:
        connection = executor.connection
        connection.execute("BEGIN")
        try:
            return work(SqlTransaction(executor))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _next_group(self) -> list[_WriteJob[Any]]:
        """Take the jobs of the next commit; a job with an instant is committed alone."""
        with self._queue_lock:
            group = [self._waiting.popleft()]
            while self._waiting and len(group) < MAX_GROUP_COMMITS:
                if group[0].commit_at is not None or self._waiting[0].commit_at is not None:
                    break
                group.append(self._waiting.popleft())
            return group

    def _commit_group(self) -> None:
        """Run the waiting jobs in one transaction, each in a savepoint, with one fsync."""
        group = self._next_group()
        connection = self._writer.connection
        try:
            with translate_errors(self.path):
                if self._inodes:
                    self._inodes = check_not_replaced(self.path, self._inodes)
                connection.execute("BEGIN IMMEDIATE")
                self._changes = connection.total_changes()
                if len(group) == 1:
                    group[0].results.append(group[0].work(SqlTransaction(self._writer)))
                else:
                    for job in group:
                        self._run_in_savepoint(job)
                self._save_clock_mark()
                self._wait_for_instant(group[0])
                connection.execute("COMMIT")
                if self._inodes:
                    self._wal.on_commit(connection)
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for job in group:
                job.error = job.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            self._writer.has_uncommitted_revisions = False
            for job in group:
                job.is_done = True

    def _save_clock_mark(self) -> None:
        """Save the clock mark if anything was written: an empty transaction must not cause a disk write."""
        if not self._in_memory and self._writer.connection.total_changes() != self._changes:
            self._clock.save_mark(self._writer)

    def _wait_for_instant(self, job: _WriteJob[Any]) -> None:
        """Do all of the commit except its last page, then wait for the instant of the job, if it has one."""
        if job.commit_at is None:
            return
        if not self._in_memory:
            self._writer.connection.cache_flush()
            self._wal.flush()
        self._commit_timer.wait(job.commit_at, began=job.began, read_clock=self._clock.now)

    def _run_in_savepoint(self, job: _WriteJob[Any]) -> None:
        """Run one job of a group in a savepoint, so that a failure undoes only this job."""
        connection = self._writer.connection
        connection.execute("SAVEPOINT job")
        try:
            with translate_errors(self.path):
                job.results.append(job.work(SqlTransaction(self._writer)))
        except Exception as error:
            if not connection.in_transaction:
                # SQLite rolled back the whole transaction (disk full, I/O error): every job failed.
                raise
            job.error = error
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _open_writer(self) -> apsw.Connection:
        if not self._in_memory:
            check_local_disk(Path(self.path))
            create_file(Path(self.path))
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if self._in_memory:
            # Our lock already serializes all access, so SQLite's own mutexes are not needed.
            flags |= apsw.SQLITE_OPEN_NOMUTEX
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=STATEMENT_CACHE_SIZE)
        _use_stable_plans(connection)
        connection.set_busy_handler(_busy_handler())
        return connection

    def _open_reader(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=STATEMENT_CACHE_SIZE)
        _use_stable_plans(connection)
        connection.set_busy_handler(_busy_handler())
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB // 4}")
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _check_and_migrate(self) -> None:
        """Check the owner of the file, set durability, and apply migrations."""
        connection = self._writer.connection
        check_owner(connection, self.path)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if not self._in_memory:
            set_durable(connection, self.path)
        migrate(connection, self.path)


def _use_stable_plans(connection: apsw.Connection) -> None:
    """Keep plans independent of parameter values: planning for each value costs ten times the statement."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _busy_handler() -> Callable[[int], bool]:
    """Return a busy handler that waits in short, growing steps, so that no process is starved."""
    pause = threading.Event()
    steps = [0.001, 0.002, 0.005, 0.010, 0.015, 0.020, 0.025]

    def again(count: int) -> bool:
        pause.wait(steps[min(count, len(steps) - 1)])
        return count * steps[-1] < MAX_BUSY_WAIT_S

    return again


def migrate(connection: apsw.Connection, path: str) -> None:
    """Apply the missing migrations in one transaction."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        _migrate(connection, path)
        _delete_statistics(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _migrate(connection: apsw.Connection, path: str) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT"
    )
    rows: list[Any] = list(connection.execute("SELECT number, checksum FROM migrations ORDER BY number"))
    for migration in pending_migrations(load_migrations("sqlite"), rows, path=path):
        _apply(connection, migration)


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    for statement in migration.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations VALUES (?, ?, ?)", (migration.number, migration.name, migration.checksum)
    )
    connection.execute(f"PRAGMA user_version = {migration.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _delete_statistics(connection: apsw.Connection) -> None:
    """Delete planner statistics: those of an almost empty store make every batch scan all runs."""
    if connection.table_exists("main", "sqlite_stat1"):
        connection.execute("DELETE FROM sqlite_stat1; ANALYZE sqlite_schema")
