"""A TCP proxy to PostgreSQL that can cut connections before or after a commit, or stall them."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

CutPoint = Literal["before", "after"]

# COMMIT as a simple query, or as a prepared statement once psycopg prepares it.
_TEXT = b"COMMIT\0"
COMMIT = b"Q" + struct.pack(">i", 4 + len(_TEXT)) + _TEXT
PREPARED = re.compile(rb"P.{4}([^\0]+)\0COMMIT\0", re.DOTALL)
CHUNK_BYTES = 65_536


class Proxy:
    """Forwards bytes in both directions until told otherwise."""

    def __init__(self, url: str) -> None:
        self._parts = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._cuts: list[CutPoint] = []
        self.cuts: dict[CutPoint, int] = {"before": 0, "after": 0}
        self.forwarding = threading.Event()
        self.forwarding.set()
        self.delay_s = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the same database through this proxy."""
        host, port = self._listener.getsockname()
        others = {key: value for key, value in self._parts.items() if key not in ("host", "port", "dbname")}
        query = "&".join(f"{key}={quote(value, safe='')}" for key, value in others.items())
        return f"postgresql:///{quote(self._parts['dbname'], safe='')}?host={host}&port={port}&{query}"

    def cut_at_commit(self, *cut_points: CutPoint) -> None:
        """Cut the next commits, one after another, each before or after it is applied."""
        with self._lock:
            self._cuts += cut_points

    def has_cut(self, cut: CutPoint, count: int) -> bool:
        """Whether `count` commits were cut this way."""
        return self.cuts[cut] >= count

    def switch_to(self, url: str) -> None:
        """Forward to another server from now on; every connection is closed."""
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
        self._parts = {**self._parts, "host": parts["host"], "port": parts.get("port", "5432")}
        self.drop_connections()

    def stall(self) -> None:
        """Forward nothing, and keep every connection open."""
        self.forwarding.clear()

    def drop_connections(self) -> None:
        """Close every connection; new ones are forwarded."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        self.forwarding.set()

    def close(self) -> None:
        """Stop the proxy."""
        self._listener.close()
        self.drop_connections()

    def next_cut(self) -> CutPoint | None:
        """The cut for the commit that is about to be forwarded, if any."""
        with self._lock:
            if not self._cuts:
                return None
            cut = self._cuts.pop(0)
            self.cuts[cut] += 1
            return cut

    def forget(self, connection: _Connection) -> None:
        """Remove a closed connection."""
        with self._lock:
            self._connections.discard(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            connection = _Connection(self, client, server)
            with self._lock:
                self._connections.add(connection)
            connection.start()

    def _connect(self) -> socket.socket:
        host, port = self._parts.get("host", "/tmp"), int(self._parts.get("port", 5432))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"{host}/.s.PGSQL.{port}")
        except OSError:
            server.close()
            raise
        return server


class _Connection:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answers_dropped = threading.Event()
        self._name: bytes | None = None

    def start(self) -> None:
        """Forward in both directions, each on a thread."""
        for source, sink in ((self._client, self._forward_query), (self._server, self._forward_answer)):
            threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        """Close both sides."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy.forget(self)

    def _forward(self, source: socket.socket, sink: Callable[[bytes], None]) -> None:
        try:
            while content := source.recv(CHUNK_BYTES):
                self._proxy.forwarding.wait()
                if self._proxy.delay_s:
                    time.sleep(self._proxy.delay_s)
                sink(content)
        except OSError:
            pass
        finally:
            self.close()

    def _forward_query(self, content: bytes) -> None:
        cut = self._proxy.next_cut() if self._commits(content) else None
        if cut == "before":
            raise ConnectionAbortedError
        if cut == "after":
            self._answers_dropped.set()
        self._server.sendall(content)

    def _commits(self, content: bytes) -> bool:
        named = PREPARED.search(content)
        if named is not None:
            self._name = b"\0" + named[1] + b"\0"
        is_bound = self._name is not None and content.startswith(b"B") and self._name in content[:64]
        return content.endswith(COMMIT) or is_bound

    def _forward_answer(self, content: bytes) -> None:
        if self._answers_dropped.is_set():
            raise ConnectionAbortedError
        self._client.sendall(content)


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """Yield a proxy to a database, closed at the end."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
