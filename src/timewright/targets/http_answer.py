"""An HTTP answer: read with a ceiling, kept as data, and turned into an outcome."""

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

from timewright.core.moments import DAY, SECOND
from timewright.core.run import Failed, Outcome, Succeeded
from timewright.targets.answers import is_shallow
from timewright.targets.guard import Asked
from timewright.targets.http_request import REDIRECTS
from timewright.targets.signing import Revealed

LONGEST_HEADER = 512
MOST_VALUES = 100_000
LONGEST_WAIT = 365 * DAY

_KEPT = (
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
_INFLATED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47
_RAW_DEFLATE = -15
_JSON = re.compile(r"(?:application|text)/(?:[a-z0-9!#$&^_.+-]+\+)?json")
_BINARY = re.compile(r"(?:image|audio|video|font)/|application/(?:octet-stream|pdf|zip|gzip|x-tar|protobuf)")


class Answer(Struct, frozen=True, kw_only=True):
    """What came back: the status, the few headers that are kept, and the body as far as it was read."""

    status: int
    headers: dict[str, str]
    data: bytes = b""
    truncated: bool = False
    note: str = ""
    broken: bool = False


async def read_answer(
    response: ClientResponse, *, most_bytes: int, asked: Asked, also: tuple[str, ...] = ()
) -> Answer:
    """Read the body up to a ceiling that counts what it inflates to; the caller closes the connection.

    `also` are headers that are kept beside the usual ones.
    """
    kept = (*_KEPT, *also)
    headers = {name: response.headers[name][:LONGEST_HEADER] for name in kept if name in response.headers}
    answer = Answer(status=response.status, headers=headers)
    packed = _codings(response)
    if packed and (len(packed) > 1 or packed[0] not in _INFLATED):
        note = f"the body came as {', '.join(packed)[:60]}, which is not unpacked; none of it is kept"
        return replace(answer, note=note)
    body = _Body(most_bytes, packed=bool(packed))
    broken = False
    _end_with_connection(response)
    try:
        async for piece in response.content.iter_any():
            if not body.take(piece):
                break
    except zlib.error:
        return replace(answer, note=f"the body is not the {packed[0]} it says it is; none of it is kept")
    except (ClientError, OSError):
        broken = not asked.overrun
    note = "more was sent than may be read" if asked.overrun else ""
    cut = broken or asked.overrun or body.is_cut
    return replace(answer, data=body.kept, truncated=cut, note=note, broken=broken)


def outcome_of(answer: Answer, *, duration_ms: int, revealed: Revealed, now: datetime) -> Outcome:
    """2xx succeeds; anything else fails, and may say when to come back."""
    result = _result(answer, duration_ms=duration_ms, revealed=revealed)
    named = _named(answer.status)
    if answer.broken:
        error = f"{named}, but the answer broke off after {len(answer.data)} bytes"
        return Failed(error=error, result=result)
    if 200 <= answer.status <= 299:
        return Succeeded(result=result)
    if answer.status in REDIRECTS:
        return Failed(error=f"{named}, a redirect that is not followed", result=result)
    not_before = retry_after(answer.headers.get("Retry-After", ""), now=now)
    return Failed(error=named, not_before=not_before, result=result)


def retry_after(written: str, *, now: datetime) -> datetime | None:
    """When to come back: a number of seconds or a date, at most a year ahead; nonsense is no wish at all."""
    text = written.strip()
    if text.isascii() and text.isdigit() and len(text) <= 20:
        at = now + min(int(text) * SECOND if len(text) <= 9 else LONGEST_WAIT, LONGEST_WAIT)
    else:
        try:
            at = parsedate_to_datetime(text)
            # A date whose offset is -0000 comes without one, and means UTC.
            at = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(at, now + LONGEST_WAIT) if at > now else None


def _end_with_connection(response: ClientResponse) -> None:
    """Break the body off when the connection ends.

    The library closes the connection on words that make no sense, and forgets to tell whoever reads the body.
    """
    protocol = response.connection.protocol if response.connection is not None else None
    if protocol is None:
        return
    if protocol.closed is None:
        _break_off(response.content)
    else:
        protocol.closed.add_done_callback(lambda lost: _break_off(response.content, lost))


def _break_off(body: StreamReader, lost: asyncio.Future[None] | None = None) -> None:
    if lost is not None and not lost.cancelled():
        lost.exception()
    if not body.is_eof() and body.exception() is None:
        body.set_exception(ClientPayloadError())


class _Body:
    """What was read so far: at most so many bytes, after undoing at most one layer of gzip or deflate."""

    def __init__(self, most_bytes: int, *, packed: bool) -> None:
        self._most = most_bytes
        self._data = bytearray()
        self._fed = False
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB) if packed else None

    @property
    def kept(self) -> bytes:
        return bytes(self._data[: self._most])

    @property
    def is_cut(self) -> bool:
        stream = self._stream
        whole = stream is None or not self._fed or (stream.eof and not stream.unused_data)
        return len(self._data) > self._most or not whole

    def take(self, piece: bytes) -> bool:
        """Add a piece, and say whether another is wanted."""
        self._fed = True
        self._data += piece if self._stream is None else self._inflated(piece, self._stream)
        ended = self._stream is not None and self._stream.eof
        return len(self._data) <= self._most and not ended

    def _inflated(self, piece: bytes, stream: zlib._Decompress) -> bytes:
        room = self._most + 1 - len(self._data)
        try:
            return stream.decompress(piece, room)
        except zlib.error:
            if self._data:
                raise
            # Some servers mean by deflate the bare stream, without the wrapper that the name calls for.
            self._stream = zlib.decompressobj(_RAW_DEFLATE)
            return self._stream.decompress(piece, room)


def _codings(response: ClientResponse) -> list[str]:
    written = ",".join(response.headers.getall("Content-Encoding", []))
    return [one for part in written.split(",") if (one := part.strip().lower()) not in ("", "identity")]


def _named(status: int) -> str:
    """The status with its usual words; what the other side calls it is not repeated."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        known = 100 <= status <= 599
        return f"HTTP {status}" if known else f"HTTP {status}, which is not a status"


def _result(answer: Answer, *, duration_ms: int, revealed: Revealed) -> dict[str, Any]:
    data = revealed.hide(answer.data)
    if answer.truncated:
        data = revealed.hide_end(data)
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    result: dict[str, Any] = {
        "status": answer.status,
        "duration_ms": duration_ms,
        "body": _body(data, kind=kind, whole=not answer.truncated),
        "truncated": answer.truncated,
        "headers": _lowered(answer.headers, revealed),
        "size": len(answer.data),
    }
    return {**result, "note": answer.note} if answer.note else result


def _lowered(headers: Mapping[str, str], revealed: Revealed) -> dict[str, str]:
    return {name.lower(): revealed.hide_text(value) for name, value in headers.items()}


def _body(data: bytes, *, kind: str, whole: bool) -> Any:
    """JSON as values, text as text, and of anything else only what it was."""
    if not data:
        return None
    if whole and _JSON.fullmatch(kind) and _is_modest(data):
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return data.decode(errors="replace")
        return value if is_shallow(value) else data.decode(errors="replace")
    if _BINARY.match(kind) or b"\0" in data:
        return f"<{len(data)} bytes of {kind[:60] or 'binary data'}>"
    return data.decode(errors="replace")


def _is_modest(data: bytes) -> bool:
    """Whether its values are so few that reading them keeps no other request waiting."""
    return sum(map(data.count, (b",", b"[", b"{"))) <= MOST_VALUES
