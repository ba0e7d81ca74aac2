"""Reads that the event loop answers itself, because they read few rows and never wait.

Handing such a read to a thread and its answer back costs more than the read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.interfaces.http.api.json_encoding import encode_answer
from timewright.interfaces.http.api.operation_routes import Route
from timewright.interfaces.http.api.responses import ApiResponse, response_headers
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import build_payload
from timewright.operations import OperationContext
from timewright.operations.access.authentication import require_scope
from timewright.operations.context import NonBlockingStore
from timewright.operations.identity_cache import cache_by_identity
from timewright.operations.request_parsing import parse_request
from timewright.operations.views import ScheduleDetail
from timewright.ports.store import NonBlockingReader

MAX_CONTEXTS = 64

ExpiryOf = Callable[[Any], datetime | None]

MAX_CACHED_RESPONSES = 4_096
MAX_CACHE_BYTES = 16 * 1024 * 1024

# Namespace, root path, path segments and query: all that a response depends on besides the store.
CacheKey = tuple[str, str, tuple[str, ...], str]


def _next_occurrence(detail: ScheduleDetail) -> datetime | None:
    """Return the next occurrence: the answer lists upcoming ones, so it changes at that instant."""
    return min((one.fire_at or one.planned_at for one in detail.next), default=detail.progress.wake_at)


def _never(_answer: Struct) -> None:
    return None


# The operations with bounded work, and when their answers expire if nothing is written before.
EXPIRY: dict[str, ExpiryOf] = {
    "schedule get": _next_occurrence,
    "schedule list": _never,
    "run get": _never,
    "run list": _never,
}


class NonBlockingReads:
    """Answers one route from the cache or by a non-blocking read, or raises `WouldBlock`."""

    def __init__(self, route: Route, cache: ResponseCache) -> None:
        self._route = route
        self._cache = cache
        self._operation = route.operation
        self._expiry_of = EXPIRY[route.operation.name]
        self._nonblocking_context = cache_by_identity(self._with_nonblocking_store, max_entries=MAX_CONTEXTS)

    def __call__(self, request: HttpRequest, context: OperationContext) -> ApiResponse:
        """Return the cached response if it is still valid, else a new one."""
        require_scope(context.caller, self._operation.scope, operation=self._operation.name)
        key: CacheKey = (context.namespace, request.root_path, request.segments, request.query)
        return self._cache.get(key) or self._read(request, context, key)

    def _read(self, request: HttpRequest, context: OperationContext, key: CacheKey) -> ApiResponse:
        payload = build_payload(self._route, path=request.path, query=request.query, body=None)
        parsed = parse_request(payload, self._operation.request_type)
        value = self._operation.perform_read(self._nonblocking_context(context), parsed)
        response = self._cache.get_unchanged(key, value)
        if response is None:
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            headers = response_headers(request, fields, self._operation.noun)
            response = ApiResponse(msgspec.json.encode(encode_answer(value)), headers=headers)
            self._cache.put(key, response, value=value, expires_at=self._expiry_of(value))
        return response

    def _with_nonblocking_store(self, context: OperationContext) -> OperationContext:
        return replace(context, store=NonBlockingStore(self._cache.nonblocking_reader))


def nonblocking_reads(route: Route, cache: ResponseCache | None) -> NonBlockingReads | None:
    """Return the non-blocking reads of a route, if the store supports them and the operation is listed."""
    if cache is None or route.method != "GET" or route.operation.name not in EXPIRY:
        return None
    return NonBlockingReads(route, cache)


class CachedResponse(Struct, frozen=True, gc=False):
    """A response, the value it encodes, when it expires, and the data version it was built for."""

    response: ApiResponse
    value: Struct
    expires_at: datetime | None
    data_version: int


class ResponseCache:
    """The responses of one store. Used by the event loop's thread only, so it needs no lock.

    A response is stored with the data version that was read before it was built. If a commit happened in
    between, that version never matches again. After a commit the value is read again; if it is the same,
    so is the response.
    """

    def __init__(self, nonblocking_reader: NonBlockingReader) -> None:
        self.nonblocking_reader = nonblocking_reader
        self._data_version = -1
        self._entries: dict[CacheKey, CachedResponse] = {}
        self._size_bytes = 0

    def get(self, key: CacheKey) -> ApiResponse | None:
        """Return a response that is still valid."""
        entry = self._entries.get(key)
        if entry is None and self._data_version != -1:
            return None
        self._data_version = self.nonblocking_reader.data_version()
        if entry is None or entry.data_version != self._data_version or self._has_expired(entry):
            return None
        return entry.response

    def get_unchanged(self, key: CacheKey, value: Struct) -> ApiResponse | None:
        """Return the earlier response if it was built from the same value, and mark it as valid again."""
        entry = self._entries.get(key)
        if entry is None or not _has_same_fields(entry.value, value):
            return None
        self._entries[key] = CachedResponse(entry.response, value, entry.expires_at, self._data_version)
        return entry.response

    def put(
        self, key: CacheKey, response: ApiResponse, *, value: Struct, expires_at: datetime | None
    ) -> None:
        """Store a response that was built after `get` returned nothing for its key."""
        before = self._entries.pop(key, None)
        self._size_bytes += response.size_bytes - (before.response.size_bytes if before is not None else 0)
        if len(self._entries) >= MAX_CACHED_RESPONSES or self._size_bytes > MAX_CACHE_BYTES:
            self._entries, self._size_bytes = {}, response.size_bytes
        self._entries[key] = CachedResponse(response, value, expires_at, self._data_version)

    def _has_expired(self, entry: CachedResponse) -> bool:
        return entry.expires_at is not None and self.nonblocking_reader.now() >= entry.expires_at


def _has_same_fields(one: Struct, other: Struct) -> bool:
    """Whether two values have identical fields; strings only need to be equal."""
    if one is other:
        return True
    pairs = ((getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return type(one) is type(other) and all(a is b or (type(a) is str and a == b) for a, b in pairs)
