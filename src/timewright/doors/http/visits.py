"""One request on its way: what it says, who asks, and its body, read within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.responses import Response

from timewright.doors.http.asked import LARGEST_BODY
from timewright.doors.http.problems import Refused
from timewright.operations import Context

BODY_SECONDS = 20.0
LONGEST_PATH = 8 * 1024

_OF_A_BODY = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})
_SAYS_SO = frozenset({"1.0", "1.1"})

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Handler = Callable[["Visit"], Awaitable[Any]]


class Visit:
    """A request that has passed the gate."""

    def __init__(self, scope: Scope, receive: Receive, *, context: Context, at: float = 0.0) -> None:
        self.scope = scope
        self.receive = receive
        self.context = context
        self.at = at
        self.method: str = scope["method"]
        self.said: dict[bytes, bytes] = dict(scope["headers"])
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.root: str = scope.get("root_path", "").rstrip("/")
        self.segments = _segments(scope, self.root)
        self.path: Mapping[str, str] = {}

    @cached_property
    def headers(self) -> Headers:
        """Every header, by name; most requests are answered without a look at more than two of them."""
        return Headers(scope=self.scope)

    @property
    def docs(self) -> str:
        """Where the page is that says what problems mean."""
        return f"{self.root}/docs"

    @property
    def is_bare(self) -> bool:
        """Whether there is no body for sure; later versions of HTTP may have one without saying so."""
        return self.scope.get("http_version") in _SAYS_SO and _OF_A_BODY.isdisjoint(self.said)

    async def body(self) -> bytes:
        """The whole body, unless it is too large or does not come."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise Refused(
                415,
                "unsupported_media_type",
                "the body is compressed",
                field="content-encoding",
                rule="bodies are sent as they are",
                fix="leave Content-Encoding out",
            )
        if _declared(self.headers) > LARGEST_BODY:
            raise _too_large()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read()
        except TimeoutError:
            raise Refused(
                408,
                "too_slow",
                "the body did not come",
                rule=f"within {BODY_SECONDS:g} seconds",
                fix="send it again",
                headers={"connection": "close"},
            ) from None

    async def _read(self) -> bytes:
        parts, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ConnectionAbortedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > LARGEST_BODY:
                raise _too_large()
            if not message.get("more_body", False):
                return b"".join(parts)


def no_content(*, headers: Mapping[str, str]) -> Response:
    """An answer that says nothing but its headers."""
    return Response(status_code=204, headers=dict(headers))


def _segments(scope: Scope, root: str) -> tuple[str, ...]:
    """The parts of the path, each decoded by itself, so that a name may hold a slash."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    prefix = root.encode()
    if prefix and (raw == prefix or raw.startswith(prefix + b"/")):
        raw = raw[len(prefix) :]
    if len(raw) > LONGEST_PATH:
        raise Refused(414, "uri_too_long", "the path is too long", rule=f"at most {LONGEST_PATH} bytes")
    try:
        if b"%" not in raw:
            return tuple(raw.decode("utf-8").split("/")[1:])
        return tuple(unquote_to_bytes(part).decode("utf-8") for part in raw.split(b"/")[1:])
    except UnicodeDecodeError:
        raise Refused(
            400,
            "invalid_path",
            "the path cannot be read",
            rule="UTF-8, percent-encoded",
            fix="/api/v1/schedules",
        ) from None


def _declared(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _too_large() -> Refused:
    return Refused(
        413,
        "too_large",
        "the body is too large",
        rule=f"at most {LARGEST_BODY // 1024} KiB",
        fix="less, or several of them",
        headers={"connection": "close"},
    )
