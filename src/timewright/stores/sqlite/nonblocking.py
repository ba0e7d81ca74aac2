"""Reads of a SQLite file that never block: on their own connection, with a bounded number of steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import apsw

from timewright.ports.store import WouldBlock
from timewright.stores.cache import RowCache
from timewright.stores.sqlite.executor import SqliteExecutor
from timewright.stores.sqlite.file_safety import translate_errors
from timewright.stores.transaction import SqlTransaction

T = TypeVar("T")

# Steps of SQLite's virtual machine; a page of fifty schedules takes a tenth of them.
MAX_VM_STEPS = 50_000


class SqliteNonBlockingReader:
    """Reads on one connection; raises `WouldBlock` if it is in use or the file is locked."""

    def __init__(
        self,
        path: str,
        cache: RowCache,
        *,
        connect: Callable[[], apsw.Connection],
        now: Callable[[], datetime],
    ) -> None:
        self.now = now
        self._path = path
        self._cache = cache
        self._connect = connect
        self._in_use = threading.Lock()
        self._executor: SqliteExecutor | None = None
        self._closed = False
        self._calls = 0

    def read(self, work: Callable[[Any], T]) -> T:
        """Run `work` on one consistent snapshot, or raise `WouldBlock`."""
        return self._exclusively(lambda executor: self._read_snapshot(executor, work))

    def data_version(self) -> int:
        """Return a number that changes with every commit of any process."""
        return self._exclusively(_version)

    def close(self) -> None:
        """Close the connection; later calls raise `WouldBlock`."""
        if self._closed:
            return
        self._closed = True
        self._in_use.acquire()
        if self._executor is not None:
            self._executor.connection.close()

    def _exclusively(self, work: Callable[[SqliteExecutor], T]) -> T:
        if not self._in_use.acquire(blocking=False):
            raise WouldBlock
        self._calls = 0
        try:
            return work(self._executor or self._open())
        except (apsw.BusyError, apsw.InterruptError, apsw.LockedError) as error:
            raise WouldBlock from error
        except apsw.Error:
            with translate_errors(self._path):
                raise
        finally:
            self._in_use.release()

    def _read_snapshot(self, executor: SqliteExecutor, work: Callable[[Any], T]) -> T:
        connection = executor.connection
        connection.execute("BEGIN")
        self._calls = 0
        try:
            return work(SqlTransaction(executor))
        finally:
            # The rollback must not be interrupted, or the snapshot would stay open.
            self._calls = -MAX_VM_STEPS
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _open(self) -> SqliteExecutor:
        connection = self._connect()
        connection.set_busy_handler(None)
        connection.set_progress_handler(self._exceeds_limit, MAX_VM_STEPS)
        self._executor = SqliteExecutor(connection, self._cache, now=self.now)
        return self._executor

    def _exceeds_limit(self) -> bool:
        """Progress handler: interrupts at the second call, after at least MAX_VM_STEPS steps."""
        self._calls += 1
        return self._calls > 1


def _version(executor: SqliteExecutor) -> int:
    rows: list[Any] = executor.connection.execute("PRAGMA data_version").fetchall()
    return int(rows[0][0])
