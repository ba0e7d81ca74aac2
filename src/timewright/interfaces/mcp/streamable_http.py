"""MCP over streamable HTTP; stateless, every request is authenticated by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from timewright.interfaces.mcp.server import make_server
from timewright.operations import OperationContext

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_REQUEST_BYTES = 1024 * 1024
_CONTEXT = "timewright.context"


class McpOverHttp:
    """Answers MCP requests of authenticated callers; starts with the first request."""

    def __init__(self) -> None:
        # Stateless: there is no MCP session that could be stolen or lost.
        self._sessions = StreamableHTTPSessionManager(
            app=make_server(lambda request: request.scope[_CONTEXT]),
            json_response=True,
            stateless=True,
            max_request_body_size=MAX_REQUEST_BYTES,
        )
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def answer(self, context: OperationContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request in the given context."""
        if self._task is None:
            self._task = asyncio.create_task(self._run_sessions())
        await self._ready.wait()
        # A header's value has no white space around it (RFC 9110 5.5); not every HTTP parser removes it.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._sessions.handle_request({**scope, "headers": headers, _CONTEXT: context}, receive, send)

    async def close(self) -> None:
        """Cancel the requests in progress."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run_sessions(self) -> None:
        async with self._sessions.run():
            self._ready.set()
            await asyncio.Event().wait()
