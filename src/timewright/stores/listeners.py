"""Notices commits: a callback after own ones, polling or LISTEN for those of other processes."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from timewright.ports import Store, Transaction
from timewright.ports.store import ClockDoubt, ClockSource, NonBlockingReader

if TYPE_CHECKING:
    import psycopg


POLL_INTERVAL_S = 0.25
# Behind a pooler NOTIFY does not arrive, so changes are assumed at this interval.
POLL_WITHOUT_NOTIFY_S = 2.0
# Once a notification is handled, the next one is reported after this many times as long as that took, at most
# after a twentieth of a second: a busy fleet notifies all the time.
NOTIFY_PAUSE_FACTOR, MAX_NOTIFY_PAUSE_S = 20, 0.05
RECONNECT_AFTER_S = 2.0

T = TypeVar("T")


class FilePoller:
    """Detects commits of other connections by polling `PRAGMA data_version`, which needs no transaction."""

    def __init__(self, version: Callable[[], int | None], *, interval_s: float = POLL_INTERVAL_S) -> None:
        self._version = version
        self._every = interval_s
        self._over = threading.Event()

    def changes(self) -> Iterator[None]:
        """Yield at the start and after another connection has written, until closed.

        The first one covers what was written after the caller last read the store and before the first poll.
        """
        last = self._version()
        yield
        while not self._over.wait(self._every):
            version = self._version()
            if version is not None and version != last:
                last = version
                yield

    def close(self) -> None:
        """End `changes`. Callable from any thread."""
        self._over.set()


class PostgresListener:
    """Receives NOTIFY on its own connection, and reconnects when that breaks."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        channel: str,
        own_id: str,
        reconnect_after_s: float = RECONNECT_AFTER_S,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._own = own_id
        self._retry = reconnect_after_s
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._bell: socket.socket | None = None

    def changes(self) -> Iterator[None]:
        """Yield after another process may have written, until closed; also after each reconnect."""
        while not self._over.is_set():
            near, bell = socket.socketpair()
            with near, bell:
                with self._lock:
                    self._bell = bell
                try:
                    yield from self._while_connected(near)
                finally:
                    # Also if the consumer stops iterating: close() must not write to a closed socket.
                    with self._lock:
                        self._bell = None
            self._over.wait(self._retry)

    def close(self) -> None:
        """End `changes`. Callable from any thread."""
        with self._lock:
            self._over.set()
            if self._bell is not None:
                self._bell.send(b"\0")

    def _while_connected(self, near: socket.socket) -> Iterator[None]:
        import psycopg

        with suppress(psycopg.Error, OSError):
            connection = self._connect()
            try:
                if is_pooled(connection):
                    while not self._over.wait(POLL_WITHOUT_NOTIFY_S):
                        yield
                    return
                connection.execute(f"LISTEN {self._channel}")
                yield
                yield from self._listen(connection, near)
            finally:
                connection.close()

    def _listen(self, connection: psycopg.Connection[Any], near: socket.socket) -> Iterator[None]:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(near, selectors.EVENT_READ)
            while not self._over.is_set():
                selector.select()
                if self._is_called(connection):
                    began = monotonic()
                    yield
                    self._over.wait(min((monotonic() - began) * NOTIFY_PAUSE_FACTOR, MAX_NOTIFY_PAUSE_S))

    def _is_called(self, connection: psycopg.Connection[Any]) -> bool:
        """Consume pending notifications; returns whether any came from another process."""
        connection.pgconn.consume_input()
        called = False
        while (call := connection.pgconn.notifies()) is not None:
            called = called or call.extra.decode() != self._own
        return called


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether a pooler sits in between: then the backend's pid is not the one of the handshake."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


class NotifyingStore:
    """Wraps a store and calls `on_commit` after every write, so that an engine can react soon."""

    def __init__(self, store: Store, on_commit: Callable[[], object]) -> None:
        self._store = store
        self._announce = on_commit

    def now(self) -> datetime:
        """Return the store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction, then call `on_commit`."""
        answer = self._store.write(work, commit_at=commit_at)
        self._announce()
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the store."""
        return self._store.read(work)

    @property
    def clock_doubt(self) -> ClockDoubt | None:
        """The reading of the store's clock in doubt, if the store checks it."""
        doubt: ClockDoubt | None = getattr(self._store, "clock_doubt", None)
        return doubt

    def accept_clock(self) -> None:
        """Use the reading in doubt, then call `on_commit`."""
        if isinstance(self._store, ClockSource):
            self._store.accept_clock()
            self._announce()

    @property
    def nonblocking_reader(self) -> NonBlockingReader | None:
        """The non-blocking reader of the store, if it has one."""
        return getattr(self._store, "nonblocking_reader", None)

    def close(self) -> None:
        """Close every connection."""
        self._store.close()
