"""One HTTP request: path, headers, context, query and body, read within limits and parsed strictly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from msgspec import Struct
from msgspec import inspect as mi
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope

from timewright.core.input.aliases import snake_case
from timewright.core.input.strict_json import read_json
from timewright.errors import InvalidInput
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.routing import NO_SUBJECT, Route, kinds_of
from timewright.operations import OperationContext

MAX_BODY_BYTES = 4 * 1024 * 1024
# A larger body is parsed in a thread, because parsing 16 KiB takes about 0.2 ms of the event loop.
MAX_BODY_BYTES_ON_LOOP = 16 * 1024
MAX_QUERY_BYTES = 16 * 1024
MAX_QUERY_PARAMETERS = 200
JSON_TYPE = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_BOOLEANS = {"true": True, "false": False}
# A write accepts these fields in its query too.
_ALSO_IN_QUERY = frozenset({"dry_run", "reason"})
BODY_TIMEOUT_S = 20.0
MAX_PATH_BYTES = 8 * 1024

_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})
# In these versions a body is announced by a header; later versions may have one without.
_VERSIONS_WITH_BODY_HEADERS = frozenset({"1.0", "1.1"})

Kinds = tuple[mi.Type, ...]


class HttpRequest(Request):
    """A request that has passed the host check; `path` are the parameters of its path."""

    def __init__(
        self, scope: Scope, receive: Receive, *, context: OperationContext, received_at: float = 0.0
    ) -> None:
        super().__init__(scope, receive)
        self.context = context
        self.received_at = received_at
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.root_path: str = scope.get("root_path", "").rstrip("/")
        self.segments = _segments(scope, self.root_path)
        self.path: Mapping[str, str] = {}
        self.header_names = frozenset(name for name, _ in scope["headers"])

    @property
    def has_no_body(self) -> bool:
        """Whether the request certainly has no body."""
        has_body_headers = not _BODY_HEADERS.isdisjoint(self.header_names)
        return self.scope.get("http_version") in _VERSIONS_WITH_BODY_HEADERS and not has_body_headers

    @property
    def query_fields(self) -> dict[str, str]:
        """The fields of the query; of a repeated one the last."""
        return dict(split_query(self.query))

    @property
    def is_secure(self) -> bool:
        """Whether the client has used TLS."""
        return self.scope.get("scheme") == "https"

    async def body(self) -> bytes:
        """Read the whole body; raises if it is compressed, too large or too slow."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise HttpProblem(
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
                parts, size = [], 0
                async for part in self.stream():
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BODY_BYTES:
                        raise _too_large()
                return b"".join(parts)
        except TimeoutError:
            raise HttpProblem(
                "too_slow",
                "the body was not received in time",
                rule=f"within {BODY_TIMEOUT_S:g} seconds",
                fix="send the request again",
                headers={"connection": "close"},
            ) from None


def _segments(scope: Scope, root: str) -> tuple[str, ...]:
    """Split the path and decode each segment by itself, so that a name may contain a slash."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    prefix = root.encode()
    if prefix and (raw == prefix or raw.startswith(prefix + b"/")):
        raw = raw[len(prefix) :]
    if len(raw) > MAX_PATH_BYTES:
        raise HttpProblem("uri_too_long", "the path is too long", rule=f"at most {MAX_PATH_BYTES} bytes")
    try:
        if b"%" not in raw:
            return tuple(raw.decode("utf-8").split("/")[1:])
        return tuple(unquote_to_bytes(part).decode("utf-8") for part in raw.split(b"/")[1:])
    except UnicodeDecodeError:
        raise HttpProblem(
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
        "too_large",
        "the body is too large",
        rule=f"at most {MAX_BODY_BYTES // 1024} KiB",
        fix="send less, or split it into several requests",
        headers={"connection": "close"},
    )


def build_payload(
    route: Route, request: HttpRequest, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Merge path, query and body; a field may be repeated only with the same value."""
    payload = read_query(request.query, route)
    if route.input_from == "body":
        for name in payload.keys() - _ALSO_IN_QUERY:
            raise InvalidInput(
                f"field {name} is in the query of the URL",
                field=name,
                rule="writes take a JSON body; only dry_run and reason may be in the query",
                fix=f'{{"{name}": …}} in the body',
            )
    for part in (body or {}, _subject_in(route, request.path)):
        for name, value in part.items():
            if payload.setdefault(name, value) != value:
                raise InvalidInput(
                    f"{name} is given twice with different values",
                    field=name,
                    value=payload[name],
                    rule="path, query and body must agree",
                    fix=f"give {name} once",
                )
    return payload


def read_query(query: str, route: Route) -> dict[str, Any]:
    """Parse the fields of a query by their types; a value that does not parse stays text for the decoder."""
    if not query:
        return {}
    request: type[Struct] = route.operation.request_type
    known = _field_kinds(request)
    found: dict[str, list[str]] = {}
    for name, value in split_query(query):
        found.setdefault(name, []).append(value)
    return {
        name: _read(name, texts, known.get(name) or known.get(snake_case(name)))
        for name, texts in found.items()
    }


def split_query(query: str) -> Sequence[tuple[str, str]]:
    """Split a query into names and values; raises if it is too long or not UTF-8."""
    if len(query) > MAX_QUERY_BYTES:
        raise HttpProblem("uri_too_long", "the query is too long", rule=f"at most {MAX_QUERY_BYTES} bytes")
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_PARAMETERS)
    except ValueError:
        raise HttpProblem(
            "invalid_query",
            "the query is invalid",
            rule=f"UTF-8, percent-encoded, at most {MAX_QUERY_PARAMETERS} parameters",
            fix="name=value&other=value",
        ) from None


def read_body(raw: bytes, content_type: str | None) -> dict[str, Any]:
    """Parse a JSON object strictly: no other type, no duplicate keys, no NaN or Infinity."""
    if not raw and content_type is None:
        return {}
    if content_type is None or JSON_TYPE.fullmatch(content_type.strip()) is None:
        raise HttpProblem(
            "unsupported_media_type",
            "the body is not JSON",
            headers={"accept-post": "application/json"},
            field="content-type",
            rule="application/json, in UTF-8",
            fix="Content-Type: application/json",
        )
    try:
        data = read_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise HttpProblem(
            "invalid_json",
            f"the body is not valid JSON: {why}" if raw.strip() else "the body is empty",
            rule="one JSON object in UTF-8, without duplicate keys",
            fix='{"name": "nightly-report"}' if raw.strip() else "{}, or leave Content-Type out",
        ) from None
    if not isinstance(data, dict):
        raise InvalidInput("the body is not a JSON object", rule="a JSON object with fields", fix="{}")
    return data


def _subject_in(route: Route, path: Mapping[str, str]) -> dict[str, str]:
    if not route.subject or (route.subject_optional and path[route.subject] == NO_SUBJECT):
        return {}
    return {route.subject: path[route.subject]}


@cache
def _field_kinds(request: Any) -> dict[str, Kinds]:
    """Return the kinds of the fields of a request type and of the model it flattens."""
    flattened: tuple[str, type[Struct]] | None = request.flattens
    found: dict[str, Kinds] = {}
    for model in (flattened[1] if flattened is not None else None, request):
        info = mi.type_info(model) if model is not None else None
        if isinstance(info, mi.StructType):
            found |= {field.encode_name: kinds_of(field.type) for field in info.fields}
    return found


def _read(name: str, texts: list[str], kinds: Kinds | None) -> Any:
    is_list = _accepts(kinds, mi.VarTupleType, mi.ListType)
    if len(texts) > 1 and not is_list:
        raise InvalidInput(
            f"{name} is in the query {len(texts)} times",
            field=name,
            value=texts[1],
            rule="once, unless it is a list",
            fix=f"give {name} once",
        )
    if is_list and not texts[0].startswith("["):
        return texts
    return _parse_value(texts[0], kinds, is_ms=name.endswith("_ms"))


def _accepts(kinds: Kinds | None, *types: type[mi.Type]) -> bool:
    return any(isinstance(one, types) for one in kinds or ())


def _parse_value(text: str, kinds: Kinds | None, *, is_ms: bool) -> Any:
    """Parse a value by the kinds that its field accepts; None stands for an unknown field."""
    if text == "null" and _accepts(kinds, mi.NoneType):
        return None
    if (is_ms or _accepts(kinds, mi.IntType)) and _INTEGER.fullmatch(text):
        return int(text)
    if _accepts(kinds, mi.FloatType) and _DECIMAL.fullmatch(text):
        return float(text)
    if text in _BOOLEANS and (kinds is None or _accepts(kinds, mi.BoolType)):
        return _BOOLEANS[text]
    if text[:1] in ("{", "[") and not (kinds and all(isinstance(one, mi.StrType) for one in kinds)):
        return _parse_json(text)
    return text


def _parse_json(text: str) -> Any:
    """Parse an object or a list in a query; invalid JSON stays text."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text
