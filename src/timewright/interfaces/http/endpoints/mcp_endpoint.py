"""`/mcp`: the MCP server behind the authentication of the HTTP server."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from timewright.errors import MissingExtra
from timewright.interfaces.http.endpoints.probes import request_context
from timewright.interfaces.http.requests.http_request import HttpRequest, Receive, Scope, Send
from timewright.operations import OperationContext

MCP_PATH = ("mcp",)


class McpAnswerer(Protocol):
    """Answers MCP requests in a given context."""

    async def answer(self, context: OperationContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        ...


class McpEndpoint:
    """Creates the MCP server on the first request, because importing it is slow and few servers need it."""

    def __init__(self) -> None:
        self._server: McpAnswerer | None = None

    async def handle(self, request: HttpRequest) -> Any:
        """`POST /mcp`: answer one MCP request as the caller."""
        server = self._server = self._server or _new_server()
        # Changes made over MCP are recorded as those of an agent, whatever the key.
        caller = replace(request.context.caller, origin="agent")
        request.context = replace(request.context, caller=caller)
        context = request_context(request)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            await server.answer(context, scope, receive, send)

        return respond


def _new_server() -> McpAnswerer:
    try:
        from timewright.interfaces.mcp.streamable_http import McpOverHttp
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            "the MCP server is not installed",
            field="mcp",
            rule="requires the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from missing
    return McpOverHttp()
