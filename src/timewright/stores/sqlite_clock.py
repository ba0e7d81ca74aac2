"""The clock of a SQLite store: the host's, held above the highest instant that any process has recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import apsw

from timewright.core.moments import from_micros, micros
from timewright.ports import Clock
from timewright.stores.sqlite_speaker import SqliteSpeaker

FARTHEST_STEP = timedelta(hours=24)
DOUBTED_SECONDS = 3600.0
# So often at most the mark is written and looked at; more often would cost each commit and each date.
MARK_EVERY = timedelta(milliseconds=50)
_MARK = "SELECT value FROM meta WHERE name = 'high_water'"


class HeldClock:
    """The highest instant of a file lives in the file, and every process looks there before it dates.

    Whatever is done to the host's clock, what two processes date one after the other is never dated more than
    twice `MARK_EVERY` the other way round.
    """

    def __init__(self, host: Clock, *, connect: Callable[[], apsw.Connection] | None) -> None:
        self._host = host
        self._connect = connect
        self._eye: apsw.Connection | None = None
        self._looking = threading.Lock()
        self._mark: datetime | None = None
        self._noted: datetime | None = None
        self._looked: datetime | None = None
        self._doubted: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The host's clock, held above the highest instant this file has recorded."""
        host = self._host.now()
        if self._connect is not None and self._is_long_ago(host):
            self._look()
            self._looked = host
        return self._held(host)

    def known(self) -> datetime:
        """The same by what this process knows already; nobody else is looked at."""
        return self._held(self._host.now())

    def note(self, writer: SqliteSpeaker) -> None:
        """Keep the highest instant there was, in a commit that happens anyway; it never sinks."""
        self._held(self._host.now())
        mark = self._mark
        if mark is None or (self._noted is not None and mark - self._noted < MARK_EVERY):
            return
        writer.ask("raise_mark", {"name": "high_water", "value": str(micros(mark))})
        self._noted = mark

    def close(self) -> None:
        """Look no more; the mark that is known stays."""
        with self._looking:
            self._connect = None
            if self._eye is not None:
                self._eye.close()
                self._eye = None

    def _held(self, host: datetime) -> datetime:
        if self._mark is not None and host <= self._mark:
            return self._mark
        if self._mark is None or host - self._mark <= FARTHEST_STEP or self._is_confirmed(host):
            self._mark, self._doubted = host, None
        return host

    def _is_long_ago(self, host: datetime) -> bool:
        """Whether the clock went on since we looked, or back."""
        return self._looked is None or not timedelta(0) <= host - self._looked < MARK_EVERY

    def _look(self) -> None:
        """How far others have come; where the file cannot be read, the write that follows says why."""
        try:
            with self._looking:
                if self._eye is None:
                    if self._connect is None:
                        return
                    self._eye = self._connect()
                found: list[Any] = self._eye.execute(_MARK).fetchall()
        except apsw.Error:
            return
        if found:
            mark = from_micros(int(found[0][0]))
            self._mark = mark if self._mark is None else max(self._mark, mark)

    def _is_confirmed(self, host: datetime) -> bool:
        """A step of over a day moves the mark only if it lasts: a wrong reading must not freeze the file."""
        monotonic = self._host.monotonic()
        if self._doubted is None or host < self._doubted[0]:
            self._doubted = (host, monotonic)
        return monotonic - self._doubted[1] >= DOUBTED_SECONDS
