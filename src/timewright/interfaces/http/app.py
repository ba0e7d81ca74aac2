"""The ASGI application: host check, authentication, routing and security headers."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from timewright import interfaces
from timewright.errors import OverQuota, TimewrightError, Unauthorized
from timewright.interfaces.http.authentication import (
    FEED_PATH,
    Authenticator,
    HostOriginCheck,
    RequestAuthenticator,
)
from timewright.interfaces.http.endpoints import (
    MCP_PATH,
    EngineHealth,
    McpEndpoint,
    Probes,
    calendar_feed,
    challenge_header,
    download_artifact,
    is_metadata_request,
    request_context,
    resource_metadata,
)
from timewright.interfaces.http.events import EventHub, EventStream
from timewright.interfaces.http.openid import OpenIdProvider
from timewright.interfaces.http.operation_handler import operation_handlers
from timewright.interfaces.http.pages import Pages
from timewright.interfaces.http.problems import HttpProblem, internal_error, problem_response
from timewright.interfaces.http.request import HttpRequest, Receive, Scope, Send
from timewright.interfaces.http.responses import with_security_headers
from timewright.interfaces.http.routing import API_PREFIX, Router
from timewright.operations import OperationContext
from timewright.operations.access.authentication import context_for
from timewright.operations.access.callers import Caller, require_scope
from timewright.operations.context import non_blocking_reader

DASHBOARD_FOLDER = Path(interfaces.__file__).parent / "dashboard"
MAX_HEADERS = 100
MAX_REQUESTS_PER_KEY = 16
HTTP_VERSIONS = ("1.0", "1.1", "2", "3")
PUBLIC_PATH = ("healthz",)
# The slug in the path is the secret of an inbound address.
INBOUND_PATH = ("in",)

_LOG = logging.getLogger("timewright.http")


class HttpApp:
    """An ASGI application for one operation context. It starts no engine; its only state is the event hub."""

    def __init__(
        self,
        context: OperationContext,
        *,
        host_check: HostOriginCheck | None = None,
        hub: EventHub | None = None,
        authenticate: Authenticator | None = None,
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
        self._concurrency = ConcurrencyLimit()
        self._probes = Probes(engine_health=engine_health, metrics=metrics)
        self._pages = Pages(
            dashboard,
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
        await response(scope, receive, with_security_headers(send, https=scope.get("scheme") == "https"))

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
        except ClientDisconnect:
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
            request.context = await self._authenticator.authenticate(request)
        except Unauthorized:
            if self._pages.wants_html(request):
                return self._pages.login_required(request)
            raise
        return await self._handle(request)

    async def _handle(self, request: HttpRequest) -> Any:
        if request.method == "OPTIONS":
            allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
            return Response(status_code=204, headers={"allow": allow})
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
        query = request.query_fields
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
        router = Router(fallback=self._pages.dashboard)
        for route, handler in operation_handlers(non_blocking_reader(self._context)):
            router.add(route.method, route.path, handler)
        router.add("GET", (*API_PREFIX, "events"), self._events)
        router.add("GET", (*API_PREFIX, "runs", "{run}", "artifacts", "{name}"), download_artifact)
        router.add("GET", FEED_PATH, calendar_feed)
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
