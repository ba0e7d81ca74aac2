"""How a process hears that another has written: it looks at a file's version, or a server calls."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

LOOK_EVERY = 0.25
# Behind a pooler that shares connections nobody is called: then we look for ourselves, not too often.
LOOK_WITHOUT_CALLS = 2.0
# Many calls in a row are one.
GATHERED = 0.05
TRY_AGAIN = 2.0


class FileEar:
    """Hears of commits of other connections to a file, by comparing a number that costs no transaction."""

    def __init__(self, version: Callable[[], int | None], *, every: float = LOOK_EVERY) -> None:
        self._version = version
        self._every = every
        self._over = threading.Event()

    def calls(self) -> Iterator[None]:
        """Yield whenever another has written since the last look, until closed."""
        last = self._version()
        while not self._over.wait(self._every):
            version = self._version()
            if version is not None and version != last:
                last = version
                yield

    def close(self) -> None:
        """End the calls; from any thread."""
        self._over.set()


class ServerEar:
    """Hears NOTIFY on a connection of its own, which is made again when it breaks."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        channel: str,
        own: str,
        retry: float = TRY_AGAIN,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._own = own
        self._retry = retry
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._bell: socket.socket | None = None

    def calls(self) -> Iterator[None]:
        """Yield whenever another may have written, until closed; also after a gap in which nobody heard."""
        while not self._over.is_set():
            near, bell = socket.socketpair()
            with near, bell:
                with self._lock:
                    self._bell = bell
                try:
                    yield from self._while_connected(near)
                finally:
                    # Also when whoever listens has gone: a bell that is closed must not be rung.
                    with self._lock:
                        self._bell = None
            self._over.wait(self._retry)

    def close(self) -> None:
        """End the calls; from any thread."""
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
                    while not self._over.wait(LOOK_WITHOUT_CALLS):
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
                    self._over.wait(GATHERED)
                    self._is_called(connection)
                    yield

    def _is_called(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether anyone but ourselves has called since we last asked."""
        connection.pgconn.consume_input()
        called = False
        while (call := connection.pgconn.notifies()) is not None:
            called = called or call.extra.decode() != self._own
        return called


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether someone stands between us and the server: then the process we were told of is not the one."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid
