"""The response to one HTTP request: a JSON document, or a stream of events if messages precede the answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import anyio

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

# A proxy may close a connection on which nothing arrives for 30 s or 60 s.
PING_INTERVAL_S = 15.0
_PING = b": ping\r\n\r\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class ResponseStream:
    """Passes a JSON answer on as it is, or as the last event of a stream that messages before it opened."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = anyio.Lock()
        self._answer = b""
        self._has_answered = False
        self.opened = anyio.Event()
        """Set when the response has become a stream."""

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        async with self._lock:
            self._has_answered = True
            if not self.opened.is_set():
                await self._send(message)
            elif message["type"] == "http.response.body":
                self._answer += message.get("body", b"")
                if not message.get("more_body", False):
                    await self._send(_body(_event(self._answer), more=False))

    async def write(self, message: Mapping[str, Any]) -> None:
        """Send a message to the client, before the answer."""
        await self._write(_event(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()))

    async def send_pings(self) -> None:
        """Keep the connection open while the answer takes long."""
        while True:
            await anyio.sleep(PING_INTERVAL_S)
            await self._write(_PING)

    async def _write(self, text: bytes) -> None:
        async with self._lock:
            if self._has_answered:
                return
            if not self.opened.is_set():
                self.opened.set()
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await self._send(_body(text, more=True))


def _event(data: bytes) -> bytes:
    return b"event: message\r\ndata: " + data + b"\r\n\r\n"


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
