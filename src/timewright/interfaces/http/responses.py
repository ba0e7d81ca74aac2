"""JSON responses: encoding, the headers ETag and Link, and the security headers of every response."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec import inspect as mi
from starlette.types import Receive, Scope, Send

from timewright.core.input.encoding import to_json_value
from timewright.interfaces.http.request import HttpRequest, split_query
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

# Types that msgspec writes as `encode` does; instants in answers are always in UTC.
_SAME_ENCODING = (
    mi.StrType,
    mi.IntType,
    mi.FloatType,
    mi.BoolType,
    mi.NoneType,
    mi.EnumType,
    mi.LiteralType,
    mi.DateTimeType,
    mi.DateType,
)
# Fields that hold any JSON value.
_JSON_FIELDS = frozenset({"metadata"})


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
        body, headers = self._body, list(self._headers)
        if len(body) >= MIN_COMPRESSED_BYTES and _accepts_gzip(scope):
            self._compressed = self._compressed or gzip.compress(body, COMPRESSION_LEVEL, mtime=0)
            body = self._compressed
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _accepts_gzip(scope: Scope) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])


def json_response(data: Any, *, status: int = 200) -> ApiResponse:
    """Return data that is JSON already as a response."""
    return ApiResponse(msgspec.json.encode(data), status=status)


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
    pairs = [(name, value) for name, value in split_query(request.query) if name != "cursor"]
    return f"{request.root_path}/{path}?{urlencode([*pairs, ('cursor', cursor)])}"


def encode_answer(value: Struct) -> dict[str, Any]:
    """Return a mapping that msgspec writes to the same bytes as the result of `encode`.

    Parts that msgspec itself writes like that, such as the rows of a list, stay as they are.
    """
    config = type(value).__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    values = (getattr(value, name) for name in value.__struct_fields__)
    names = zip(value.__struct_encode_fields__, values, strict=True)
    return tag | {name: _encode_part(part) for name, part in names}


def _encode_part(value: Any) -> Any:
    if isinstance(value, Struct):
        return value if is_plain_for_msgspec(type(value)) else encode_answer(value)
    return [_encode_part(one) for one in value] if isinstance(value, tuple) else to_json_value(value)


@lru_cache(maxsize=1024)
def is_plain_for_msgspec(kind: type[Struct]) -> bool:
    """Whether msgspec writes every value of a type exactly as `encode` does."""
    return _is_same_encoding(mi.type_info(kind), frozenset())


def _is_same_field(field: mi.Field, inside: frozenset[type]) -> bool:
    return field.name in _JSON_FIELDS or _is_same_encoding(field.type, inside)


def _is_same_encoding(info: mi.Type, inside: frozenset[type]) -> bool:
    if isinstance(info, mi.StructType):
        known = inside | {info.cls}
        # Types that omit defaults, are arrays or contain themselves are converted field by field.
        differs = info.cls in inside or info.cls.__struct_config__.omit_defaults or info.array_like
        return not differs and all(_is_same_field(one, known) for one in info.fields)
    if isinstance(info, mi.UnionType):
        return all(_is_same_encoding(one, inside) for one in info.types)
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return _is_same_encoding(info.item_type, inside)
    if isinstance(info, mi.DictType):
        return isinstance(info.key_type, mi.StrType) and _is_same_encoding(info.value_type, inside)
    return isinstance(info, _SAME_ENCODING)
