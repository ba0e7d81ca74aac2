"""Runs as MCP tasks: a call that starts a run returns a task with the run's id, if the client knows tasks.

A step that waits is answered by a person and not by an agent, so its answer is not taken from the client. The
client opens the page of the step, where the person signs in and answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from timewright.core.alerts.channels import DASHBOARD_URL
from timewright.core.run.run import UNFINISHED_STATES, RunState
from timewright.errors import TimewrightError
from timewright.interfaces.mcp.calls import ToolAnswer, to_json
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize
from timewright.operations.workflows.waits import PendingAnswer, pending_answers_of
from timewright.ports import Transaction

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
POLL_INTERVAL_MS = 1_000
SOON = timedelta(minutes=1)
# Tools whose answer is a run.
STARTS_RUN = frozenset({"schedule_run", "run_retry", "run_reset", "workflow_run"})

# A failed run has completed with an error; of a parked or skipped one there is no result.
_STATUS = {
    RunState.SUCCEEDED: "completed",
    RunState.FAILED: "completed",
    RunState.CANCELLED: "cancelled",
    RunState.PARKED: "failed",
    RunState.SKIPPED: "failed",
}


class TaskRequestParams(types.RequestParams):
    """Which task: the id of its run."""

    task_id: str


def supports_tasks(ctx: Any) -> bool:
    """Whether a client understands tasks; it says so with every request."""
    declared = ctx.session.client_capabilities
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return bool(is_modern and declared is not None and TASKS_EXTENSION in (declared.extensions or {}))


def as_task(tool: str, answer: ToolAnswer, *, now: datetime) -> dict[str, Any] | None:
    """Return the answer of a tool as a new task, if it is a run that starts now."""
    run = answer.data.get("run") if tool in STARTS_RUN else None
    if not isinstance(run, dict) or RunState(run["state"]) not in UNFINISHED_STATES:
        return None
    if datetime.fromisoformat(run["fire_at"]) > now + SOON:
        return None
    return {"resultType": "task", **_task(run, "working")}


def add_task_methods(server: Server[Any], read_context: Any) -> None:
    """Let a server answer `tasks/get`, `tasks/cancel` and `tasks/update`."""

    async def get(ctx: Any, params: TaskRequestParams) -> dict[str, Any]:
        found = await perform(ctx, "run get", params.task_id)
        task = _detail(found)
        if task["status"] == "working":
            context: OperationContext = await read_context(ctx)
            find = partial(question_fields, context, found["run"], has_pages=can_open_pages(ctx))
            task |= await anyio.to_thread.run_sync(find)
        return task

    async def cancel(ctx: Any, params: TaskRequestParams) -> dict[str, Any]:
        found = await perform(ctx, "run get", params.task_id)
        if RunState(found["run"]["state"]) in UNFINISHED_STATES:
            await perform(ctx, "run cancel", params.task_id)
        return {}

    async def update(ctx: Any, params: TaskRequestParams) -> dict[str, Any]:
        # The client says that it has opened a page. What the person answers there is in the run itself.
        await perform(ctx, "run get", params.task_id)
        return {}

    async def perform(ctx: Any, operation: str, run_id: str) -> dict[str, Any]:
        if not supports_tasks(ctx):
            raise MCPError(
                code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"tasks need the client extension {TASKS_EXTENSION}",
                data={"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
            )
        named = ctx.request.headers.get("mcp-name", run_id) if ctx.request is not None else run_id
        if named != run_id:
            raise MCPError(
                code=types.HEADER_MISMATCH, message="the header Mcp-Name does not match the parameter taskId"
            )
        context: OperationContext = await read_context(ctx)
        try:
            request = {"run": run_id}
            return await anyio.to_thread.run_sync(operations[operation], context, request)
        except TimewrightError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=sanitize(error.explain())) from None

    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskRequestParams, get)
    server.add_request_handler("tasks/cancel", TaskRequestParams, cancel)
    server.add_request_handler("tasks/update", TaskRequestParams, update)


def _task(run: dict[str, Any], status: str) -> dict[str, Any]:
    """Return the fields that every form of a task has; a run is kept until it is pruned."""
    begun = run["started_at"] or run["fire_at"]
    task = {
        "taskId": run["id"],
        "status": status,
        "createdAt": run["planned_at"],
        "lastUpdatedAt": run["finished_at"] or begun,
        "ttlMs": None,
        "pollIntervalMs": POLL_INTERVAL_MS,
    }
    percent = "" if run["progress"] is None else f"{run['progress']:.0%} "
    message = sanitize(f"{percent}{run['progress_note']}".strip())
    return {**task, "statusMessage": message} if message else task


def _detail(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a run as a task, with its result if it has ended; that of a failed run is an error."""
    run = answer["run"]
    state = RunState(run["state"])
    if state in UNFINISHED_STATES:
        return _task(run, "working")
    status = _STATUS[state]
    task = _task(run, status)
    if status == "cancelled":
        return task
    if status == "failed":
        message = sanitize(f"{run['state']}: {run['reason']} {run['error']}".strip())
        return {**task, "error": {"code": types.INTERNAL_ERROR, "message": message, "data": answer}}
    result = {
        "content": [{"type": "text", "text": to_json(sanitize(answer))}],
        "structuredContent": answer,
        "isError": state is not RunState.SUCCEEDED,
    }
    return {**task, "result": result}


def can_open_pages(ctx: Any) -> bool:
    """Whether a client opens a page for its person; it says so with every request."""
    declared = ctx.session.client_capabilities
    asking = declared.elicitation if declared is not None else None
    return asking is not None and asking.url is not None


def question_fields(context: OperationContext, run: dict[str, Any], *, has_pages: bool) -> dict[str, Any]:
    """Return the fields of a task whose run waits for a person; none if it does not."""

    def read(tx: Transaction) -> tuple[list[PendingAnswer], str]:
        asked = pending_answers_of(tx, context.namespace, run=run["id"], holder=run["holder"])
        return asked, tx.get_meta(DASHBOARD_URL) or "" if asked else ""

    asked, dashboard = context.store.read(read)
    if not asked:
        return {}
    message = f"waits for a person: {sanitize('; '.join(one.question for one in asked))}"
    if not (has_pages and dashboard):
        return {"statusMessage": f"{message}; approval list shows it, run answer answers it"}
    pages = {one.run: _page_request(one, dashboard.rstrip("/")) for one in asked}
    return {"status": "input_required", "statusMessage": message, "inputRequests": pages}


def _page_request(one: PendingAnswer, dashboard: str) -> dict[str, Any]:
    page = types.ElicitRequestURLParams(message=sanitize(one.question), url=f"{dashboard}/runs/{one.run}")
    return types.ElicitRequest(params=page).model_dump(by_alias=True, mode="json", exclude_none=True)
