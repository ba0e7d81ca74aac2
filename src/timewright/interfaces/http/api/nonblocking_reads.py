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
from timewright.interfaces.http.api.response_cache import CacheKey, ResponseCache
from timewright.interfaces.http.api.response_headers import response_headers
from timewright.interfaces.http.api.responses import ApiResponse
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import build_payload
from timewright.operations import OperationContext
from timewright.operations.access.authentication import require_scope
from timewright.operations.identity_cache import cache_by_identity
from timewright.operations.non_blocking import NonBlockingStore
from timewright.operations.request_parsing import parse_request
from timewright.operations.views import ScheduleDetail

MAX_CONTEXTS = 64

ExpiryOf = Callable[[Any], datetime | None]


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
