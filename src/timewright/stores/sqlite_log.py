"""The log of a SQLite file: filled ahead, so that a commit overwrites, and copied while nobody writes."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import apsw

from timewright.stores.turn import Turn

# Whoever commits so often is here to stay: from then on the log is kept. One command at a time never is.
SEVERAL = 64
# So many pages are copied into the file when it is quiet; the seldomer, the fewer starts come upon it.
COPIED_PAGES = 2_500
FILLED_BYTES = 12 * 1024 * 1024
# A disk with less room than this is not filled by us.
ROOM_BYTES = 20 * FILLED_BYTES
CACHE_KIB = 256
# Quiet is where nobody has written for so long; where it never is, it is looked for less and less often.
QUIET_SECONDS = 0.001
MOST_PATIENCE = 0.05
MOST_ROUNDS = 3
IDLE_SECONDS = 30.0

_flush = getattr(os, "fdatasync", os.fsync)


class LogKeeper:
    """Looks after the log of one file beside its writer, on a thread that is there while there is work.

    To append to a file costs a flush more than to overwrite it: the file system must keep its new length too.
    So the log is filled once by a transaction that is undone, which leaves its room behind and nothing else.
    After that the log is begun anew whenever all of it was copied, which happens between two commits.
    """

    def __init__(self, path: str, turn: Turn) -> None:
        self._path = path
        self._turn = turn
        self._lock = threading.Lock()
        self._called = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._file: int | None = None
        self._commits = 0
        self._written = 0
        self._copied = 0
        self._is_filled = False

    def committed(self, writer: apsw.Connection) -> None:
        """Someone has committed; that he waits for nobody here is the point of it all."""
        self._commits += 1
        if self._commits >= SEVERAL:
            self._written, _ = writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
            if not self._is_filled or self._written - self._copied >= COPIED_PAGES:
                self._call()

    def tend(self) -> None:
        """Fill the log if nobody has, and copy it, which flushes it; both when nobody writes."""
        if not self._is_quiet():
            return
        connection = self._connection or self._connect()
        if not self._is_filled:
            self._fill(connection)
        for _ in range(MOST_ROUNDS):
            self._copied = self._written
            pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages == copied:
                return

    def flush(self) -> None:
        """Have on the disk what is in the log, committed or not; what a commit needs, it flushes itself."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(f"{self._path}-wal", os.O_RDONLY)
            _flush(self._file)

    def close(self) -> None:
        """End the thread, and give back what was opened."""
        self._closing.set()
        self._called.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._leave()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _call(self) -> None:
        if self._called.is_set():
            return
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._serve, name="timewright-log", daemon=True)
                with suppress(RuntimeError):  # the system has no thread left: then whoever commits copies
                    thread.start()
                    self._thread = thread
            self._called.set()

    def _serve(self) -> None:
        while self._is_called():
            with suppress(apsw.Error, OSError):
                self.tend()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_called(self) -> bool:
        """Rest; says whether there is work, and otherwise the thread ends."""
        called = self._called.wait(IDLE_SECONDS)
        with self._lock:
            if (called or self._called.is_set()) and not self._closing.is_set():
                self._called.clear()
                return True
            self._leave()
            self._thread = None
            return False

    def _is_quiet(self) -> bool:
        """Wait for a moment in which nobody writes; who commits without end copies by itself."""
        pause = 0.0
        while not self._closing.wait(pause):
            seen = self._commits
            if not self._closing.wait(QUIET_SECONDS) and seen == self._commits and not self._turn.is_taken:
                return True
            pause = min(pause + QUIET_SECONDS, MOST_PATIENCE)
        return False

    def _fill(self, connection: apsw.Connection) -> None:
        """Have a transaction write more than it may keep in memory, and undo it."""
        if not self._has_room() or Path(f"{self._path}-wal").stat().st_size >= FILLED_BYTES:
            self._is_filled = True
            return
        if not self._turn.try_take():
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._is_filled = True  # or as much of it as there was room for
            connection.execute("CREATE TABLE filling (room BLOB)")
            connection.execute("INSERT INTO filling VALUES (zeroblob(?))", (FILLED_BYTES,))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._turn.release()

    def _has_room(self) -> bool:
        if not hasattr(os, "statvfs"):
            return False
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize >= ROOM_BYTES

    def _connect(self) -> apsw.Connection:
        """A connection of its own that waits for nobody and keeps little."""
        self._connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}; PRAGMA synchronous = FULL")
        # Before its first look at the file a connection does not know that there is a log.
        self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return self._connection
