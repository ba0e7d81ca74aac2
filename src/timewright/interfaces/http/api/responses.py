"""JSON responses, their headers ETag and Link, and the security headers of every response."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from timewright.interfaces.http.requests.http_request import HttpRequest, Receive, Scope, Send
from timewright.interfaces.http.requests.parsing import split_query
from timewright.operations import operations

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
_VARY = (b"vary", b"accept-encoding")
MIN_COMPRESSED_BYTES = 1024
COMPRESSION_LEVEL = 1  # a page of runs to a tenth in less than half a millisecond

# A query that can be copied into a link as it is.
_SAFE_QUERY = re.compile(r"[A-Za-z0-9._~=&%+-]*")


class ApiResponse:
    """An immutable JSON response; it can be cached and sent any number of times.

    Large ones are compressed for clients that accept it: browsers do, and the dashboard asks often.
    """

    __slots__ = ("_body", "_compressed", "_headers", "_status")

    def __init__(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self._headers = (_JSON, *own, *((_VARY,) if len(body) >= MIN_COMPRESSED_BYTES else ()))
        self._status = status
        self._body = body
        self._compressed = b""

    @property
    def size_bytes(self) -> int:
        """Size of the body."""
        return len(self._body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; the messages are new each time because middleware may change them."""
        always = _TLS_HEADERS if scope.get("scheme") == "https" else _SECURITY_HEADERS
        body, headers = self._body, [*self._headers, *always]
        if len(body) >= MIN_COMPRESSED_BYTES and _accepts_gzip(scope):
            self._compressed = self._compressed or gzip.compress(body, COMPRESSION_LEVEL, mtime=0)
            body = self._compressed
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _accepts_gzip(scope: Scope) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])


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


def response_headers(request: HttpRequest, answer: Mapping[str, Any], noun: str) -> dict[str, str]:
    """Return ETag and Link of an answer about objects of a noun."""
    headers: dict[str, str] = {}
    revision = revision_of(answer, noun) if noun in versioned_nouns() else None
    if revision is not None:
        headers["etag"] = f'"{revision}"'
    if answer.get("cursor"):
        headers["link"] = f'<{_next_page(request, str(answer["cursor"]))}>; rel="next"'
    return headers


@cache
def versioned_nouns() -> frozenset[str]:
    """Return the nouns that have revisions which a write can require."""
    return frozenset(one.noun for one in operations if "revision" in one.request_type.__struct_fields__)


def revision_of(answer: Mapping[str, Any], noun: str) -> int | None:
    """Return the revision of the object in an answer."""
    for part in (answer, answer.get("detail")):
        revision = _field(_field(part, noun), "revision")
        if isinstance(revision, int):
            return revision
    return None


def _field(part: object, name: str) -> object:
    """Return a field of an answer that may be encoded already."""
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)


def _next_page(request: HttpRequest, cursor: str) -> str:
    path = "/".join(quote(part, safe="") for part in request.segments)
    if _SAFE_QUERY.fullmatch(request.query) and "cursor" not in request.query:
        before = f"{request.query}&" if request.query else ""
        return f"{request.root_path}/{path}?{before}cursor={quote(cursor, safe='')}"
    pairs = [(name, value) for name, value in split_query(request.query) if name != "cursor"]
    return f"{request.root_path}/{path}?{urlencode([*pairs, ('cursor', cursor)])}"
