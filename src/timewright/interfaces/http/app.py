"""The ASGI application: host check, authentication, routing, security headers and `/feed.ics`."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.responses import Response

from timewright import interfaces
from timewright.errors import OverQuota, TimewrightError, Unauthorized
from timewright.interfaces.http.api.operation_handler import operation_handlers
from timewright.interfaces.http.api.operation_routes import API_PREFIX, routes_of
from timewright.interfaces.http.api.responses import ApiResponse, with_security_headers
from timewright.interfaces.http.endpoints.artifact_download import ArtifactDownload
from timewright.interfaces.http.endpoints.events import EventHub, EventStream
from timewright.interfaces.http.endpoints.mcp_endpoint import (
    MCP_PATH,
    McpEndpoint,
    challenge_header,
    is_metadata_request,
    resource_metadata,
)
from timewright.interfaces.http.endpoints.pages import Pages
from timewright.interfaces.http.endpoints.probes import EngineHealth, Probes, request_context
from timewright.interfaces.http.problems import HttpProblem, internal_error, problem_response
from timewright.interfaces.http.requests.authentication import (
    FEED_PATH,
    Authenticator,
    RequestAuthenticator,
    authenticate_by_key_or_session,
)
from timewright.interfaces.http.requests.host_origin import HostOriginCheck
from timewright.interfaces.http.requests.http_request import HttpRequest, Receive, Scope, Send, no_content
from timewright.interfaces.http.requests.openid import OpenIdProvider
from timewright.interfaces.http.requests.parsing import build_payload, split_query
from timewright.interfaces.http.router import Router
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import Caller, context_for, require_scope
from timewright.operations.context import non_blocking_reader
from timewright.ports.store import WouldBlock

MAX_THREADS = 32
DASHBOARD_FOLDER = Path(interfaces.__file__).parent / "dashboard"
MAX_HEADERS = 100
HTTP_VERSIONS = ("1.0", "1.1", "2", "3")
PUBLIC_PATH = ("healthz",)
# The slug in the path is the secret of an inbound address.
INBOUND_PATH = ("in",)

_LOG = logging.getLogger("timewright.http")

# Calendar programs poll; they may use a copy for 5 minutes.
CACHE_CONTROL = "private, max-age=300"


MAX_REQUESTS_PER_KEY = 16


class HttpApp:
    """An ASGI application for one operation context. It starts no engine; its only state is the event hub."""

    def __init__(
        self,
        context: OperationContext,
        *,
        host_check: HostOriginCheck | None = None,
        hub: EventHub | None = None,
        authenticate: Authenticator = authenticate_by_key_or_session,
        engine_health: EngineHealth | None = None,
        metrics: Callable[[], str] | None = None,
        dashboard: Path | None = None,
        sign_in_url: str = "",
        provider: OpenIdProvider | None = None,
        secure: bool = False,
        command: tuple[str, str | None] = ("timewright", None),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._host_check = host_check or HostOriginCheck()
        self._authenticator = RequestAuthenticator(context, authenticate)
        self._monotonic = monotonic
        self.hub = hub or EventHub(secrets.token_hex(4))
        self._threads = RequestThreadPool(MAX_THREADS)
        self._concurrency = ConcurrencyLimit()
        self._probes = Probes(self._threads, engine_health=engine_health, metrics=metrics)
        self._pages = Pages(
            dashboard,
            self._threads,
            secure=secure,
            command=command,
            sign_in_url=sign_in_url,
            provider=provider,
        )
        self._mcp = McpEndpoint()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request."""
        if scope["type"] != "http":
            await _answer_other_scope(scope, receive, send)
            return
        response = await self._respond(scope, receive)
        if not isinstance(response, ApiResponse):
            send = with_security_headers(send, https=scope.get("scheme") == "https")
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Any:
        """Return the response; every error becomes a problem response."""
        try:
            _check_protocol(scope)
            self._host_check.check(scope["headers"])
            request = HttpRequest(scope, receive, context=self._context, received_at=self._monotonic())
            return await self._authenticate_and_handle(request)
        except (TimewrightError, HttpProblem) as error:
            response = problem_response(error, docs=_docs_url(scope))
            if isinstance(error, Unauthorized):
                response.headers.update(challenge_header(self._context, scope))
            return response
        except ConnectionAbortedError:
            return Response(status_code=400)
        except Exception:  # noqa: BLE001 - an unexpected error becomes a 500 response
            _LOG.exception("request failed: %s %s", scope["method"], scope["path"])
            return problem_response(internal_error(), docs=_docs_url(scope))

    async def _authenticate_and_handle(self, request: HttpRequest) -> Any:
        if request.segments == PUBLIC_PATH or request.segments[:1] == INBOUND_PATH:
            return await self._handle(request)
        if is_metadata_request(request):
            return resource_metadata(request)
        if self._pages.signs_in(request):
            return await self._pages.sign_in(request)
        try:
            try:
                request.context = self._authenticator.authenticate_nonblocking(request)
            except WouldBlock:
                request.context = await self._threads.run(lambda: self._authenticator.authenticate(request))
        except Unauthorized:
            if self._pages.wants_html(request):
                return self._pages.login_required(request)
            raise
        return await self._handle(request)

    async def _handle(self, request: HttpRequest) -> Any:
        if request.method == "OPTIONS":
            return no_content(headers={"allow": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"})
        handler, request.path = self.router.match(request.method, request.segments)
        slot = self._concurrency.acquire(request.context.caller)
        try:
            return await handler(request)
        finally:
            self._concurrency.release(slot)

    async def _events(self, request: HttpRequest) -> EventStream | Response:
        """`/api/v1/events`: a stream of facts from now on, or since Last-Event-ID."""
        context = request_context(request)
        require_scope(context.caller, "read", operation="events")
        query = dict(split_query(request.query))
        kinds = frozenset(filter(None, query.get("facts", "").split(",")))
        last_id = request.headers.get("last-event-id") or query.get("last_event_id", "")
        if request.method == "HEAD":
            return Response(headers={"content-type": "text/event-stream"})
        caller = context.caller.key or context.caller.actor
        subscription = self.hub.subscribe(context.namespace, kinds, last_id, caller=caller)

        def check_caller() -> None:
            now_caller = self._authenticator.read_caller(request)
            require_scope(now_caller, "read", operation="events")
            context_for(self._context, now_caller, context.namespace)

        return EventStream(self.hub, subscription, check_caller=check_caller)

    @cached_property
    def router(self) -> Router:
        """All routes; built on the first request so that the server starts faster."""
        router = Router()
        reader = non_blocking_reader(self._context)
        for route, handler in operation_handlers(self._threads, nonblocking_reader=reader):
            router.add(route.method, route.path, handler)
        router.add("GET", (*API_PREFIX, "events"), self._events)
        download = ArtifactDownload(self._threads).handle
        router.add("GET", (*API_PREFIX, "runs", "{run}", "artifacts", "{name}"), download)
        router.add("GET", FEED_PATH, CalendarFeed(self._threads).handle)
        router.add("GET", PUBLIC_PATH, self._probes.alive)
        router.add("GET", ("readyz",), self._probes.ready)
        router.add("GET", ("overdue",), self._probes.overdue)
        if self._probes.has_metrics:
            router.add("GET", ("metrics",), self._probes.metrics)
        for path in ((*INBOUND_PATH, "{slug}"), (*INBOUND_PATH, "{slug}", "{report}")):
            router.add("GET", path, self._probes.inbound)
            router.add("POST", path, self._probes.inbound)
        router.add("POST", MCP_PATH, self._mcp.handle)
        self._pages.register(router)
        return router


def _docs_url(scope: Scope) -> str:
    return f"{scope.get('root_path', '').rstrip('/')}/docs"


def _check_protocol(scope: Scope) -> None:
    if scope.get("http_version", "1.1") not in HTTP_VERSIONS:
        raise HttpProblem(505, "unknown_version", "HTTP version not supported", fix="HTTP/1.1")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HttpProblem(431, "too_many_headers", "too many headers", rule=f"at most {MAX_HEADERS}")


async def _answer_other_scope(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse web sockets, and acknowledge lifespan events without doing anything."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class CalendarFeed:
    """Answers calendar programs, which can only authenticate with a user name and a password."""

    def __init__(self, threads: RequestThreadPool) -> None:
        self._threads = threads
        self._operation = operations["schedule feed"]
        self._route = next(iter(routes_of(self._operation)))

    async def handle(self, request: HttpRequest) -> Response:
        """Return the feed with the line endings of RFC 5545."""
        context = request_context(request)
        payload = build_payload(self._route, path={}, query=request.query, body=None)
        feed = await self._threads.run(lambda: self._operation(context, payload))
        text = str(feed["text"]).replace("\n", "\r\n")
        headers = {"content-type": str(feed["content_type"]), "cache-control": CACHE_CONTROL}
        return Response(text.encode(), headers=headers)


class ConcurrencyLimit:
    """Counts the requests in progress per caller. Only the event loop uses it, so it needs no lock."""

    def __init__(self, max_requests: int = MAX_REQUESTS_PER_KEY) -> None:
        self._max_requests = max_requests
        self._in_progress: dict[str, int] = {}

    def acquire(self, caller: Caller) -> str:
        """Count one more request and return the key to release; raises `OverQuota` at the limit."""
        key = caller.key or caller.actor
        if self._in_progress.get(key, 0) >= self._max_requests:
            raise OverQuota(
                "too many concurrent requests",
                field="requests",
                value=self._max_requests,
                rule=f"at most {self._max_requests} concurrent requests per key",
                fix="wait for a response before sending the next request",
            )
        self._in_progress[key] = self._in_progress.get(key, 0) + 1
        return key

    def release(self, key: str) -> None:
        """Count one request less."""
        left = self._in_progress[key] - 1
        if left:
            self._in_progress[key] = left
        else:
            del self._in_progress[key]
