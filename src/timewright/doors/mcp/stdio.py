"""One client on the standard input and output; words for people go to the standard error."""

from __future__ import annotations

import anyio
from mcp.server.stdio import stdio_server

from timewright.doors.mcp.server import Opening, make_server


def serve_stdio(opening: Opening) -> None:
    """Answer until the client closes its side."""
    server = make_server(opening)

    async def answer() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(answer)
