"""A line between us and a PostgreSQL server that can be cut: before a commit, after it, or without a word."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

Cut = Literal["before", "after"]

# A commit as a plain query; and, once it has been said often enough, under the name it was prepared as.
_TEXT = b"COMMIT\0"
COMMIT = b"Q" + struct.pack(">i", 4 + len(_TEXT)) + _TEXT
PREPARED = re.compile(rb"P.{4}([^\0]+)\0COMMIT\0", re.DOTALL)
CHUNK = 65_536


class Proxy:
    """Passes bytes on in both directions, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        self._parts = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._lines: set[_Line] = set()
        self._orders: list[Cut] = []
        self.cuts: dict[Cut, int] = {"before": 0, "after": 0}
        self.talking = threading.Event()
        self.talking.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """How to reach the same database through this line."""
        host, port = self._door.getsockname()
        others = {key: value for key, value in self._parts.items() if key not in ("host", "port", "dbname")}
        query = "&".join(f"{key}={quote(value, safe='')}" for key, value in others.items())
        return f"postgresql:///{quote(self._parts['dbname'], safe='')}?host={host}&port={port}&{query}"

    def cut_at_commit(self, *orders: Cut) -> None:
        """Cut the coming commits, one after another, each before it is applied or after."""
        with self._lock:
            self._orders += orders

    def has_cut(self, order: Cut, count: int) -> bool:
        """Whether so many commits were cut in this way."""
        return self.cuts[order] >= count

    def silence(self) -> None:
        """Pass nothing on any more, and keep every connection as if nothing had happened."""
        self.talking.clear()

    def hang_up(self) -> None:
        """End every connection; those that come later are passed on again."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.close()
        self.talking.set()

    def close(self) -> None:
        """End the line for good."""
        self._door.close()
        self.hang_up()

    def next_order(self) -> Cut | None:
        """What is to happen to the commit that is about to be passed on."""
        with self._lock:
            if not self._orders:
                return None
            order = self._orders.pop(0)
            self.cuts[order] += 1
            return order

    def forget(self, line: _Line) -> None:
        """A connection that is over."""
        with self._lock:
            self._lines.discard(line)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            with suppress(OSError):
                line = _Line(self, client, self._connect())
                with self._lock:
                    self._lines.add(line)
                line.start()

    def _connect(self) -> socket.socket:
        host, port = self._parts.get("host", "/tmp"), int(self._parts.get("port", 5432))  # noqa: S108
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server


class _Line:
    """One connection: what the client says, what the server answers, and where it is cut."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._muted = threading.Event()
        self._name: bytes | None = None

    def start(self) -> None:
        """Pass on, in both directions, each on a thread."""
        for source, sink in ((self._client, self._say), (self._server, self._answer)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        """End both sides; whoever waits for a byte hears of it."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy.forget(self)

    def _pass(self, source: socket.socket, sink: Callable[[bytes], None]) -> None:
        try:
            while content := source.recv(CHUNK):
                self._proxy.talking.wait()
                sink(content)
        except OSError:
            pass
        finally:
            self.close()

    def _say(self, content: bytes) -> None:
        order = self._proxy.next_order() if self._commits(content) else None
        if order == "before":
            raise ConnectionAbortedError
        if order == "after":
            self._muted.set()
        self._server.sendall(content)

    def _commits(self, content: bytes) -> bool:
        named = PREPARED.search(content)
        if named is not None:
            self._name = b"\0" + named[1] + b"\0"
        is_bound = self._name is not None and content.startswith(b"B") and self._name in content[:64]
        return content.endswith(COMMIT) or is_bound

    def _answer(self, content: bytes) -> None:
        if self._muted.is_set():
            raise ConnectionAbortedError
        self._client.sendall(content)


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A line to a server's database, closed at the end."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
