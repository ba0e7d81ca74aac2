"""The door itself: the gate, who asks, who answers, and the headers that every answer carries."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.responses import Response

from timewright.doors.http.agents import PATH as AGENTS
from timewright.doors.http.agents import Agents
from timewright.doors.http.asked import split_query
from timewright.doors.http.calendar_feed import CalendarFeed
from timewright.doors.http.callers import FEED, Callers, Entrance, by_key_or_session
from timewright.doors.http.events import EventStream, Hub
from timewright.doors.http.gate import Gate
from timewright.doors.http.pages import Pages
from timewright.doors.http.performing import Performing, performers
from timewright.doors.http.places import PREFIX
from timewright.doors.http.probes import Probes, Pulse, acting_in
from timewright.doors.http.problems import Refused, internal, problem_response
from timewright.doors.http.replies import Reply, dressed
from timewright.doors.http.routes import Routes
from timewright.doors.http.threads import Threads
from timewright.doors.http.turns import Turns
from timewright.doors.http.visits import Receive, Scope, Send, Visit, no_content
from timewright.errors import TimewrightError, Unauthorized
from timewright.operations import Context
from timewright.operations.access import demand
from timewright.operations.at_once import glimpses_of
from timewright.ports.glimpse import NotAtOnce

THREADS = 32
MOST_HEADERS = 100
VERSIONS = ("1.0", "1.1", "2", "3")
FREE = ("healthz",)
# In a scope, for a request that was let in already.
_BEGUN = "timewright.begun"

_LOG = logging.getLogger("timewright.http")


class HttpDoor:
    """An ASGI application over one context; it starts nothing and keeps nothing but its streams."""

    def __init__(
        self,
        context: Context,
        *,
        gate: Gate | None = None,
        hub: Hub | None = None,
        callers: Callers = by_key_or_session,
        pulse: Pulse | None = None,
        metrics: Callable[[], str] | None = None,
        dashboard: Path | None = None,
        secure: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._gate = gate or Gate()
        self._entrance = Entrance(context, callers)
        self._monotonic = monotonic
        self.hub = hub or Hub(secrets.token_hex(4))
        self._threads = Threads(THREADS)
        self._turns = Turns()
        self._probes = Probes(self._threads, pulse=pulse, metrics=metrics)
        self._pages = Pages(dashboard, self._threads, secure=secure)
        self._agents = Agents()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever it is."""
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        answer = await self._guarded(scope, receive)
        if not isinstance(answer, Reply):
            send = dressed(send, https=scope.get("scheme") == "https")
        await answer(scope, receive, send)

    def at_once(self, scope: Scope) -> Reply | None:
        """The answer to a brief question of someone we know; nothing else, which is then asked as ever."""
        try:
            visit = self._begun(scope, _nothing_more)
            handler, visit.path = self.routes.find("GET", visit.segments)
            if not isinstance(handler, Performing) or not handler.is_brief or not visit.is_bare:
                return None
            context = self._entrance.remembered(visit)
        except Exception:  # noqa: BLE001 - whatever it is, it is met again where it becomes an answer
            return None
        if context is None:
            return None
        visit.context = context
        try:
            return handler.at_once(visit)
        except Exception:  # noqa: BLE001 - the same
            # It was counted, and is not counted again.
            scope[_BEGUN] = visit
            return None

    def _begun(self, scope: Scope, receive: Receive) -> Visit:
        _check_head(scope)
        self._gate.check(scope["headers"])
        return Visit(scope, receive, context=self._context, at=self._monotonic())

    async def _guarded(self, scope: Scope, receive: Receive) -> Any:
        try:
            begun: Visit | None = scope.pop(_BEGUN, None)
            if begun is not None:
                begun.receive = receive
                return await self._handled(begun)
            return await self._answered(self._begun(scope, receive))
        except (TimewrightError, Refused) as error:
            return problem_response(error, docs=_docs_of(scope))
        except ConnectionAbortedError:
            return Response(status_code=400)
        except Exception:  # noqa: BLE001 - the one place where a fault of ours becomes an answer
            _LOG.exception("a request could not be answered: %s %s", scope["method"], scope["path"])
            return problem_response(internal(), docs=_docs_of(scope))

    async def _answered(self, visit: Visit) -> Any:
        if visit.segments != FREE:
            if self._pages.lets_in(visit):
                return await self._pages.let_in(visit)
            try:
                try:
                    visit.context = self._entrance.at_once(visit)
                except NotAtOnce:
                    visit.context = await self._threads.run(lambda: self._entrance.let_in(visit))
            except Unauthorized:
                if self._pages.is_page(visit):
                    return self._pages.closed(visit)
                raise
        return await self._handled(visit)

    async def _handled(self, visit: Visit) -> Any:
        if visit.method == "OPTIONS":
            return no_content(headers={"allow": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"})
        handler, visit.path = self.routes.find(visit.method, visit.segments)
        whose = self._turns.take(visit.context.caller)
        try:
            return await handler(visit)
        finally:
            self._turns.leave(whose)

    async def _events(self, visit: Visit) -> EventStream | Response:
        """`/api/v1/events`: what happens from now on, or since the last id."""
        context = acting_in(visit)
        demand(context.caller, "read", of="events")
        asked = dict(split_query(visit.query))
        kinds = frozenset(filter(None, asked.get("facts", "").split(",")))
        last = visit.headers.get("last-event-id") or asked.get("last_event_id", "")
        if visit.method == "HEAD":
            return Response(headers={"content-type": "text/event-stream"})
        return EventStream(self.hub, self.hub.listen(context.namespace, kinds, last))

    @cached_property
    def routes(self) -> Routes:
        """Who answers where; made when the first asks, so that a server is ready sooner."""
        routes = Routes()
        for place, performing in performers(self._threads, glimpses=glimpses_of(self._context)):
            routes.add(place.method, place.path, performing)
        routes.add("GET", (*PREFIX, "events"), self._events)
        routes.add("GET", FEED, CalendarFeed(self._threads).answered)
        routes.add("GET", FREE, self._probes.alive)
        routes.add("GET", ("readyz",), self._probes.ready)
        routes.add("GET", ("overdue",), self._probes.overdue)
        if self._probes.counts:
            routes.add("GET", ("metrics",), self._probes.numbers)
        routes.add("POST", AGENTS, self._agents.answered)
        self._pages.add_to(routes)
        return routes


async def _nothing_more() -> Any:
    raise ConnectionAbortedError


def _docs_of(scope: Scope) -> str:
    return f"{scope.get('root_path', '').rstrip('/')}/docs"


def _check_head(scope: Scope) -> None:
    if scope.get("http_version", "1.1") not in VERSIONS:
        raise Refused(505, "unknown_version", "this version of HTTP is not spoken here", fix="HTTP/1.1")
    if len(scope["headers"]) > MOST_HEADERS:
        raise Refused(431, "too_many_headers", "too many headers", rule=f"at most {MOST_HEADERS}")


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    """There are no web sockets here; and whoever runs us need not tell us when we begin and end."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
