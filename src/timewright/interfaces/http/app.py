"""The ASGI application: host check, authentication, routing and security headers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

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
from timewright.interfaces.http.request import HttpRequest
from timewright.interfaces.http.responses import with_security_headers
from timewright.interfaces.http.routing import API_PREFIX, HandledRoute, Handler, Segments
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
        self.hub = hub or EventHub()
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
            self._host_check.check(Headers(scope=scope))
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
        # No path of the API is public.
        if request.segments[:2] != API_PREFIX:
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
        probes = self._probes
        slug = (*INBOUND_PATH, "{slug}")
        routes: list[HandledRoute] = [
            *operation_handlers(non_blocking_reader(self._context)),
            *self._pages.routes(),
            ("GET", (*API_PREFIX, "events"), self._events),
            ("GET", (*API_PREFIX, "runs", "{run}", "artifacts", "{name}"), download_artifact),
            ("GET", FEED_PATH, calendar_feed),
            ("GET", PUBLIC_PATH, probes.alive),
            ("GET", ("readyz",), probes.ready),
            ("GET", ("overdue",), probes.overdue),
            *((method, slug, probes.inbound) for method in ("GET", "POST")),
            *((method, (*slug, "{report}"), probes.inbound) for method in ("GET", "POST")),
            ("POST", MCP_PATH, self._mcp.handle),
        ]
        if probes.has_metrics:
            routes.append(("GET", ("metrics",), probes.metrics))
        return Router(routes, fallback=self._pages.dashboard)


def _docs_url(scope: Scope) -> str:
    return f"{scope.get('root_path', '').rstrip('/')}/docs"


def _check_protocol(scope: Scope) -> None:
    if scope.get("http_version", "1.1") not in HTTP_VERSIONS:
        raise HttpProblem("unknown_version", "HTTP version not supported", fix="HTTP/1.1")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HttpProblem("too_many_headers", "too many headers", rule=f"at most {MAX_HEADERS}")


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


class Router:
    """Finds the handler of a method and path; `{name}` matches one segment, also one with an encoded slash.

    Starlette's router tries one pattern after another and splits a name at an encoded slash.
    """

    def __init__(self, routes: Iterable[HandledRoute], *, fallback: Handler) -> None:
        self._fallback = fallback
        # By method, under the path with `{}` for each parameter.
        self._handlers: dict[Segments, dict[str, tuple[Handler, Segments]]] = {}
        for method, path, handler in routes:
            key = tuple("{}" if part.startswith("{") else part for part in path)
            self._handlers.setdefault(key, {})[method] = (handler, path)
        # Which segments are parameters; a path with a fixed segment comes before one with a parameter there.
        self._shapes = sorted({tuple(part == "{}" for part in path) for path in self._handlers})

    def match(self, method: str, segments: Segments) -> tuple[Handler, Mapping[str, str]]:
        """Return the handler and the path parameters; an unknown path has the fallback, for GET only."""
        found = [self._handlers[key] for key in self._keys(segments) if key in self._handlers]
        wanted = "GET" if method == "HEAD" else method
        for handlers in found:
            if wanted in handlers:
                handler, path = handlers[wanted]
                pairs = zip(path, segments, strict=True)
                return handler, {part[1:-1]: text for part, text in pairs if part.startswith("{")}
        if not found and wanted == "GET":
            return self._fallback, {}
        raise _method_not_allowed(method, {one for handlers in found for one in handlers} or {"GET"})

    def _keys(self, segments: Segments) -> Iterable[Segments]:
        """Yield the path with each set of segments that may be parameters; a parameter is not empty."""
        for shape in self._shapes:
            if len(shape) == len(segments):
                pairs = list(zip(shape, segments, strict=True))
                if all(text or not is_parameter for is_parameter, text in pairs):
                    yield tuple("{}" if is_parameter else text for is_parameter, text in pairs)


def _method_not_allowed(method: str, allowed: set[str]) -> HttpProblem:
    listed = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set()) | {"OPTIONS"}))
    return HttpProblem(
        "method_not_allowed",
        "method not allowed",
        field="method",
        value=method[:16],
        rule=f"one of: {listed}",
        fix="/openapi.json lists the methods of each path",
        headers={"allow": listed},
    )


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
