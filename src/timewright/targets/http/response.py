"""Reads an HTTP response with a size limit and turns it into an outcome."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import ClientError, ClientPayloadError, ClientResponse, StreamReader
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.budgets.costs import Cost, parse_money, parse_tokens
from timewright.core.moments import DAY, SECOND
from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import COST_HEADER, Http
from timewright.targets.http.connector import OutgoingRequest
from timewright.targets.http.request import REDIRECT_STATUSES
from timewright.targets.outcomes import is_within_depth
from timewright.targets.secret_references import RevealedSecrets

MAX_HEADER_CHARS = 512
MAX_JSON_VALUES = 100_000
MAX_RETRY_AFTER = 365 * DAY
MAX_RETRY_AFTER_CHARS = 64

_KEPT_HEADERS = (
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Date",
    "ETag",
    "Last-Modified",
    "Location",
    "Retry-After",
    "X-Request-Id",
)
_SUPPORTED_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47
_RAW_DEFLATE = -15
_JSON = re.compile(r"(?:application|text)/(?:[a-z0-9!#$&^_.+-]+\+)?json")
_BINARY = re.compile(r"(?:image|audio|video|font)/|application/(?:octet-stream|pdf|zip|gzip|x-tar|protobuf)")


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response: the status, selected headers, and the body as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    truncated: bool = False
    note: str = ""
    is_incomplete: bool = False


async def read_response(
    response: ClientResponse, *, max_bytes: int, request: OutgoingRequest, extra_headers: tuple[str, ...] = ()
) -> HttpResponse:
    """Read the body up to a limit on its decompressed size. The caller closes the connection.

    `extra_headers` are kept in addition to the usual ones.
    """
    kept = (*_KEPT_HEADERS, *extra_headers)
    headers = {name: response.headers[name][:MAX_HEADER_CHARS] for name in kept if name in response.headers}
    parsed = HttpResponse(status=response.status, headers=headers)
    encodings = _content_encodings(response)
    if encodings and (len(encodings) > 1 or encodings[0] not in _SUPPORTED_ENCODINGS):
        note = f"Content-Encoding {', '.join(encodings)[:60]} is not supported; the body was dropped"
        return replace(parsed, note=note)
    body = _Body(max_bytes, is_compressed=bool(encodings))
    is_incomplete = False
    _fail_on_disconnect(response)
    try:
        async for data in response.content.iter_any():
            if not body.add(data):
                break
    except zlib.error:
        return replace(parsed, note=f"the body is not valid {encodings[0]}; it was dropped")
    except (ClientError, OSError):
        is_incomplete = not request.limit_exceeded
    note = "the response is larger than allowed" if request.limit_exceeded else ""
    cut = is_incomplete or request.limit_exceeded or body.is_cut
    return replace(parsed, body=body.kept, truncated=cut, note=note, is_incomplete=is_incomplete)


def response_outcome(
    response: HttpResponse, *, duration_ms: int, revealed: RevealedSecrets, now: datetime
) -> Outcome:
    """2xx succeeds; every other status fails. Retry-After sets the earliest retry."""
    result = _result(response, duration_ms=duration_ms, revealed=revealed)
    named = _status_text(response.status)
    if response.is_incomplete:
        error = f"{named}, but the connection closed after {len(response.body)} bytes"
        return Failed(error=error, result=result, unknown=200 <= response.status <= 299)
    if 200 <= response.status <= 299:
        return Succeeded(result=result)
    if response.status in REDIRECT_STATUSES:
        return Failed(error=f"{named}, redirect not followed", result=result)
    not_before = parse_retry_after(response.headers.get("Retry-After", ""), now=now)
    return Failed(error=named, not_before=not_before, result=result)


def cost_headers(target: Http) -> tuple[str, ...]:
    """The response headers that the target reads its cost from."""
    sources = (target.tokens_from, target.money_from)
    return tuple(name.removeprefix(COST_HEADER) for name in sources if name.startswith(COST_HEADER))


def with_response_cost(outcome: Outcome, target: Http) -> Outcome:
    """Add the cost that the response reports. Invalid values are ignored."""
    if not (target.tokens_from or target.money_from) or not isinstance(outcome.result, dict):
        return outcome
    tokens = parse_tokens(_find_cost(outcome.result, target.tokens_from))
    money = parse_money(_find_cost(outcome.result, target.money_from))
    if tokens is None and money is None:
        return outcome
    return replace(outcome, cost=Cost(tokens=tokens, money=money))


def _find_cost(result: dict[str, Any], name: str) -> Any:
    """Read a header, or a field of the body by its path: `usage.total_tokens`."""
    if name.startswith(COST_HEADER):
        return result.get("headers", {}).get(name.removeprefix(COST_HEADER).lower())
    value = result.get("body") if name else None
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def parse_retry_after(written: str, *, now: datetime) -> datetime | None:
    """Parse Retry-After: seconds or a date, at most a year ahead. None if it is invalid."""
    text = written[:MAX_RETRY_AFTER_CHARS].strip()
    if text.isascii() and text.isdigit() and len(text) <= 20:
        at = now + min(int(text) * SECOND if len(text) <= 9 else MAX_RETRY_AFTER, MAX_RETRY_AFTER)
    else:
        try:
            at = parsedate_to_datetime(text)
            # The parser returns offset -0000 as a naive datetime; it means UTC.
            at = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(at, now + MAX_RETRY_AFTER) if at > now else None


def _fail_on_disconnect(response: ClientResponse) -> None:
    """Make reading the body fail when the connection closes.

    aiohttp closes the connection on a malformed chunk, but does not wake the reader of the body.
    """
    protocol = response.connection.protocol if response.connection is not None else None
    if protocol is None:
        return
    if protocol.closed is None:
        _fail_body(response.content)
    else:
        protocol.closed.add_done_callback(lambda lost: _fail_body(response.content, lost))


def _fail_body(body: StreamReader, lost: asyncio.Future[None] | None = None) -> None:
    if lost is not None and not lost.cancelled():
        lost.exception()
    if not body.is_eof() and body.exception() is None:
        body.set_exception(ClientPayloadError())


class _Body:
    """Collects the body up to a limit, decompressing one layer of gzip or deflate."""

    def __init__(self, max_bytes: int, *, is_compressed: bool) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self._has_data = False
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB) if is_compressed else None

    @property
    def kept(self) -> bytes:
        return bytes(self._data[: self._max_bytes])

    @property
    def is_cut(self) -> bool:
        stream = self._stream
        complete = stream is None or not self._has_data or (stream.eof and not stream.unused_data)
        return len(self._data) > self._max_bytes or not complete

    def add(self, data: bytes) -> bool:
        """Add data; returns whether more is wanted."""
        self._has_data = True
        self._data += data if self._stream is None else self._decompress(data, self._stream)
        ended = self._stream is not None and self._stream.eof
        return len(self._data) <= self._max_bytes and not ended

    def _decompress(self, data: bytes, stream: zlib._Decompress) -> bytes:
        space = self._max_bytes + 1 - len(self._data)
        try:
            return stream.decompress(data, space)
        except zlib.error:
            if self._data:
                raise
            # Some servers send raw deflate without the zlib wrapper that "deflate" requires.
            self._stream = zlib.decompressobj(_RAW_DEFLATE)
            return self._stream.decompress(data, space)


def _content_encodings(response: ClientResponse) -> list[str]:
    written = ",".join(response.headers.getall("Content-Encoding", []))
    return [one for part in written.split(",") if (one := part.strip().lower()) not in ("", "identity")]


def _status_text(status: int) -> str:
    """The status with its standard phrase. The server's own phrase is not trusted."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        known = 100 <= status <= 599
        return f"HTTP {status}" if known else f"HTTP {status}, which is not a valid status"


def _result(response: HttpResponse, *, duration_ms: int, revealed: RevealedSecrets) -> dict[str, Any]:
    data = revealed.redact(response.body)
    if response.truncated:
        data = revealed.drop_partial_end(data)
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    result: dict[str, Any] = {
        "status": response.status,
        "duration_ms": duration_ms,
        "body": _body(data, kind=kind, complete=not response.truncated),
        "truncated": response.truncated,
        "headers": _redact_headers(response.headers, revealed),
        "size": len(response.body),
    }
    return {**result, "note": response.note} if response.note else result


def _redact_headers(headers: Mapping[str, str], revealed: RevealedSecrets) -> dict[str, str]:
    return {name.lower(): revealed.redact_text(value) for name, value in headers.items()}


def _body(data: bytes, *, kind: str, complete: bool) -> Any:
    """JSON as values, text as text, and a placeholder for binary data."""
    if not data:
        return None
    if complete and _JSON.fullmatch(kind) and _is_small_json(data):
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return data.decode(errors="replace")
        return value if is_within_depth(value) else data.decode(errors="replace")
    if _BINARY.match(kind) or b"\0" in data:
        return f"<{len(data)} bytes of {kind[:60] or 'binary data'}>"
    return data.decode(errors="replace")


def _is_small_json(data: bytes) -> bool:
    """Whether parsing takes so little time that it does not delay other requests."""
    return sum(map(data.count, (b",", b"[", b"{"))) <= MAX_JSON_VALUES
