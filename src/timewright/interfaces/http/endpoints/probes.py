"""Endpoints for monitoring, `/in` for foreign jobs, and the page behind a one-time answer link."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from html import escape
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from timewright.core.moments import format_duration, format_instant
from timewright.core.workflow.waits import FormField
from timewright.errors import InvalidInput
from timewright.interfaces.http.endpoints.pages import html_page
from timewright.interfaces.http.requests.http_request import HttpRequest
from timewright.interfaces.http.requests.parsing import split_query
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import context_for, require_scope
from timewright.operations.alerts.pings import answer_inbound
from timewright.operations.workflows.waits import PendingAnswer, give_answer, open_link
from timewright.wiring.metrics_port import METRICS_CONTENT_TYPE, filter_metrics

MAX_TICK_AGE = timedelta(seconds=90)

MAX_BODY_CHARS = 100_000
MAX_FIELDS = 100
_YES_NO = {"yes": True, "no": False, "true": True, "false": False}


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
        if request.method == "GET":
            return html_page(render_question(asked), status=200, has_form=True)
        answer = read_answer(asked, text, request.headers.get("content-type", ""))
        await self._threads.run(lambda: give_answer(context, asked.run, answer))
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


def render_question(asked: PendingAnswer) -> str:
    """The body of the page: what is asked, the data of the step, and one input for each field."""
    until = f"<p>Until {escape(format_instant(asked.until))}.</p>" if asked.until is not None else ""
    data = msgspec.json.format(msgspec.json.encode(asked.payload), indent=2).decode()
    shown = f"<pre>{escape(data)}</pre>" if asked.payload else ""
    fields = asked.form or {"answer": FormField(label="Answer")}
    inputs = "".join(_render_field(name, field) for name, field in fields.items())
    return (
        f"{escape(asked.question)}</p>{until}{shown}"
        f"<form method='post'>{inputs}<p><button>Send</button></p></form><p>"
        f"<small>Step {escape(asked.step)} of workflow {escape(asked.workflow)}. "
        "This page takes one answer.</small>"
    )


def read_answer(asked: PendingAnswer, body: str, content_type: str) -> Any:
    """The answer in a request: JSON as it is, or the fields of the page with their types."""
    if len(body) > MAX_BODY_CHARS:
        raise InvalidInput(
            f"the answer has {len(body)} characters", field="body", rule=f"at most {MAX_BODY_CHARS}"
        )
    if content_type.partition(";")[0].strip() == "application/json":
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the body is not JSON: {error}", field="body", rule="JSON") from None
    try:
        given = dict(parse_qsl(body, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidInput(
            "the answer has too many fields", field="body", rule=f"at most {MAX_FIELDS} fields"
        ) from None
    if not asked.form:
        return given.get("answer", "")
    known = {name: text for name, text in given.items() if text}
    return {
        name: _read_field(asked.form[name], text) if name in asked.form else text
        for name, text in known.items()
    }


def _read_field(field: FormField, text: str) -> Any:
    if field.type == "boolean":
        return _YES_NO.get(text.lower(), text)
    if field.type == "number":
        try:
            number = float(text)
        except ValueError:
            return text
        return int(number) if number.is_integer() else number
    return text


def _render_field(name: str, field: FormField) -> str:
    label, key = escape(field.label or name), escape(name, quote=True)
    required = " required" if field.required else ""
    choices = field.choices or (("yes", "no") if field.type == "boolean" else ())
    if choices:
        options = "".join(f"<option>{escape(one)}</option>" for one in ("", *choices))
        control = f"<select name='{key}'{required}>{options}</select>"
    elif field.type == "number":
        control = f"<input name='{key}' type='number' step='any'{required}>"
    else:
        control = f"<textarea name='{key}' rows='3' cols='50'{required}></textarea>"
    return f"<p><label>{label}<br>{control}</label></p>"
