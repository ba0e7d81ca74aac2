"""A server on loopback that says exactly what it is told to, byte for byte, however wrong that is."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from timewright.targets.loop import LoopThread

DATA = Path(__file__).parent / "data"
PATIENCE = 60.0


class Heard:
    """One request as it came in."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *rest = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = line.split(" ", 2)
        self.pairs = [tuple(one.split(": ", 1)) for one in rest if one]
        self.headers = {name.lower(): value for name, value in self.pairs}
        self.body = body


class Talk:
    """The connection on which an answer is given."""

    def __init__(self, heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard = heard
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def for_ever(self, data: bytes) -> None:
        """Say the same thing until the other side has had enough."""
        while True:
            await self.say(data)
            await asyncio.sleep(0)

    async def hang_up_waited_for(self, at_most: float = PATIENCE) -> None:
        """Say nothing more until the other side closes, or so many seconds have passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                while await self._reader.read(65536):
                    continue

    async def pause(self, seconds: float) -> None:
        """Take one's time, as a slow server does."""
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """End the connection with a reset instead of a farewell."""
        bound: socket.socket = self._writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Talk], Awaitable[None]]


def wire(data: bytes) -> Script:
    """Say these bytes, then close."""

    async def script(talk: Talk) -> None:
        await talk.say(data)

    return script


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Script:
    """A well-formed answer; `content_type` stands for Content-Type."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return wire("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def moved(status: int, location: str) -> Script:
    return answer(status, Location=location)


async def silence(talk: Talk) -> None:
    await talk.hang_up_waited_for()


class Peer:
    """The server: paths with scripts, what was heard, and how many are connected now and were at most."""

    def __init__(
        self,
        scripts: dict[str, Script] | None = None,
        *,
        certificate: str = "",
        deaf: bool = False,
        greeting: bytes = b"",
    ) -> None:
        self.scripts = scripts or {}
        self.deaf = deaf
        self.greeting = greeting
        self.heard: list[Heard] = []
        self.connections = 0
        self.now_connected = 0
        self.most_connected = 0
        self.port = 0
        self._tls = _server_tls(certificate) if certificate else None
        self._loop = LoopThread("peer")
        self._changed = threading.Condition()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._loop.call(self._listen(), timeout=timedelta(seconds=PATIENCE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._stop(), timeout=timedelta(seconds=PATIENCE))
        self._loop.close(grace=timedelta(0))

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "") -> str:
        return f"{scheme or ('https' if self._tls else 'http')}://{host}:{self.port}{path}"

    def until(self, met: Callable[[Peer], bool]) -> None:
        """Wait until something is true of this server; fail loudly if it never is."""
        with self._changed:
            assert self._changed.wait_for(lambda: met(self), PATIENCE), "the peer waited in vain"

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._converse, "127.0.0.1", 0, ssl=self._tls, backlog=4096, limit=2**16
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)

    def _count(self, by: int) -> None:
        with self._changed:
            self.now_connected += by
            self.connections += max(by, 0)
            self.most_connected = max(self.most_connected, self.now_connected)
            self._changed.notify_all()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(1)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if self.deaf:
                    await asyncio.Event().wait()
                writer.write(self.greeting)
                heard = await _hear(reader)
                with self._changed:
                    self.heard.append(heard)
                    self._changed.notify_all()
                script = self.scripts.get(heard.path.partition("?")[0], answer(404))
                await script(Talk(heard, reader, writer))
        finally:
            writer.close()
            self._count(-1)


async def _hear(reader: asyncio.StreamReader) -> Heard:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0].partition(b":")[2])) if lengths else b""
    return Heard(head, body)


def _server_tls(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "tls" / f"{certificate}.pem")
    return context
