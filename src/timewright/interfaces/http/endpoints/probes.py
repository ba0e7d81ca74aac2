"""Endpoints for monitoring: `/healthz`, `/readyz`, `/overdue`, `/metrics`, and `/in` for foreign jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from timewright.core.moments import format_duration
from timewright.interfaces.http.endpoints.pages import html_page
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import split_query
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import context_for, require_scope
from timewright.operations.alerts.pings import answer_inbound
from timewright.operations.workflows.waits import PendingAnswer, answer_link, open_link
from timewright.wiring.metrics_port import METRICS_CONTENT_TYPE, filter_metrics

MAX_TICK_AGE = timedelta(seconds=90)


class EngineHealth(Protocol):
    """The health of the engine in this process."""

    errors_in_a_row: int
    last_error: str
    last_tick_at: Any
    clock_problem: str


class Probes:
    """Handlers of the monitoring endpoints."""

    def __init__(
        self,
        threads: RequestThreadPool,
        *,
        engine_health: EngineHealth | None = None,
        metrics: Callable[[], str] | None = None,
    ) -> None:
        self._threads = threads
        self._engine_health = engine_health
        self._metrics = metrics

    async def alive(self, _request: HttpRequest) -> Response:
        """`/healthz`: the process responds. The only path without authentication."""
        return _json({"alive": True})

    async def ready(self, request: HttpRequest) -> Response:
        """`/readyz`: the store responds, and the engine of this process, if any, is working."""
        health = await self._threads.run(lambda: operations["health"](request_context(request), {}))
        problem = self._engine_problem(request)
        status = {"ready": not problem, "engine": self._engine_health is not None, "now": health["now"]}
        return _json({**status, **({"problem": problem} if problem else {})}, status=503 if problem else 200)

    async def overdue(self, request: HttpRequest) -> Response:
        """`/overdue`: 503 while an occurrence is overdue, also if no engine runs."""
        found = await self._threads.run(
            lambda: operations["overdue"](request_context(request), dict(_fields_in(request)))
        )
        return _json(found, status=503 if found["overdue"] else 200)

    async def inbound(self, request: HttpRequest) -> Response:
        """`/in/<slug>[/start|/fail|/<exit code>]`: a foreign job reports, or a person answers a question.

        The slug is the permission.
        """
        text = (await request.body()).decode("utf-8", "replace")
        found = request.path
        link = await self._threads.run(lambda: open_link(request.context, found["slug"]))
        if link is not None:
            context, asked = link
            return await self._answer(request, context, asked, text)
        rest = (found["report"],) if "report" in found else ()
        await self._threads.run(lambda: answer_inbound(request.context, found["slug"], rest, text))
        return _json({"ok": True})

    async def _answer(
        self, request: HttpRequest, context: OperationContext, asked: PendingAnswer, text: str
    ) -> Response:
        """Show the form of a link, or take the answer and end the link."""
        from timewright.interfaces.http.endpoints.answer_page import read_answer, render_question

        if request.method == "GET":
            return html_page(render_question(asked), status=200)
        answer = read_answer(asked, text, request.headers.get("content-type", ""))
        slug = request.path["slug"]
        await self._threads.run(lambda: answer_link(context, slug, asked.run, answer))
        if "text/html" in request.headers.get("accept", ""):
            return html_page("Thank you, your answer was recorded.", status=200)
        return _json({"ok": True})

    async def metrics(self, request: HttpRequest) -> Response:
        """`/metrics`: Prometheus metrics of the namespaces that the caller may access."""
        caller = request_context(request).caller
        require_scope(caller, "read", operation="metrics")
        assert self._metrics is not None
        text = await self._threads.run(self._metrics)
        if caller.namespaces:
            text = filter_metrics(text, caller.can_access)
        return Response(text, headers={"content-type": METRICS_CONTENT_TYPE})

    @property
    def has_metrics(self) -> bool:
        """Whether metrics are collected."""
        return self._metrics is not None

    def _engine_problem(self, request: HttpRequest) -> str:
        health = self._engine_health
        if health is None:
            return ""
        if health.errors_in_a_row:
            return str(health.last_error)
        if health.clock_problem:
            return str(health.clock_problem)
        since = (
            request.context.now() - health.last_tick_at if health.last_tick_at is not None else timedelta(0)
        )
        return f"no tick for {format_duration(since)}" if since > MAX_TICK_AGE else ""


def request_context(request: HttpRequest) -> OperationContext:
    """Return the context of a request in the namespace of its query or header."""
    named = dict(split_query(request.query)).get("namespace") or request.headers.get("timewright-namespace")
    return context_for(request.context, request.context.caller, named)


def _fields_in(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, value) for name, value in split_query(request.query) if name != "namespace"]


def _json(data: dict[str, Any], *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status_code=status, media_type="application/json")
