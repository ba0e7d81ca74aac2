"""The clock of a SQLite store: the host's, but never less than the highest instant that was recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import apsw

from timewright.core.moments import EPOCH, from_micros, to_micros
from timewright.ports import Clock
from timewright.stores.clock_guard import ClockGuard
from timewright.stores.sqlite.executor import SqliteExecutor

# The mark is written and read at most this often, because both cost time in every commit and every `now`.
MARK_INTERVAL = timedelta(milliseconds=50)
_MARKS = "SELECT name, value FROM meta WHERE name IN ('high_water', 'clock_accepted')"
_IS_PAUSED = "SELECT 1 FROM pauses WHERE origin = 'clock' AND ended_at IS NULL LIMIT 1"


class NonDecreasingClock:
    """The highest instant is stored in the file, and every process reads it before it returns a time.

    A reading that cannot be right is not used; see `ClockGuard`. Whatever happens to the host's clock, times
    returned in sequence by two processes are never more than twice `MARK_INTERVAL` out of order.
    """

    def __init__(self, host: Clock, *, connect: Callable[[], apsw.Connection] | None) -> None:
        self._host = host
        self._connect = connect
        self._reader: apsw.Connection | None = None
        self._reader_lock = threading.Lock()
        self._mark: datetime | None = None
        self._saved_mark: datetime | None = None
        self._mark_read_at: datetime | None = None
        self._lowered_to: datetime | None = None
        self.guard = ClockGuard(host.monotonic)

    def now(self) -> datetime:
        """Return the host's clock, but never less than the highest instant recorded in the file."""
        host = self._host.now()
        if self._connect is not None and self._is_mark_stale(host):
            self._read_marks(host)
            self._mark_read_at = host
        return self._not_before_mark(host)

    def now_cached(self) -> datetime:
        """Return the same without reading the file."""
        return self._not_before_mark(self._host.now())

    def accept(self, writer: SqliteExecutor) -> None:
        """Use the host's clock as it is now, in every process."""
        host = self._host.now()
        writer.query("put_meta", {"name": "clock_accepted", "value": str(to_micros(host))})
        self.guard.accept(host)
        self._not_before_mark(host)

    def save_mark(self, writer: SqliteExecutor) -> None:
        """Write the highest instant as part of a commit that happens anyway; only a guard lowers it."""
        self._not_before_mark(self._host.now())
        mark = self._mark
        if self._lowered_to is not None:
            self._lowered_to, self._saved_mark = None, mark
            writer.query("put_meta", {"name": "high_water", "value": str(to_micros(mark or EPOCH))})
            return
        if mark is None or (self._saved_mark is not None and mark - self._saved_mark < MARK_INTERVAL):
            return
        writer.query("raise_meta", {"name": "high_water", "value": str(to_micros(mark))})
        self._saved_mark = mark

    def close(self) -> None:
        """Close the connection; the known mark stays."""
        with self._reader_lock:
            self._connect = None
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _not_before_mark(self, host: datetime) -> datetime:
        now = self.guard.check(host)
        if self._mark is not None and now <= self._mark:
            if self._mark - now <= self.guard.max_step:
                return self._mark
            # The guard has accepted an earlier time: the mark must not stop the clock until then.
            self._lowered_to = now
        self._mark = now
        return now

    def _is_mark_stale(self, host: datetime) -> bool:
        """Whether MARK_INTERVAL has passed since the last read, or the clock went back."""
        return self._mark_read_at is None or not timedelta(0) <= host - self._mark_read_at < MARK_INTERVAL

    def _read_marks(self, host: datetime) -> None:
        """Read what other processes wrote. Errors are ignored: the next write reports them."""
        try:
            with self._reader_lock:
                if self._reader is None:
                    if self._connect is None:
                        return
                    self._reader = self._connect()
                found: list[Any] = self._reader.execute(_MARKS).fetchall()
                is_first = self._mark_read_at is None
                is_paused = is_first and bool(self._reader.execute(_IS_PAUSED).fetchall())
        except apsw.Error:
            return
        marks = {name: from_micros(int(value)) for name, value in found}
        mark, accepted = marks.get("high_water"), marks.get("clock_accepted")
        if is_first and mark is not None:
            self.guard.start(mark, is_in_doubt=is_paused)
        # Accepted by a person, or used by another process that had a reason.
        trusted = [instant for instant in (mark, accepted) if instant is not None]
        if self.guard.doubt and any(abs(host - instant) <= self.guard.max_step for instant in trusted):
            self.guard.accept(host)
        if mark is not None and mark - self.guard.check(host) <= self.guard.max_step:
            self._mark = mark if self._mark is None else max(self._mark, mark)
