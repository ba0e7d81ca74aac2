"""Endpoints that are not operations: monitoring, inbound addresses, artifacts, the calendar feed, MCP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from timewright.core.input.strict_json import read_json
from timewright.core.moments import format_duration, format_instant
from timewright.core.run.run import Artifact
from timewright.core.workflow import FormField
from timewright.errors import InvalidInput, NotAllowed, TimewrightError
from timewright.interfaces.http.operation_handler import NAMESPACE_HEADER
from timewright.interfaces.http.pages import html_page
from timewright.interfaces.http.problems import status_of
from timewright.interfaces.http.request import HttpRequest, build_payload
from timewright.interfaces.http.responses import ApiResponse, json_response
from timewright.interfaces.http.routing import routes_of
from timewright.interfaces.mcp import import_server
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import context_for
from timewright.operations.access.callers import ALL_SCOPES, require_scope
from timewright.operations.access.service_tokens import SCOPE_PREFIX
from timewright.operations.alerts.pings import answer_inbound
from timewright.operations.runs.logs import ListArtifacts, find_artifact_by_name, read_parts
from timewright.operations.workflows.waits import AnswerRun, PendingAnswer, answer_run, open_link
from timewright.wiring.metrics_port import METRICS_CONTENT_TYPE, filter_metrics

if TYPE_CHECKING:
    from timewright.interfaces.mcp.streamable_http import McpOverHttp

MCP_PATH = ("mcp",)
# Where a client finds out who issues tokens for a resource (RFC 9728).
METADATA_PATH = (".well-known", "oauth-protected-resource")

MAX_TICK_AGE = timedelta(seconds=90)

MAX_BODY_CHARS = 100_000
MAX_FIELDS = 100
_YES_NO = {"yes": True, "no": False, "true": True, "false": False}
# Calendar programs poll; they may use a copy for 5 minutes.
FEED_CACHE_CONTROL = "private, max-age=300"
# Types that a browser does not run, whatever opens them; all others are sent as unknown data.
SAFE_TYPES = frozenset(
    {
        "application/json", "application/pdf", "application/zip", "image/gif", "image/jpeg", "image/png",
        "image/webp", "text/csv", "text/plain",
    }
)  # fmt: skip


class EngineHealth(Protocol):
    """The health of the engine in this process."""

    errors_in_a_row: int
    last_error: str
    last_tick_at: Any
    clock_problem: str


class Probes:
    """Handlers of the monitoring endpoints."""

    def __init__(
        self, *, engine_health: EngineHealth | None = None, metrics: Callable[[], str] | None = None
    ) -> None:
        self._engine_health = engine_health
        self._metrics = metrics

    async def alive(self, _request: HttpRequest) -> ApiResponse:
        """`/healthz`: the process responds. The only path without authentication."""
        return json_response({"alive": True})

    async def ready(self, request: HttpRequest) -> ApiResponse:
        """`/readyz`: the store responds, and the engine of this process, if any, is working."""
        health = await run_in_threadpool(operations["health"], request_context(request), {})
        problem = self._engine_problem(request)
        status = {"ready": not problem, "engine": self._engine_health is not None, "now": health["now"]}
        return json_response(
            {**status, **({"problem": problem} if problem else {})}, status=503 if problem else 200
        )

    async def overdue(self, request: HttpRequest) -> ApiResponse:
        """`/overdue`: 503 while an occurrence is overdue, also if no engine runs."""
        fields = {name: text for name, text in request.query_fields.items() if name != "namespace"}
        found = await run_in_threadpool(operations["overdue"], request_context(request), fields)
        return json_response(found, status=503 if found["overdue"] else 200)

    async def inbound(self, request: HttpRequest) -> Response | ApiResponse:
        """`/in/<slug>[/start|/fail|/<exit code>]`: a foreign job reports, or a person answers a question.

        The slug is the permission.
        """
        text = (await request.body()).decode("utf-8", "replace")
        slug = request.path["slug"]
        try:
            link = await run_in_threadpool(open_link, request.context, slug)
            if link is not None:
                context, asked = link
                return await self._answer(request, context, asked, text)
        except TimewrightError as error:
            if not _wants_page(request):
                raise
            return html_page(_render_refusal(error), status=status_of(type(error)))
        rest = (request.path["report"],) if "report" in request.path else ()
        await run_in_threadpool(answer_inbound, request.context, slug, rest, text)
        return json_response({"ok": True})

    async def _answer(
        self, request: HttpRequest, context: OperationContext, asked: PendingAnswer, text: str
    ) -> Response | ApiResponse:
        """Show the form of a link, or take the answer and end the link."""
        if request.method == "GET":
            return html_page(render_question(asked), status=200, has_form=True)
        answer = read_answer(asked, text, request.headers.get("content-type", ""))
        await run_in_threadpool(answer_run, context, AnswerRun(run=asked.run, answer=answer))
        if _wants_page(request):
            return html_page("Thank you, your answer was recorded.", status=200)
        return json_response({"ok": True})

    async def metrics(self, request: HttpRequest) -> Response:
        """`/metrics`: Prometheus metrics of the namespaces that the caller may access."""
        caller = request_context(request).caller
        require_scope(caller, "read", operation="metrics")
        assert self._metrics is not None
        text = await run_in_threadpool(self._metrics)
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
    named = request.query_fields.get("namespace") or request.headers.get(NAMESPACE_HEADER)
    return context_for(request.context, request.context.caller, named)


def _wants_page(request: HttpRequest) -> bool:
    """Whether a person's browser asks."""
    return "text/html" in request.headers.get("accept", "")


def _render_refusal(error: TimewrightError) -> str:
    """What a person reads whose answer was not taken; a link that was used is the usual reason."""
    if isinstance(error, NotAllowed):
        return "<p>This question was answered already, or its time is over. Nothing was changed.</p>"
    rule = f"<p>Needed: {escape(error.rule)}.</p>" if error.rule else ""
    return f"<p>The answer was not taken: {escape(error.message)}.</p>{rule}<p>Go back and change it.</p>"


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
            return read_json(body)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"the body is not JSON: {error}", field="body", rule="a JSON value", fix='{"approved": true}'
            ) from None
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
        if not math.isfinite(number):
            return text  # JSON has no such number
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


async def calendar_feed(request: HttpRequest) -> Response:
    """`/feed.ics`: the feed of `schedule feed`, with the line endings of RFC 5545."""
    operation = operations["schedule feed"]
    payload = build_payload(next(routes_of(operation)), request)
    feed = await run_in_threadpool(operation, request_context(request), payload)
    text = str(feed["text"]).replace("\n", "\r\n")
    headers = {"content-type": str(feed["content_type"]), "cache-control": FEED_CACHE_CONTROL}
    return Response(text.encode(), headers=headers)


async def download_artifact(request: HttpRequest) -> Response:
    """`/api/v1/runs/{run}/artifacts/{name}`: the last artifact with this name, or that of `?fence=`.

    It is sent part by part, as a file to save, without holding the whole one in memory.
    """
    context = request_context(request)
    fence = request.query_fields.get("fence", "")
    wanted = int(fence) if fence.isdecimal() and len(fence) < 10 else None

    def find() -> tuple[Artifact, Iterator[bytes]]:
        found = operations["run artifacts"].perform_read(context, ListArtifacts(run=request.path["run"]))
        artifact = find_artifact_by_name(found, request.path["name"], fence=wanted)
        parts = read_parts(context, artifact)
        # The first part is read before the answer begins, so that a missing file is an error.
        return artifact, chain([next(parts, b"")], parts)

    artifact, parts = await run_in_threadpool(find)
    headers = {
        "content-type": artifact.type if artifact.type in SAFE_TYPES else "application/octet-stream",
        "content-length": str(artifact.size),
        "content-disposition": f'attachment; filename="{artifact.name}"',
        "x-content-type-options": "nosniff",
        "etag": f'"{artifact.digest}"',
    }
    # Starlette reads the parts in a thread while it sends them.
    return StreamingResponse(parts if request.method == "GET" else (), headers=headers)


class McpEndpoint:
    """Creates the MCP server on the first request, because importing it is slow and few servers need it."""

    def __init__(self) -> None:
        self._server: McpOverHttp | None = None

    async def handle(self, request: HttpRequest) -> Any:
        """`POST /mcp`: answer one MCP request as the caller."""
        server = self._server = self._server or import_server("streamable_http").McpOverHttp()
        # Changes made over MCP are recorded as those of an agent, whatever the key.
        caller = replace(request.context.caller, origin="agent")
        request.context = replace(request.context, caller=caller)
        context = request_context(request)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            await server.answer(context, scope, receive, send)

        return respond


def is_metadata_request(request: HttpRequest) -> bool:
    """Whether a request asks, without a key, who issues tokens; only where an issuer is set."""
    is_path = request.segments in (METADATA_PATH, (*METADATA_PATH, *MCP_PATH))
    return is_path and request.method in ("GET", "HEAD") and bool(_issuer(request.context))


def resource_metadata(request: HttpRequest) -> ApiResponse:
    """`/.well-known/oauth-protected-resource[/mcp]`: the issuer of tokens and the scopes they may have."""
    body = {
        "resource": f"{_origin(request.scope)}/{MCP_PATH[0]}",
        "resource_name": "Timewright",
        "authorization_servers": [_issuer(request.context)],
        "scopes_supported": [f"{SCOPE_PREFIX}{scope}" for scope in sorted(ALL_SCOPES)],
        "bearer_methods_supported": ["header"],
    }
    return json_response(body)


def challenge_header(context: OperationContext, scope: Scope) -> dict[str, str]:
    """The header of a 401 for `/mcp` that leads a client to the metadata; empty without an issuer."""
    if scope["path"] != f"/{MCP_PATH[0]}" or not _issuer(context):
        return {}
    url = f"{_origin(scope)}/{'/'.join(METADATA_PATH)}/{MCP_PATH[0]}"
    return {"www-authenticate": f'Bearer realm="timewright", resource_metadata="{url}"'}


def _issuer(context: OperationContext) -> str:
    tokens = context.auth_cache.service_tokens if context.auth_cache is not None else None
    return tokens.issuer if tokens is not None else ""


def _origin(scope: Scope) -> str:
    """The address of this server as the client knows it; the host was checked."""
    host = Headers(scope=scope).get("host", "")
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '').rstrip('/')}"
