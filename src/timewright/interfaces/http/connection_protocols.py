"""Connection protocols of the server: httptools on uvloop with the `fast` extra, else h11."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024
MAX_WRITE_BYTES = 64 * 1024


class CoalescingTransport:
    """A transport that joins the writes of one loop iteration, so headers and body are sent together."""

    __slots__ = ("_loop", "_parts", "_size", "_transport")

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Buffer data until the next loop iteration, or until 64 KiB are buffered."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_WRITE_BYTES:
            self._flush()

    def is_closing(self) -> bool:
        """Whether the transport is closing."""
        closing: bool = self._transport.is_closing()
        return closing

    def close(self) -> None:
        """Flush the buffer and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class HeaderTimeoutProtocol(asyncio.Protocol):
    """A mixin that closes a connection if the headers of a request take longer than 10 s."""

    loop: Any
    transport: Any
    cycle: Any
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first request."""
        coalescing: Any = CoalescingTransport(transport, self.loop)
        super().connection_made(coalescing)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the headers are complete; start it for the next request."""
        super().data_received(data)
        if not self.awaits_headers():
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def awaits_headers(self) -> bool:
        """Whether the connection waits for headers."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_TIMEOUT_S, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self.awaits_headers():
            self.transport.close()


class H11ServerProtocol(HeaderTimeoutProtocol, H11Protocol):
    """The h11 protocol, which limits the size of the headers itself."""


def protocol_class() -> type[asyncio.Protocol]:
    """Return the httptools protocol if it is installed, else h11."""
    try:
        from timewright.interfaces.http.httptools_protocol import HttptoolsServerProtocol
    except ModuleNotFoundError:
        return H11ServerProtocol
    return HttptoolsServerProtocol


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop if it is installed, else an asyncio loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
