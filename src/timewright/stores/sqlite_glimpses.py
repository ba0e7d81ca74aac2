"""Reads of a file that are over at once: on a connection of their own, in few steps, and without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import apsw

from timewright.ports.glimpse import NotAtOnce
from timewright.stores.file_safety import translated
from timewright.stores.revisions import Revisions
from timewright.stores.sqlite_speaker import SqliteSpeaker
from timewright.stores.sqlstore import SqlTransaction

T = TypeVar("T")

# Of SQLite's own machine; a page of fifty schedules takes a tenth of them.
MOST_STEPS = 50_000


class SqliteGlimpses:
    """One connection that waits for nobody; whoever finds it in use, or the file locked, is sent away."""

    def __init__(
        self,
        path: str,
        revisions: Revisions,
        *,
        connect: Callable[[], apsw.Connection],
        now: Callable[[], datetime],
    ) -> None:
        self.now = now
        self._path = path
        self._revisions = revisions
        self._connect = connect
        self._in_use = threading.Lock()
        self._speaker: SqliteSpeaker | None = None
        self._closed = False
        self._calls = 0

    def look(self, work: Callable[[Any], T]) -> T:
        """Run `work` over one consistent picture of the store, or raise `NotAtOnce`."""
        return self._alone(lambda speaker: self._picture(speaker, work))

    def stamp(self) -> int:
        """A number that is another one after every commit, whoever made it."""
        return self._alone(_version)

    def close(self) -> None:
        """Give the connection back; what is asked after that is sent away."""
        if self._closed:
            return
        self._closed = True
        self._in_use.acquire()
        if self._speaker is not None:
            self._speaker.connection.close()

    def _alone(self, ask: Callable[[SqliteSpeaker], T]) -> T:
        if not self._in_use.acquire(blocking=False):
            raise NotAtOnce
        self._calls = 0
        try:
            return ask(self._speaker or self._opened())
        except (apsw.BusyError, apsw.InterruptError, apsw.LockedError) as error:
            raise NotAtOnce from error
        except apsw.Error:
            with translated(self._path):
                raise
        finally:
            self._in_use.release()

    def _picture(self, speaker: SqliteSpeaker, work: Callable[[Any], T]) -> T:
        connection = speaker.connection
        connection.execute("BEGIN")
        self._calls = 0
        try:
            return work(SqlTransaction(speaker))
        finally:
            # To end is never too long: whoever interrupts it leaves a picture open for ever.
            self._calls = -MOST_STEPS
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _opened(self) -> SqliteSpeaker:
        connection = self._connect()
        connection.set_busy_handler(None)
        connection.set_progress_handler(self._is_long, MOST_STEPS)
        self._speaker = SqliteSpeaker(connection, self._revisions, now=self.now)
        return self._speaker

    def _is_long(self) -> bool:
        """Asked after so many steps, also of several statements together: the first time says nothing."""
        self._calls += 1
        return self._calls > 1


def _version(speaker: SqliteSpeaker) -> int:
    rows: list[Any] = speaker.connection.execute("PRAGMA data_version").fetchall()
    return int(rows[0][0])
