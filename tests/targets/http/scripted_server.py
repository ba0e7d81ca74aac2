"""A server on loopback that sends exactly the scripted bytes, valid or not."""

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

from timewright.targets.loop_thread import LoopThread

DATA = Path(__file__).parent / "data"
TIMEOUT_S = 60.0


class ReceivedRequest:
    """A received request."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *rest = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = line.split(" ", 2)
        self.pairs = [tuple(one.split(": ", 1)) for one in rest if one]
        self.headers = {name.lower(): value for name, value in self.pairs}
        self.body = body


class ServerConnection:
    """The connection on which a response is sent."""

    def __init__(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_forever(self, data: bytes) -> None:
        """Send the same bytes until the client disconnects."""
        while True:
            await self.send(data)
            await asyncio.sleep(0)

    async def wait_for_disconnect(self, at_most: float = TIMEOUT_S) -> None:
        """Wait until the client disconnects, at most `at_most` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                while await self._reader.read(65536):
                    continue

    async def pause(self, seconds: float) -> None:
        """Wait like a slow server."""
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        bound: socket.socket = self._writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[ServerConnection], Awaitable[None]]


def send_bytes(data: bytes) -> Script:
    """Send these bytes, then close."""

    async def script(talk: ServerConnection) -> None:
        await talk.send(data)

    return script


def respond(status: int = 200, body: bytes = b"", **headers: str) -> Script:
    """A valid response; `content_type` sets Content-Type."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return send_bytes("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def redirect(status: int, location: str) -> Script:
    return respond(status, Location=location)


async def silence(talk: ServerConnection) -> None:
    await talk.wait_for_disconnect()


class ScriptedServer:
    """A server with a script per path. Records requests and the number of connections."""

    def __init__(
        self,
        scripts: dict[str, Script] | None = None,
        *,
        certificate: str = "",
        never_reads: bool = False,
        greeting: bytes = b"",
    ) -> None:
        self.scripts = scripts or {}
        self.never_reads = never_reads
        self.greeting = greeting
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.now_connected = 0
        self.max_connected = 0
        self.port = 0
        self._tls = _server_tls(certificate) if certificate else None
        self._loop = LoopThread("peer")
        self._changed = threading.Condition()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._loop.call(self._listen(), timeout=timedelta(seconds=TIMEOUT_S))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._stop(), timeout=timedelta(seconds=TIMEOUT_S))
        self._loop.close(grace=timedelta(0))

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "") -> str:
        return f"{scheme or ('https' if self._tls else 'http')}://{host}:{self.port}{path}"

    def wait_until(self, met: Callable[[ScriptedServer], bool]) -> None:
        """Wait until a condition on this server is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: met(self), TIMEOUT_S), "timed out while waiting"

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=4096, limit=2**16
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
            self.max_connected = max(self.max_connected, self.now_connected)
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(1)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if self.never_reads:
                    await asyncio.Event().wait()
                writer.write(self.greeting)
                request = await _read_request(reader)
                with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                script = self.scripts.get(request.path.partition("?")[0], respond(404))
                await script(ServerConnection(request, reader, writer))
        finally:
            writer.close()
            self._count(-1)


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0].partition(b":")[2])) if lengths else b""
    return ReceivedRequest(head, body)


def _server_tls(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "tls" / f"{certificate}.pem")
    return context
