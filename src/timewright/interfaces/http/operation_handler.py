"""Runs one operation for an HTTP request; listed reads are answered on the event loop and cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool

from timewright.core.zones import check_zone
from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.request import MAX_BODY_BYTES_ON_LOOP, HttpRequest, build_payload, read_body
from timewright.interfaces.http.responses import (
    ApiResponse,
    encode_answer,
    response_headers,
    revision_of,
    versioned_nouns,
)
from timewright.interfaces.http.routing import HandledRoute, Route, routes_of
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import context_for
from timewright.operations.access.callers import AGENT_ORIGIN, require_scope
from timewright.operations.context import NonBlockingStore, dry_run, in_transaction
from timewright.operations.idempotency import run_once
from timewright.operations.quotas import EXTERNAL_OPERATIONS
from timewright.operations.request_parsing import parse_request
from timewright.operations.views import ScheduleDetail
from timewright.ports.store import NonBlockingReader, WouldBlock

NAMESPACE_HEADER = "timewright-namespace"
# The zone of the client's machine, and of the file that a request comes from (see `default_zone`).
SYSTEM_ZONE_HEADER = "timewright-system-zone"
FILE_ZONE_HEADER = "timewright-file-zone"
# `agent`, if an agent makes the request with the key of a person.
ORIGIN_HEADER = "timewright-origin"
_CONTEXT_HEADERS = frozenset(
    name.encode() for name in (NAMESPACE_HEADER, SYSTEM_ZONE_HEADER, FILE_ZONE_HEADER, ORIGIN_HEADER)
)
_ETAG = re.compile(r'"([0-9]{1,15})"')

MAX_CACHED_RESPONSES = 4_096
MAX_CACHE_BYTES = 16 * 1024 * 1024

# Namespace, root path, path segments and query: all that a response depends on besides the store.
CacheKey = tuple[str, str, tuple[str, ...], str]


def _next_occurrence(detail: ScheduleDetail) -> datetime | None:
    """Return the next occurrence: the answer lists upcoming ones, so it changes at that instant."""
    return min((one.fire_at or one.planned_at for one in detail.next), default=detail.progress.wake_at)


def _never(_answer: Struct) -> None:
    return None


# The operations with bounded work, and when their answers expire if nothing is written before. The event loop
# answers them itself: handing such a read to a thread and its answer back costs more than the read.
EXPIRY: dict[str, Callable[[Any], datetime | None]] = {
    "schedule get": _next_occurrence,
    "schedule list": _never,
    "run get": _never,
    "run list": _never,
}


class CachedResponse(Struct, frozen=True, gc=False):
    """A response, when it expires, and the data version it was built for."""

    response: ApiResponse
    expires_at: datetime | None
    data_version: int


class ResponseCache:
    """The responses of one store. Used by the event loop's thread only, so it needs no lock.

    A response is stored with the data version that was read before it was built. If a commit happened in
    between, that version never matches again.
    """

    def __init__(self, nonblocking_reader: NonBlockingReader) -> None:
        self.nonblocking_reader = nonblocking_reader
        self._data_version = -1
        self._entries: dict[CacheKey, CachedResponse] = {}
        self._size_bytes = 0

    def get(self, key: CacheKey) -> ApiResponse | None:
        """Return a response that is still valid."""
        entry = self._entries.get(key)
        self._data_version = self.nonblocking_reader.data_version()
        if entry is None or entry.data_version != self._data_version or self._has_expired(entry):
            return None
        return entry.response

    def put(self, key: CacheKey, response: ApiResponse, *, expires_at: datetime | None) -> None:
        """Store a response that was built after `get` returned nothing for its key."""
        before = self._entries.pop(key, None)
        self._size_bytes += response.size_bytes - (before.response.size_bytes if before is not None else 0)
        if len(self._entries) >= MAX_CACHED_RESPONSES or self._size_bytes > MAX_CACHE_BYTES:
            self._entries, self._size_bytes = {}, response.size_bytes
        self._entries[key] = CachedResponse(response, expires_at, self._data_version)

    def _has_expired(self, entry: CachedResponse) -> bool:
        return entry.expires_at is not None and self.nonblocking_reader.now() >= entry.expires_at


class OperationHandler:
    """Handles one route of one operation; with a cache, reads are answered on the event loop if possible."""

    def __init__(self, route: Route, cache: ResponseCache | None) -> None:
        self._route = route
        self._operation = route.operation
        self._noun = route.operation.noun
        self._cache = cache if route.method == "GET" and route.operation.name in EXPIRY else None

    async def __call__(self, request: HttpRequest) -> ApiResponse:
        """Run the operation: on the event loop if it cannot block, else in a thread."""
        context = _request_context(request)
        if self._cache is not None and request.has_no_body:
            try:
                return self._read_nonblocking(self._cache, request, context)
            except WouldBlock:
                pass
        raw = await request.body()
        if len(raw) <= MAX_BODY_BYTES_ON_LOOP:
            payload = self._read_payload(request, raw)
        else:
            payload = await run_in_threadpool(self._read_payload, request, raw)
        expected = self._expected_revision(request, payload)
        key = request.headers.get("idempotency-key")
        answer, replayed = await run_in_threadpool(self._perform, context, payload, expected, key)
        return self._response(request, payload, answer, replayed=replayed)

    def _read_nonblocking(
        self, cache: ResponseCache, request: HttpRequest, context: OperationContext
    ) -> ApiResponse:
        """Return the cached response if it is still valid, else a new one; raises `WouldBlock`."""
        require_scope(context.caller, self._operation.scope, operation=self._operation.name)
        key: CacheKey = (context.namespace, request.root_path, request.segments, request.query)
        response = cache.get(key)
        if response is None:
            try:
                parsed = parse_request(build_payload(self._route, request), self._operation.request_type)
            except TimewrightError:
                # A thread reads times in words, which are not cached, and refuses what is wrong.
                raise WouldBlock from None
            nonblocking = replace(context, store=NonBlockingStore(cache.nonblocking_reader))
            value = self._operation.perform_read(nonblocking, parsed)
            answer = encode_answer(value)
            headers = response_headers(request, answer, self._noun)
            response = ApiResponse(msgspec.json.encode(answer), headers=headers)
            cache.put(key, response, expires_at=EXPIRY[self._operation.name](value))
        return response

    def _read_payload(self, request: HttpRequest, raw: bytes) -> dict[str, Any]:
        if self._route.input_from == "body":
            body = read_body(raw, request.headers.get("content-type"))
            return build_payload(self._route, request, body)
        if raw:
            raise HttpProblem("unexpected_body", f"{request.method} takes no body", fix="use the query")
        return build_payload(self._route, request)

    def _expected_revision(self, request: HttpRequest, payload: dict[str, Any]) -> int | None:
        """Return the revision that If-Match requires; an operation with a revision field checks it itself."""
        header = request.headers.get("if-match")
        if header is None or header.strip() == "*" or self._operation.read_only:
            return None
        if self._noun not in versioned_nouns() or self._operation.name in EXTERNAL_OPERATIONS:
            raise InvalidInput(
                "If-Match is not supported here",
                field="if-match",
                value=header[:64],
                rule=f"only for objects with revisions: {', '.join(sorted(versioned_nouns()))}",
                fix="leave If-Match out",
            )
        tag = _ETAG.fullmatch(header.strip())
        if tag is None:
            raise InvalidInput(
                "If-Match is not the ETag of a revision",
                field="if-match",
                value=header[:64],
                rule="one ETag of a GET response for the same object, in its quotes",
                fix='If-Match: "7"',
            )
        if "revision" in self._operation.request_type.__struct_fields__:
            payload.setdefault("revision", int(tag[1]))
        return int(tag[1])

    def _perform(
        self, context: OperationContext, payload: dict[str, Any], expected: int | None, key: str | None
    ) -> tuple[dict[str, Any], bool]:
        operation = self._operation
        is_dry_run = payload.get("dry_run") is True
        checks_revision = "revision" in operation.request_type.__struct_fields__
        try:
            if expected is not None and not checks_revision:
                around = dry_run if is_dry_run else in_transaction
                return around(context, lambda inside: self._perform_at(inside, payload, expected)), False
            if key is not None and not operation.read_only and not is_dry_run:
                return run_once(context, operation, payload, key=key)
            return operation.call_with_encoder(context, payload, encode_answer), False
        except Conflict as error:
            if expected is None:
                raise
            raise _precondition_failed(error) from error

    def _perform_at(
        self, context: OperationContext, payload: dict[str, Any], expected: int
    ) -> dict[str, Any]:
        """Perform the operation if the object is still at the expected revision, in the same transaction."""
        named = {self._noun: payload.get(self._noun, "")}
        found = revision_of(operations[f"{self._noun} get"](context, named), self._noun)
        if found != expected:
            raise Conflict(
                f"{self._noun} {named[self._noun]!r} is at revision {found}, not {expected}",
                field="if-match",
                value=expected,
                rule="the current revision",
                fix=f"read it again, then use revision {found}",
            )
        return self._operation(context, payload)

    def _response(
        self, request: HttpRequest, payload: Mapping[str, Any], answer: dict[str, Any], *, replayed: bool
    ) -> ApiResponse:
        headers = response_headers(request, answer, self._noun)
        if replayed:
            headers["idempotency-replayed"] = "true"
        created = self._operation.verb == "create" or answer.get("change") == "created"
        status = 201 if created and payload.get("dry_run") is not True else 200
        return ApiResponse(msgspec.json.encode(answer), status=status, headers=headers)


def operation_handlers(nonblocking_reader: NonBlockingReader | None) -> list[HandledRoute]:
    """Return every route of every operation with its handler."""
    cache = ResponseCache(nonblocking_reader) if nonblocking_reader is not None else None
    return [
        (route.method, route.path, OperationHandler(route, cache))
        for operation in operations
        for route in routes_of(operation)
    ]


def _request_context(request: HttpRequest) -> OperationContext:
    """Return the context in the namespace and the zones that the headers name, of an agent if they say so."""
    context = request.context
    if _CONTEXT_HEADERS.isdisjoint(request.header_names):
        return context
    if NAMESPACE_HEADER in request.headers:
        context = context_for(context, context.caller, request.headers[NAMESPACE_HEADER])
    if request.headers.get(ORIGIN_HEADER) == AGENT_ORIGIN:
        agent = replace(context.caller, origin=AGENT_ORIGIN)
        context = context_for(context, agent, context.namespace)
    if SYSTEM_ZONE_HEADER in request.headers or FILE_ZONE_HEADER in request.headers:
        system, file = (_zone_in(request, name) for name in (SYSTEM_ZONE_HEADER, FILE_ZONE_HEADER))
        context = replace(context, system_zone=system, file_zone=file)
    return context


def _zone_in(request: HttpRequest, header: str) -> str:
    text = request.headers.get(header, "")
    return check_zone(text, field=header) if text else ""


def _precondition_failed(error: TimewrightError) -> HttpProblem:
    return HttpProblem(
        "conflict",
        error.message,
        status=412,
        field=error.field,
        value=error.value,
        rule=error.rule,
        fix=error.fix,
    )
