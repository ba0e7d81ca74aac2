"""Maintains the WAL of a SQLite file between commits, and the lock of its writing thread."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import apsw

from timewright.errors import NotAllowed


class WriterLock:
    """The right to use the writing connection."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._holder = 0

    def __enter__(self) -> None:
        self.check_not_held()
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.release()

    def check_not_held(self) -> None:
        """Raise if the calling thread holds the lock."""
        if self._holder == threading.get_ident():
            raise NotAllowed(
                f"{self._path}: a transaction is open on this thread",
                field="store",
                value=self._path,
                rule="one transaction at a time per thread; a second would wait for the first forever",
                fix="use the transaction passed to the work, or wait until it has ended",
            )

    @property
    def is_held(self) -> bool:
        """Whether a thread holds the lock."""
        return self._lock.locked()

    def try_acquire(self) -> bool:
        """Acquire the lock without waiting; returns whether it was free."""
        if not self._lock.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        return True

    def release(self) -> None:
        """Release the lock."""
        self._holder = 0
        self._lock.release()


# Maintenance starts after this many commits, so that single commands never pay for it.
MIN_COMMITS = 64
# A checkpoint runs after this many written pages; rare ones collide with fewer starting runs.
CHECKPOINT_PAGES = 2_500
PREALLOCATED_BYTES = 12 * 1024 * 1024
# With less free disk space the WAL is not preallocated.
MIN_FREE_BYTES = 20 * PREALLOCATED_BYTES
CACHE_KIB = 256
# A checkpoint waits for this long a pause between commits; on a busy file it is checked less and less often.
QUIET_S = 0.001
MAX_QUIET_PAUSE_S = 0.05
MAX_CHECKPOINT_PASSES = 3
IDLE_SECONDS = 30.0

_sync = getattr(os, "fdatasync", os.fsync)


class WalMaintainer:
    """Maintains the WAL of one file next to its writer, on a thread that exists only while there is work.

    Appending to a file needs one more disk flush than overwriting, because the file system must save its new
    length. So the WAL is preallocated once by a large transaction that is rolled back. After that SQLite
    restarts the WAL at its beginning whenever a checkpoint has copied all of it, between commits.
    """

    def __init__(self, path: str, writer_lock: WriterLock) -> None:
        self._path = path
        self._writer_lock = writer_lock
        self._lock = threading.Lock()
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._file: int | None = None
        self._commits = 0
        self._pages_written = 0
        self._pages_checkpointed = 0
        self._is_preallocated = False

    def on_commit(self, writer: apsw.Connection) -> None:
        """Count a commit and start maintenance if needed. Never blocks the committing thread."""
        self._commits += 1
        if self._commits >= MIN_COMMITS:
            self._pages_written, _ = writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
            if (
                not self._is_preallocated
                or self._pages_written - self._pages_checkpointed >= CHECKPOINT_PAGES
            ):
                self._start_maintenance()

    def maintain(self) -> None:
        """Preallocate the WAL if needed, then checkpoint it, both while no commit runs."""
        if not self._wait_for_pause():
            return
        connection = self._connection or self._connect()
        if not self._is_preallocated:
            self._preallocate(connection)
        for _ in range(MAX_CHECKPOINT_PASSES):
            self._pages_checkpointed = self._pages_written
            pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages == copied:
                return

    def flush(self) -> None:
        """Sync the WAL. Only an optimization: a commit syncs what it needs itself."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(f"{self._path}-wal", os.O_RDONLY)
            _sync(self._file)

    def empty(self) -> bool:
        """Copy the whole WAL into the file and truncate it; returns whether that freed disk space."""
        wal = Path(f"{self._path}-wal")
        with suppress(apsw.Error, OSError):
            before = wal.stat().st_size
            connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                connection.close()
            return wal.stat().st_size < before
        return False

    def close(self) -> None:
        """Stop the thread and close its connection."""
        self._closing.set()
        self._requested.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._close_connection()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _start_maintenance(self) -> None:
        if self._requested.is_set():
            return
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name="timewright-wal", daemon=True)
                with suppress(RuntimeError):  # no thread available: commits then checkpoint by themselves
                    thread.start()
                    self._thread = thread
            self._requested.set()

    def _run(self) -> None:
        while self._wait_for_work():
            with suppress(apsw.Error, OSError):
                self.maintain()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wait_for_work(self) -> bool:
        """Wait for work; returns False when the thread should end."""
        requested = self._requested.wait(IDLE_SECONDS)
        with self._lock:
            if (requested or self._requested.is_set()) and not self._closing.is_set():
                self._requested.clear()
                return True
            self._close_connection()
            self._thread = None
            return False

    def _wait_for_pause(self) -> bool:
        """Wait for a pause between commits. If there is none, commits checkpoint by themselves."""
        pause = 0.0
        while not self._closing.wait(pause):
            seen = self._commits
            if not self._closing.wait(QUIET_S) and seen == self._commits and not self._writer_lock.is_held:
                return True
            pause = min(pause + QUIET_S, MAX_QUIET_PAUSE_S)
        return False

    def _preallocate(self, connection: apsw.Connection) -> None:
        """Write more in one transaction than its cache holds, then roll back."""
        if not self._has_free_space() or Path(f"{self._path}-wal").stat().st_size >= PREALLOCATED_BYTES:
            self._is_preallocated = True
            return
        if not self._writer_lock.try_acquire():
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._is_preallocated = True  # or as much as the disk had space for
            connection.execute("CREATE TABLE padding (bytes BLOB)")
            connection.execute("INSERT INTO padding VALUES (zeroblob(?))", (PREALLOCATED_BYTES,))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._writer_lock.release()

    def _has_free_space(self) -> bool:
        if not hasattr(os, "statvfs"):
            return False
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize >= MIN_FREE_BYTES

    def _connect(self) -> apsw.Connection:
        """Open a connection with a small cache and no busy timeout."""
        self._connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}; PRAGMA synchronous = FULL")
        # A connection knows of the WAL only after its first read.
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return self._connection
