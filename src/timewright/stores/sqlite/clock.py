"""The clock of a SQLite store: the host's, but never less than the highest instant that was recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import apsw

from timewright.core.moments import from_micros, to_micros
from timewright.ports import Clock
from timewright.stores.sqlite.executor import SqliteExecutor

MAX_CLOCK_STEP = timedelta(hours=24)
STEP_CONFIRMATION_S = 3600.0
# The mark is written and read at most this often, because both cost time in every commit and every `now`.
MARK_INTERVAL = timedelta(milliseconds=50)
_MARK = "SELECT value FROM meta WHERE name = 'high_water'"


class NonDecreasingClock:
    """The highest instant is stored in the file, and every process reads it before it returns a time.

    Whatever happens to the host's clock, times returned in sequence by two processes are never more than
    twice `MARK_INTERVAL` out of order.
    """

    def __init__(self, host: Clock, *, connect: Callable[[], apsw.Connection] | None) -> None:
        self._host = host
        self._connect = connect
        self._reader: apsw.Connection | None = None
        self._reader_lock = threading.Lock()
        self._mark: datetime | None = None
        self._saved_mark: datetime | None = None
        self._mark_read_at: datetime | None = None
        self._unconfirmed_step: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the host's clock, but never less than the highest instant recorded in the file."""
        host = self._host.now()
        if self._connect is not None and self._is_mark_stale(host):
            self._read_mark()
            self._mark_read_at = host
        return self._not_before_mark(host)

    def now_cached(self) -> datetime:
        """Return the same without reading the file."""
        return self._not_before_mark(self._host.now())

    def save_mark(self, writer: SqliteExecutor) -> None:
        """Write the highest instant as part of a commit that happens anyway; it never decreases."""
        self._not_before_mark(self._host.now())
        mark = self._mark
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
        if self._mark is not None and host <= self._mark:
            return self._mark
        if self._mark is None or host - self._mark <= MAX_CLOCK_STEP or self._is_confirmed(host):
            self._mark, self._unconfirmed_step = host, None
        return host

    def _is_mark_stale(self, host: datetime) -> bool:
        """Whether MARK_INTERVAL has passed since the last read, or the clock went back."""
        return self._mark_read_at is None or not timedelta(0) <= host - self._mark_read_at < MARK_INTERVAL

    def _read_mark(self) -> None:
        """Read the mark of other processes. Errors are ignored: the next write reports them."""
        try:
            with self._reader_lock:
                if self._reader is None:
                    if self._connect is None:
                        return
                    self._reader = self._connect()
                found: list[Any] = self._reader.execute(_MARK).fetchall()
        except apsw.Error:
            return
        if found:
            mark = from_micros(int(found[0][0]))
            self._mark = mark if self._mark is None else max(self._mark, mark)

    def _is_confirmed(self, host: datetime) -> bool:
        """Accept a step of over a day only after an hour: one wrong reading must not freeze the clock."""
        monotonic = self._host.monotonic()
        if self._unconfirmed_step is None or host < self._unconfirmed_step[0]:
            self._unconfirmed_step = (host, monotonic)
        return monotonic - self._unconfirmed_step[1] >= STEP_CONFIRMATION_S
