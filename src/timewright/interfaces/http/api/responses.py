"""JSON responses, and the security headers that every response carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.interfaces.http.requests.http_request import Receive, Scope, Send

Header = tuple[bytes, bytes]

_SECURITY_HEADERS: tuple[Header, ...] = (
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
_TLS_HEADERS: tuple[Header, ...] = (*_SECURITY_HEADERS, (b"strict-transport-security", b"max-age=31536000"))
_JSON = (b"content-type", b"application/json")


class ApiResponse:
    """An immutable JSON response; it can be cached and sent any number of times."""

    __slots__ = ("_body", "_headers", "_status")

    def __init__(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self._headers = ((b"content-length", b"%d" % len(body)), _JSON, *own)
        self._status = status
        self._body = body

    @property
    def size_bytes(self) -> int:
        """Size of the body."""
        return len(self._body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; the messages are new each time because middleware may change them."""
        always = _TLS_HEADERS if scope.get("scheme") == "https" else _SECURITY_HEADERS
        headers = [*self._headers, *always]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


def with_security_headers(send: Send, *, https: bool) -> Send:
    """Wrap `send` so that it adds the security headers that the response does not set itself."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message["headers"]}
            always = _TLS_HEADERS if https else _SECURITY_HEADERS
            missing = (header for header in always if header[0] not in names)
            message = {**message, "headers": [*message["headers"], *missing]}
        await send(message)

    return send_with_headers
