"""An answer as it goes out: a status, headers in bytes with those that every answer carries, and a body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from timewright.doors.http.visits import Receive, Scope, Send

Header = tuple[bytes, bytes]

_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"cache-control", b"no-store"),
)
_OVER_TLS: tuple[Header, ...] = (*_ALWAYS, (b"strict-transport-security", b"max-age=31536000"))
_JSON = (b"content-type", b"application/json")
_WIRED = {
    https: b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n"
    for https, headers in ((False, _ALWAYS), (True, _OVER_TLS))
}
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Reply:
    """JSON that may be sent any number of times: nothing about it changes."""

    __slots__ = ("_body", "_headers", "_status")

    def __init__(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self._headers = ((b"content-length", b"%d" % len(body)), _JSON, *own)
        self._status = status
        self._body = body

    @property
    def size(self) -> int:
        """How many bytes its body has."""
        return len(self._body)

    def wire(self, *, https: bool, said: Iterable[bytes]) -> tuple[bytes, ...]:
        """The same as it stands on a line of HTTP/1.1, with what else is said in its head."""
        own = b"".join([b"%b: %b\r\n" % header for header in self._headers])
        return (_STATUS[self._status], *said, own, _WIRED[https], self._body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the messages are made anew, because whoever is in between may change them."""
        always = _OVER_TLS if scope.get("scheme") == "https" else _ALWAYS
        headers = [*self._headers, *always]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


def dressed(send: Send, *, https: bool) -> Send:
    """Send with the headers that every answer carries, where the answer says nothing else about them."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message["headers"]}
            more = (header for header in (_OVER_TLS if https else _ALWAYS) if header[0] not in names)
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending
