"""MCP over standard input and output; messages for people go to standard error."""

from __future__ import annotations

import anyio
from mcp.server.stdio import stdio_server

from timewright.interfaces.mcp.server import ContextProvider, make_server
from timewright.operations.access.callers import Caller


def serve_stdio(context_provider: ContextProvider, *, tools: str, caller: Caller) -> None:
    """Serve one client until it closes its end; `caller` as for `make_server`."""
    server = make_server(context_provider, tools=tools, caller=caller)

    async def answer() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(answer)
