"""Runs one operation for an HTTP request: reads path, query and body, and sends ETag and Link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from timewright.core.zones import check_zone
from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.interfaces.http.api.json_encoding import encode_answer
from timewright.interfaces.http.api.nonblocking_reads import (
    NonBlockingReads,
    ResponseCache,
    nonblocking_reads,
)
from timewright.interfaces.http.api.operation_routes import Route, routes_of
from timewright.interfaces.http.api.responses import (
    ApiResponse,
    response_headers,
    revision_of,
    versioned_nouns,
)
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import MAX_BODY_BYTES_ON_LOOP, build_payload, read_body
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import context_for
from timewright.operations.context import dry_run, in_transaction
from timewright.operations.idempotency import IdempotencyCleanup, run_once
from timewright.operations.quotas import EXTERNAL_OPERATIONS
from timewright.ports.store import NonBlockingReader, WouldBlock

NAMESPACE_HEADER = "timewright-namespace"
_NAMESPACE = NAMESPACE_HEADER.encode()
# The zone of the client's machine, and of the file that a request comes from (see `default_zone`).
_SYSTEM_ZONE = b"timewright-system-zone"
_FILE_ZONE = b"timewright-file-zone"
_ETAG = re.compile(r'"([0-9]{1,15})"')


class OperationHandler:
    """Handles one route of one operation."""

    def __init__(
        self,
        route: Route,
        threads: RequestThreadPool,
        cleanup: IdempotencyCleanup,
        *,
        nonblocking: NonBlockingReads | None = None,
    ) -> None:
        self._route = route
        self._nonblocking = nonblocking
        self._threads = threads
        self._cleanup = cleanup
        self._noun = route.operation.noun

    async def __call__(self, request: HttpRequest) -> ApiResponse:
        """Run the operation: on the event loop if it cannot block, else in a thread."""
        context = _namespace_context(request)
        if self._nonblocking is not None and request.has_no_body:
            try:
                return self._nonblocking(request, context)
            except WouldBlock:
                pass
        payload = await self._read_payload(request)
        expected = self._expected_revision(request, payload)
        key = request.headers.get("idempotency-key")
        answer, replayed = await self._threads.run(lambda: self._perform(context, payload, expected, key))
        return self._response(request, payload, answer, replayed=replayed)

    async def _read_payload(self, request: HttpRequest) -> dict[str, Any]:
        raw = await request.body()
        if len(raw) <= MAX_BODY_BYTES_ON_LOOP:
            return self._parse_payload(request, raw)
        return cast("dict[str, Any]", await self._threads.run(lambda: self._parse_payload(request, raw)))

    def _parse_payload(self, request: HttpRequest, raw: bytes) -> dict[str, Any]:
        body = self._parse_body(request, raw)
        return build_payload(self._route, path=request.path, query=request.query, body=body)

    def _parse_body(self, request: HttpRequest, raw: bytes) -> Mapping[str, Any] | None:
        if self._route.input_from == "query":
            if raw:
                raise HttpProblem(
                    400, "unexpected_body", f"{request.method} takes no body", fix="use the query"
                )
            return None
        return read_body(raw, request.headers.get("content-type"))

    def _expected_revision(self, request: HttpRequest, payload: dict[str, Any]) -> int | None:
        """Return the revision that If-Match requires; an operation with a revision field checks it itself."""
        header = request.headers.get("if-match")
        if header is None or header.strip() == "*" or self._route.operation.read_only:
            return None
        tag = _ETAG.fullmatch(header.strip())
        if (
            tag is None
            or self._noun not in versioned_nouns()
            or self._route.operation.name in EXTERNAL_OPERATIONS
        ):
            raise InvalidInput(
                "If-Match is not supported here",
                field="if-match",
                value=header[:64],
                rule="the ETag of a GET response for the same object, if the object has revisions",
                fix='If-Match: "7"',
            )
        if "revision" in self._route.operation.request_type.__struct_fields__:
            payload.setdefault("revision", int(tag[1]))
        return int(tag[1])

    def _perform(
        self, context: OperationContext, payload: dict[str, Any], expected: int | None, key: str | None
    ) -> tuple[dict[str, Any], bool]:
        operation = self._route.operation
        is_dry_run = payload.get("dry_run") is True
        checks_revision = "revision" in operation.request_type.__struct_fields__
        try:
            if expected is not None and not checks_revision:
                around = dry_run if is_dry_run else in_transaction
                return around(context, lambda inside: self._perform_at(inside, payload, expected)), False
            if key is not None and not operation.read_only and not is_dry_run:
                self._cleanup.run_if_due(context)
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
        return self._route.operation(context, payload)

    def _response(
        self, request: HttpRequest, payload: Mapping[str, Any], answer: dict[str, Any], *, replayed: bool
    ) -> ApiResponse:
        headers = response_headers(request, answer, self._noun)
        if replayed:
            headers["idempotency-replayed"] = "true"
        created = self._route.operation.verb == "create" or answer.get("change") == "created"
        status = 201 if created and payload.get("dry_run") is not True else 200
        return ApiResponse(msgspec.json.encode(answer), status=status, headers=headers)


def operation_handlers(
    threads: RequestThreadPool, *, nonblocking_reader: NonBlockingReader | None
) -> list[tuple[Route, OperationHandler]]:
    """Return a handler for every route of every operation."""
    cleanup = IdempotencyCleanup()
    cache = ResponseCache(nonblocking_reader) if nonblocking_reader is not None else None
    return [
        (route, OperationHandler(route, threads, cleanup, nonblocking=nonblocking_reads(route, cache)))
        for operation in operations
        for route in routes_of(operation)
    ]


def _namespace_context(request: HttpRequest) -> OperationContext:
    context, headers = request.context, request.raw_headers
    if _NAMESPACE in headers:
        context = context_for(context, context.caller, request.headers.get(NAMESPACE_HEADER))
    if _SYSTEM_ZONE in headers or _FILE_ZONE in headers:
        system, file = (_zone_in(headers, name) for name in (_SYSTEM_ZONE, _FILE_ZONE))
        context = replace(context, system_zone=system, file_zone=file)
    return context


def _zone_in(headers: Mapping[bytes, bytes], name: bytes) -> str:
    text = headers.get(name, b"").decode("latin-1")
    return check_zone(text, field=name.decode()) if text else ""


def _precondition_failed(error: TimewrightError) -> HttpProblem:
    return HttpProblem(
        412,
        "conflict",
        error.message,
        field=error.field,
        value=error.value,
        rule=error.rule,
        fix=error.fix,
    )
