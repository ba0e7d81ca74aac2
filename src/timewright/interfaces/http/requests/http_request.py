"""One HTTP request: path, query, headers, operation context, and its body, read within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.responses import Response

from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.requests.parsing import MAX_BODY_BYTES
from timewright.operations import OperationContext

BODY_TIMEOUT_S = 20.0
MAX_PATH_BYTES = 8 * 1024

_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})
# In these versions a body is announced by a header; later versions may have one without.
_VERSIONS_WITH_BODY_HEADERS = frozenset({"1.0", "1.1"})

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Handler = Callable[["HttpRequest"], Awaitable[Any]]


class HttpRequest:
    """A request that has passed the host check."""

    def __init__(
        self, scope: Scope, receive: Receive, *, context: OperationContext, received_at: float = 0.0
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.context = context
        self.received_at = received_at
        self.method: str = scope["method"]
        self.raw_headers: dict[bytes, bytes] = dict(scope["headers"])
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.root_path: str = scope.get("root_path", "").rstrip("/")
        self.segments = _segments(scope, self.root_path)
        self.path: Mapping[str, str] = {}

    @cached_property
    def headers(self) -> Headers:
        """All headers; built on demand because most requests use at most two."""
        return Headers(scope=self.scope)

    @property
    def docs_url(self) -> str:
        """The URL of the page that explains problem codes."""
        return f"{self.root_path}/docs"

    @property
    def has_no_body(self) -> bool:
        """Whether the request certainly has no body."""
        return self.scope.get("http_version") in _VERSIONS_WITH_BODY_HEADERS and _BODY_HEADERS.isdisjoint(
            self.raw_headers
        )

    async def body(self) -> bytes:
        """Read the whole body; raises if it is compressed, too large or too slow."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise HttpProblem(
                415,
                "unsupported_media_type",
                "the body is compressed",
                field="content-encoding",
                rule="the body must not be compressed",
                fix="leave Content-Encoding out",
            )
        if _declared_length(self.headers) > MAX_BODY_BYTES:
            raise _too_large()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._read_parts()
        except TimeoutError:
            raise HttpProblem(
                408,
                "too_slow",
                "the body was not received in time",
                rule=f"within {BODY_TIMEOUT_S:g} seconds",
                fix="send the request again",
                headers={"connection": "close"},
            ) from None

    async def _read_parts(self) -> bytes:
        parts, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ConnectionAbortedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MAX_BODY_BYTES:
                raise _too_large()
            if not message.get("more_body", False):
                return b"".join(parts)


def no_content(*, headers: Mapping[str, str]) -> Response:
    """Return an empty response with headers."""
    return Response(status_code=204, headers=dict(headers))


def _segments(scope: Scope, root: str) -> tuple[str, ...]:
    """Split the path and decode each segment by itself, so that a name may contain a slash."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    prefix = root.encode()
    if prefix and (raw == prefix or raw.startswith(prefix + b"/")):
        raw = raw[len(prefix) :]
    if len(raw) > MAX_PATH_BYTES:
        raise HttpProblem(414, "uri_too_long", "the path is too long", rule=f"at most {MAX_PATH_BYTES} bytes")
    try:
        if b"%" not in raw:
            return tuple(raw.decode("utf-8").split("/")[1:])
        return tuple(unquote_to_bytes(part).decode("utf-8") for part in raw.split(b"/")[1:])
    except UnicodeDecodeError:
        raise HttpProblem(
            400,
            "invalid_path",
            "the path is invalid",
            rule="UTF-8, percent-encoded",
            fix="/api/v1/schedules",
        ) from None


def _declared_length(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _too_large() -> HttpProblem:
    return HttpProblem(
        413,
        "too_large",
        "the body is too large",
        rule=f"at most {MAX_BODY_BYTES // 1024} KiB",
        fix="send less, or split it into several requests",
        headers={"connection": "close"},
    )
