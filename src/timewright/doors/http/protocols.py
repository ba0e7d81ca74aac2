"""How HTTP is read from a connection: by httptools on uvloop where the `fast` extra is, by h11 elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 * 1024
LARGEST_PIECE = 64 * 1024


class Joined:
    """A transport that sends what is written in one turn of the loop as one piece: a head with its body."""

    __slots__ = ("_loop", "_parts", "_size", "_transport")

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send it soon; whoever streams much without a pause is not waited for."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > LARGEST_PIECE:
            self._send()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        closing: bool = self._transport.is_closing()
        return closing

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class Impatient(asyncio.Protocol):
    """Closes a connection on which no whole head of a request comes in time; goes before a protocol."""

    loop: Any
    transport: Any
    cycle: Any
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        joined: Any = Joined(transport, self.loop)
        super().connection_made(joined)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """A head that is begun has to end; one that has ended is waited for no longer."""
        super().data_received(data)
        if not self.is_awaited():
            self._wait_no_longer()
        elif self._waiting is None:
            self._wait()

    def is_awaited(self) -> bool:
        """Whether a head has begun, or has to."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _wait_no_longer(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.is_awaited():
            self.transport.close()


class PlainProtocol(Impatient, H11Protocol):
    """HTTP as h11 reads it, which is always there; it limits the head itself."""


def protocol() -> type[asyncio.Protocol]:
    """The faster protocol where it is installed."""
    try:
        from timewright.doors.http.fast_protocol import FastProtocol
    except ModuleNotFoundError:
        return PlainProtocol
    return FastProtocol


def new_loop() -> asyncio.AbstractEventLoop:
    """The faster loop where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
