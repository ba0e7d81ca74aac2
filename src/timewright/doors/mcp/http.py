"""The agents' door over HTTP: every request stands alone, as whoever its key says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from timewright.doors.mcp.server import make_server
from timewright.operations import Context

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_REQUEST = 1024 * 1024
_CONTEXT = "timewright.context"


class McpOverHttp:
    """Answers agents inside a server that has already decided who asks; begins with the first of them."""

    def __init__(self) -> None:
        # Nothing is remembered between two requests, so there is no session to steal or to lose.
        self._sessions = StreamableHTTPSessionManager(
            app=make_server(lambda request: request.scope[_CONTEXT]),
            json_response=True,
            stateless=True,
            max_request_body_size=LARGEST_REQUEST,
        )
        self._holding: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def answer(self, context: Context, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request in a context."""
        if self._holding is None:
            self._holding = asyncio.create_task(self._hold())
        await self._ready.wait()
        await self._sessions.handle_request({**scope, _CONTEXT: context}, receive, send)

    async def close(self) -> None:
        """Let go of whatever is still being answered."""
        if self._holding is not None:
            self._holding.cancel()
            with suppress(asyncio.CancelledError):
                await self._holding

    async def _hold(self) -> None:
        async with self._sessions.run():
            self._ready.set()
            await asyncio.Event().wait()
