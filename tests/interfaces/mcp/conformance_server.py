"""Our HTTP server for the official MCP conformance suite.

The suite calls tools, prompts and resources by names of its own. This server translates those names, so that
what the suite checks is the answer of our own tools. The suite sends no key, so every request gets one here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import anyio.to_thread
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

from timewright import Context, Scheduler
from timewright.core.alerts.channels import DASHBOARD_URL
from timewright.errors import NotFound
from timewright.interfaces.mcp import server as mcp_server
from timewright.interfaces.mcp import streamable_http, tasks

JOBS = ("slow_compute", "failing_job", "protocol_error_job", "greet_later")
# The suite's tools that ask the person, and the name that each gives its question.
QUESTIONS = {
    "test_input_required_result_elicitation": "user_name",
    "test_input_required_result_request_state": "confirm",
    "test_input_required_result_tampered_state": "confirm",
}
# A call of ours that asks the person, and changes nothing.
DRAIN: dict[str, Any] = {"name": "queue_drain", "arguments": {"queue": "suite"}}
# The suite's tools whose task asks the person, and the workflow that each runs.
WORKFLOWS = {
    "confirm_delete": {"name": "confirm_delete", "steps": [{"name": "sure", "wait": {"answer": {}}}]},
    "multi_input": {
        "name": "multi_input",
        "steps": [{"name": name, "wait": {"answer": {}}} for name in ("one", "other")],
    },
}
RESOURCES = {
    "test://static-text": "timewright://docs/learn/policies",
    "test://template/123/data": "timewright://schedules/123",
}


def slow_compute(ctx: Context) -> str:
    ctx.cancelled.wait((ctx.payload or {}).get("seconds", 0))
    return "computed"


def half_and_half(ctx: Context) -> str:
    """Report progress after the start; it is written about once a second."""
    ctx.progress(0.5, "half of it")
    ctx.cancelled.wait(2.5)
    return "both halves"


class TaskUpdate(tasks.TaskRequestParams):
    """The answers of the suite's person to the questions of a task."""

    input_responses: Mapping[str, Any] = MappingProxyType({})


class Person:
    """The person at the suite's client. Ours answers on a page, which the suite cannot open."""

    def __init__(self, app: Scheduler) -> None:
        self._app = app

    async def see_task(self, answer: Any, params: tasks.TaskRequestParams) -> Any:
        """Show the question of each page as a form, which is what the suite's client can show."""
        task = await answer(params)
        for asked in task.get("inputRequests", {}).values():
            assert asked["params"].pop("url").endswith(tuple(task["inputRequests"]))
            asked["params"] |= {"mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
        return task

    async def answer_task(self, answer: Any, params: TaskUpdate) -> Any:
        """Answer as the person does on the page; the client then tells the server that it opened the page."""
        for run, given in params.input_responses.items():
            with suppress(NotFound):
                await anyio.to_thread.run_sync(self._answer, run, given.get("content"))
        return await answer(params)

    def _answer(self, run: str, content: Any) -> None:
        self._app.runs.answer(run=run, answer=content)


def greet_later(ctx: Context) -> str:
    return f"Hello, {ctx.payload['name']}!"


def fail() -> None:
    raise OSError("the job failed")


def add_fixtures(server: Server[Any], app: Scheduler) -> Server[Any]:
    """Let the names of the suite's tools, prompts and resources mean ours, and translate them back."""

    def wrap(method: str, params_type: Any, translate: Any) -> None:
        entry = server.get_request_handler(method)
        assert entry is not None
        answer = entry.handler

        async def handle(ctx: Any, params: Any) -> Any:
            return await translate(lambda changed: answer(ctx, changed), params)

        server.add_request_handler(method, params_type, handle)

    wrap("tools/call", types.CallToolRequestParams, call_tool)
    wrap("prompts/get", types.GetPromptRequestParams, get_prompt)
    wrap("resources/read", types.ReadResourceRequestParams, read_resource)
    person = Person(app)
    wrap("tasks/get", tasks.TaskRequestParams, person.see_task)
    wrap("tasks/update", TaskUpdate, person.answer_task)
    return server


async def call_tool(answer: Any, params: types.CallToolRequestParams) -> Any:
    """Each job runs the schedule or the workflow with its name; a tool that asks drains an empty queue."""
    if params.name == "greet":
        name = (params.arguments or {}).get("name", "")
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"Hello, {name}!")])
    if params.name in JOBS:
        arguments = {"schedule": params.name, "payload": params.arguments}
        return await answer(params.model_copy(update={"name": "schedule_run", "arguments": arguments}))
    if params.name in WORKFLOWS:
        arguments = {"workflow": params.name}
        return await answer(params.model_copy(update={"name": "workflow_run", "arguments": arguments}))
    if params.name == "test_tool_with_progress":
        started = {"name": "schedule_run", "arguments": {"schedule": "half_and_half"}}
        run = (await answer(params.model_copy(update=started))).structured_content["run"]["id"]
        return await answer(params.model_copy(update={"name": "run_wait", "arguments": {"run": run}}))
    if params.name == "test_elicitation":
        return await answer(params.model_copy(update=DRAIN))
    if params.name not in QUESTIONS:
        return await answer(params)
    key = QUESTIONS[params.name]
    changes = dict(DRAIN)
    given = (params.input_responses or {}).get(key)
    if isinstance(given, types.ElicitResult):
        yes = given.model_copy(update={"content": {"confirm": bool(given.content)}})
        changes["input_responses"] = {"confirm": yes}
    result = await answer(params.model_copy(update=changes))
    if isinstance(result, types.InputRequiredResult):
        question = (result.input_requests or {})["confirm"]
        return result.model_copy(update={"input_requests": {key: question}})
    return result


async def get_prompt(answer: Any, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    prompts: dict[str, tuple[str, dict[str, str]]] = {
        "test_simple_prompt": ("drain_the_queue", {"queue": "suite"}),
        "test_prompt_with_arguments": (
            "why_did_it_not_run",
            {"schedule": given.get("arg1", ""), "at": given.get("arg2", "")},
        ),
    }
    name, arguments = prompts.get(params.name, (params.name, given))
    return await answer(params.model_copy(update={"name": name, "arguments": arguments}))


async def read_resource(answer: Any, params: types.ReadResourceRequestParams) -> Any:
    ours = RESOURCES.get(str(params.uri), str(params.uri))
    result = await answer(params.model_copy(update={"uri": ours}))
    contents = [one.model_copy(update={"uri": params.uri}) for one in result.contents]
    return result.model_copy(update={"contents": contents})


def serve(port: int, store: str, extend: Callable[[Server[Any], Scheduler], Server[Any]]) -> None:
    """Serve the shipped server, with the names that `extend` adds."""
    app = Scheduler(store)
    app.schedule(manual=True, name="slow_compute", overlap="allow")(slow_compute)
    app.schedule(manual=True, name="failing_job", overlap="allow")(fail)
    park: dict[str, Any] = {"exhausted": "park"}
    app.schedule(manual=True, name="protocol_error_job", overlap="allow", **park)(fail)
    app.schedule(manual=True, name="123")(fail)
    app.schedule(manual=True, name="greet_later", overlap="allow")(greet_later)
    app.schedule(manual=True, name="half_and_half", overlap="allow")(half_and_half)
    for workflow in WORKFLOWS.values():
        app.call("workflow put", **workflow)
    app._context().store.write(lambda tx: tx.put_meta(DASHBOARD_URL, f"http://127.0.0.1:{port}"))
    token = app.call("key create", key="suite", role="admin").token
    build = mcp_server.make_server
    vars(streamable_http)["make_server"] = lambda provider: extend(build(provider, tools="all"), app)
    vars(tasks)["can_open_pages"] = lambda _: True
    web = app.asgi()

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            header = (b"authorization", f"Bearer {token}".encode())
            scope = {**scope, "headers": [*scope["headers"], header]}
        await web(scope, receive, send)

    uvicorn.run(with_key, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], add_fixtures)
