"""Our HTTP server for the official MCP conformance suite.

The suite calls tools, prompts and resources by names of its own. This server translates those names, so that
what the suite checks is the answer of our own tools. The suite sends no key, so every request gets one here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

from timewright import Context, Scheduler
from timewright.interfaces.mcp import server as mcp_server
from timewright.interfaces.mcp import streamable_http

JOBS = ("slow_compute", "failing_job", "protocol_error_job")
# The suite's tools that ask the person, and the name that each gives its question.
QUESTIONS = {
    "test_input_required_result_elicitation": "user_name",
    "test_input_required_result_request_state": "confirm",
    "test_input_required_result_tampered_state": "confirm",
}
RESOURCES = {
    "test://static-text": "timewright://docs/learn/policies",
    "test://template/123/data": "timewright://schedules/123",
}


def slow_compute(ctx: Context) -> str:
    ctx.cancelled.wait((ctx.payload or {}).get("seconds", 0))
    return "computed"


def fail() -> None:
    raise OSError("the job failed")


def add_fixtures(server: Server[Any]) -> Server[Any]:
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
    return server


async def call_tool(answer: Any, params: types.CallToolRequestParams) -> Any:
    """Each job runs the schedule with its name; a tool that asks drains an empty queue."""
    if params.name == "greet":
        name = (params.arguments or {}).get("name", "")
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"Hello, {name}!")])
    if params.name in JOBS:
        arguments = {"schedule": params.name, "payload": params.arguments}
        return await answer(params.model_copy(update={"name": "schedule_run", "arguments": arguments}))
    if params.name not in QUESTIONS:
        return await answer(params)
    key = QUESTIONS[params.name]
    changes: dict[str, Any] = {"name": "queue_drain", "arguments": {"queue": "suite"}}
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


def serve(port: int, store: str, extend: Callable[[Server[Any]], Server[Any]]) -> None:
    """Serve the shipped server, with the names that `extend` adds."""
    app = Scheduler(store)
    app.schedule(manual=True, name="slow_compute", overlap="allow")(slow_compute)
    app.schedule(manual=True, name="failing_job", overlap="allow")(fail)
    park: dict[str, Any] = {"exhausted": "park"}
    app.schedule(manual=True, name="protocol_error_job", overlap="allow", **park)(fail)
    app.schedule(manual=True, name="123")(fail)
    token = app.call("key create", key="suite", role="admin").token
    build = mcp_server.make_server
    vars(streamable_http)["make_server"] = lambda provider: extend(build(provider, tools="all"))
    web = app.asgi()

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            header = (b"authorization", f"Bearer {token}".encode())
            scope = {**scope, "headers": [*scope["headers"], header]}
        await web(scope, receive, send)

    uvicorn.run(with_key, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], add_fixtures)
