"""How SQLite opens, begins, waits and commits: one writer per process, commits shared by whoever waits."""

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
from timewright.errors import (
    StoreUnavailable,
)
from timewright.ports import Clock
from timewright.stores.file_safety import (
    check_identity,
    check_library,
    check_ours,
    check_place,
    identity,
    set_durable,
    translated,
)
from timewright.stores.hearing import FileEar
from timewright.stores.revisions import Revisions
from timewright.stores.sqlite_clock import HeldClock
from timewright.stores.sqlite_forks import check_fork, give_back, take
from timewright.stores.sqlite_glimpses import SqliteGlimpses
from timewright.stores.sqlite_log import LogKeeper
from timewright.stores.sqlite_schema import bring_up_to_date
from timewright.stores.sqlite_speaker import Onlooker, SqliteSpeaker
from timewright.stores.sqlstore import SqlTransaction
from timewright.stores.turn import Turn

T = TypeVar("T")

BUSY_SECONDS = 10.0
LARGEST_GROUP = 64
CACHE_KIB = 32_768
# More than there are statements in the book: one that is forgotten is parsed again each time. The driver
# keeps those that ran last, each row of a batch for itself, and never more than these.
KEPT_STATEMENTS = 512


class _Job(Generic[T]):
    """A piece of work that waits for a commit, its own or a shared one."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.settled = False
        self.answers: list[T] = []
        self.error: BaseException | None = None


class SqliteStore:
    """A store in one file, or in memory."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, clock: Clock | None = None) -> None:
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        self._clock = HeldClock(
            clock or SystemClock(), connect=None if self._in_memory else self._open_reader
        )
        self._waiting: deque[_Job[Any]] = deque()
        self._entry = threading.Lock()
        self._writing = Turn(self.path)
        self._log = LogKeeper(self.path, self._writing)
        self._readers: deque[SqliteSpeaker] = deque()
        self._closed = False
        self._changes = 0
        self._revisions = Revisions(alone=self._in_memory)
        self._glimpses = SqliteGlimpses(
            self.path, self._revisions, connect=self._open_reader, now=self._clock.known
        )
        check_library()
        if not self._in_memory:
            check_fork(self.path)
        with translated(self.path):
            self._writer = SqliteSpeaker(self._open_writer(), self._revisions, now=self._clock.now)
            self._onlooker = Onlooker(self._writer.connection, self._revisions, now=self._clock.now)
            self._prepare()
        self._identity = () if self._in_memory else identity(self.path)
        if not self._in_memory:
            take(self.path)

    def now(self) -> datetime:
        """The host's clock, held above the highest instant this file has recorded."""
        return self._clock.now()

    def write(self, work: Callable[[Any], T]) -> T:
        """Run `work` in one durable transaction; whoever waits meanwhile shares its commit."""
        job: _Job[T] = _Job(work)
        self._writing.refuse_twice()
        with self._entry:
            self._check_open()
            self._waiting.append(job)
        with self._writing:
            # A group may be too small for everyone who waits: whoever leads goes on until it is served too.
            while not job.settled:
                self._commit_group()
        if job.error is not None:
            raise job.error
        return job.answers[0]

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` over one consistent picture of the store."""
        self._check_open()
        if self._in_memory:
            # Nobody else can write while we have the turn, so the picture needs no transaction.
            with self._writing:
                try:
                    return work(SqlTransaction(self._onlooker))
                except apsw.Error:
                    with translated(self.path):
                        raise
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = SqliteSpeaker(self._open_reader(), self._revisions, now=self._clock.now)
        try:
            with translated(self.path):
                return self._picture(reader, work)
        finally:
            self._readers.append(reader)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to another file while it is in use."""
        with self._writing, translated(str(path)):
            if self._in_memory:
                self._clock.note(self._writer)
            target = apsw.Connection(str(path))
            with target.backup("main", self._writer.connection, "main") as copy:
                while not copy.done:
                    copy.step(1000)
            target.close()

    def version(self) -> int | None:
        """A number that changes when another connection has written; nothing while we write ourselves."""
        if not self._writing.try_take():
            return None
        try:
            self._check_open()
            with translated(self.path):
                found: Any = self._writer.connection.pragma("data_version")
                return int(found)
        finally:
            self._writing.release()

    @property
    def glimpses(self) -> SqliteGlimpses | None:
        """Reads that are over at once; whoever reads a store in memory may have to wait for its writer."""
        return None if self._in_memory else self._glimpses

    def ear(self) -> FileEar | None:
        """What hears when another process has written; a store in memory is nobody else's."""
        return None if self._in_memory else FileEar(self.version)

    def close(self) -> None:
        """Give back every connection."""
        with self._entry, self._writing:
            if not self._closed and not self._in_memory:
                give_back(self.path)
            self._closed = True
            self._log.close()
            self._clock.close()
            self._glimpses.close()
            while self._readers:
                self._readers.pop().connection.close()
            self._writer.connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed", fix="open the store again")

    def _picture(self, speaker: SqliteSpeaker, work: Callable[[Any], T]) -> T:
        connection = speaker.connection
        connection.execute("BEGIN")
        try:
            return work(SqlTransaction(speaker))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _commit_group(self) -> None:
        """Lead: take everyone who waits, run each in a savepoint, and pay for durability once."""
        with self._entry:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), LARGEST_GROUP))]
        connection = self._writer.connection
        try:
            with translated(self.path):
                if self._identity:
                    self._identity = check_identity(self.path, self._identity)
                connection.execute("BEGIN IMMEDIATE")
                self._changes = connection.total_changes()
                if len(group) == 1:
                    group[0].answers.append(group[0].work(SqlTransaction(self._writer)))
                else:
                    for job in group:
                        self._perform(job)
                self._note()
                connection.execute("COMMIT")
                if self._identity:
                    self._log.committed(connection)
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for job in group:
                job.error = job.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            self._writer.drafting = False
            for job in group:
                job.settled = True

    def _note(self) -> None:
        """A pass that found nothing to do must not cost the disk a write, nor stir others.

        A store in memory has no others who would look, and its own clock knows how far it came.
        """
        if not self._in_memory and self._writer.connection.total_changes() != self._changes:
            self._clock.note(self._writer)

    def _flush(self) -> None:
        """All that the commit would do but its last page: the others go into the log, and to the disk."""
        self._note()
        self._writer.connection.cache_flush()
        self._log.flush()

    def _perform(self, job: _Job[Any]) -> None:
        """One of several: what it did is undone alone, if it fails."""
        connection = self._writer.connection
        connection.execute("SAVEPOINT job")
        try:
            with translated(self.path):
                job.answers.append(job.work(SqlTransaction(self._writer)))
        except Exception as error:
            if not connection.in_transaction:
                # The whole transaction is gone (no room, input or output failed): nobody's work stands.
                raise
            job.error = error
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _open_writer(self) -> apsw.Connection:
        if not self._in_memory:
            check_place(Path(self.path))
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if self._in_memory:
            # All who read and write have their turn: the locks SQLite takes for every value guard nothing.
            flags |= apsw.SQLITE_OPEN_NOMUTEX
        is_new = not self._in_memory and not Path(self.path).exists()
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=KEPT_STATEMENTS)
        _plan_once(connection)
        if is_new:
            Path(self.path).chmod(0o600)
        connection.set_busy_handler(_patient())
        return connection

    def _open_reader(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=KEPT_STATEMENTS)
        _plan_once(connection)
        connection.set_busy_handler(_patient())
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB // 4}")
        connection.execute("PRAGMA query_only = 1")
        return connection

    def _prepare(self) -> None:
        """Check that the file is ours and safe, then bring its schema up to date."""
        connection = self._writer.connection
        check_ours(connection, self.path)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if not self._in_memory:
            set_durable(connection, self.path)
            self._writer.flush = self._flush
        bring_up_to_date(connection, self.path)


def _plan_once(connection: apsw.Connection) -> None:
    """A plan that looks at the values is made anew for each: that costs ten times what the statement does."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _patient() -> Callable[[int], bool]:
    """Wait for another process's write in short, growing steps, so that no one is shut out for long."""
    pause = threading.Event()
    steps = [0.001, 0.002, 0.005, 0.010, 0.015, 0.020, 0.025]

    def again(count: int) -> bool:
        pause.wait(steps[min(count, len(steps) - 1)])
        return count * steps[-1] < BUSY_SECONDS

    return again
