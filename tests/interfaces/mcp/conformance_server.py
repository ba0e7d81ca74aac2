"""Our HTTP server for the official MCP conformance suite, with the tools that its checks of tasks need.

The suite sends no key, so every request gets that of this server. Its tools start runs of our own schedules.
"""

from __future__ import annotations

import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

from timewright import Context, Scheduler
from timewright.interfaces.mcp import server as mcp_server
from timewright.interfaces.mcp import streamable_http

JOBS = ("slow_compute", "failing_job", "protocol_error_job")


def slow_compute(ctx: Context) -> str:
    ctx.cancelled.wait((ctx.payload or {}).get("seconds", 0))
    return "computed"


def fail() -> None:
    raise OSError("the job failed")


def add_fixtures(server: Server[Any]) -> Server[Any]:
    """Add the suite's tools: each job runs the schedule with its name."""
    entry = server.get_request_handler("tools/call")
    assert entry is not None

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        if params.name == "greet":
            name = (params.arguments or {}).get("name", "")
            return types.CallToolResult(content=[types.TextContent(type="text", text=f"Hello, {name}!")])
        if params.name in JOBS:
            arguments = {"schedule": params.name, "payload": params.arguments}
            params = params.model_copy(update={"name": "schedule_run", "arguments": arguments})
        return await entry.handler(ctx, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    return server


def main() -> None:
    """Serve on the port of the first argument, from the store of the second one."""
    app = Scheduler(sys.argv[2])
    app.schedule(manual=True, name="slow_compute", overlap="allow")(slow_compute)
    app.schedule(manual=True, name="failing_job", overlap="allow")(fail)
    park: dict[str, Any] = {"exhausted": "park"}
    app.schedule(manual=True, name="protocol_error_job", overlap="allow", **park)(fail)
    token = app.call("key create", key="suite", role="admin").token
    build = mcp_server.make_server
    vars(streamable_http)["make_server"] = lambda *given, **named: add_fixtures(build(*given, **named))
    web = app.asgi()

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            header = (b"authorization", f"Bearer {token}".encode())
            scope = {**scope, "headers": [*scope["headers"], header]}
        await web(scope, receive, send)

    uvicorn.run(with_key, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
