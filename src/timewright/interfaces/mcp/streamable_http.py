"""MCP over streamable HTTP; stateless, every request is authenticated by itself.

An answer is a JSON document. It is a stream of events only if the client accepts one, and something precedes
the answer: progress, a question, or a ping because the answer takes long.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from timewright.interfaces.mcp.client_channel import (
    CHANNEL,
    MAX_OPEN_QUESTIONS,
    SESSION_HEADER,
    ClientChannel,
    ResponseStream,
    new_session,
    save_client_answer,
)
from timewright.interfaces.mcp.server import make_server
from timewright.operations import OperationContext

MAX_REQUEST_BYTES = 1024 * 1024
# The answer of a person to a form; it is stored until the asking instance reads it.
MAX_ANSWER_BYTES = 16 * 1024
_CONTEXT = "timewright.context"


class _Envelope(Struct):
    """The parts of a JSON-RPC message that tell requests from answers."""

    id: str | int | None = None
    method: str = ""
    params: dict[str, Any] = {}
    result: dict[str, Any] | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class McpOverHttp:
    """Answers MCP requests of authenticated callers; starts with the first request."""

    def __init__(self) -> None:
        server = make_server(lambda request: request.scope[_CONTEXT])
        # Stateless: there is no MCP session that could be stolen or lost.
        self._json, self._streaming = (
            StreamableHTTPSessionManager(
                app=server,
                json_response=is_json,
                stateless=True,
                max_request_body_size=MAX_REQUEST_BYTES,
            )
            for is_json in (True, False)
        )
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._questions = anyio.Semaphore(MAX_OPEN_QUESTIONS)

    async def answer(self, context: OperationContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request in the given context."""
        if self._task is None:
            self._task = asyncio.create_task(self._run_sessions())
        await self._ready.wait()
        # A header's value has no white space around it (RFC 9110 5.5); not every HTTP parser removes it.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        scope = {**scope, "headers": headers, _CONTEXT: context}
        request = Request(scope)
        accepts_stream = all(check_accept_headers(request))
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            sessions = self._streaming if accepts_stream else self._json
            await sessions.handle_request(scope, receive, send)
        elif accepts_stream:
            await self._answer_earlier_version(context, scope, receive, send)
        else:
            await self._json.handle_request(scope, receive, send)

    async def _answer_earlier_version(
        self, context: OperationContext, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request of a client that may be notified and asked before it gets the answer."""
        parts, message = await _read_message(receive)
        if message is not None and not message.method:
            await _take_answer(context, message, send)
            return
        if message is not None and message.method == "initialize":
            send = _with_session(send, message.params)
        stream = ResponseStream(send)
        session = Request(scope).headers.get(SESSION_HEADER, "")
        channel = ClientChannel(context, stream, self._questions, session=session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send_pings)
            tasks.start_soon(_stop_with_client, receive, stream, tasks.cancel_scope)
            await self._json.handle_request({**scope, CHANNEL: channel}, _replay(parts), stream.send)
            tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """Cancel the requests in progress."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run_sessions(self) -> None:
        async with AsyncExitStack() as stack:
            for sessions in (self._json, self._streaming):
                await stack.enter_async_context(sessions.run())
            self._ready.set()
            await asyncio.Event().wait()


async def _read_message(receive: Receive) -> tuple[list[Message], _Envelope | None]:
    """Read a body, and decode it if it is a JSON-RPC message of a size that is accepted."""
    parts: list[Message] = []
    size, more = 0, True
    while more and size <= MAX_REQUEST_BYTES:
        parts.append(await receive())
        size += len(parts[-1].get("body", b""))
        more = parts[-1].get("more_body", False)
    body = b"".join(part.get("body", b"") for part in parts)
    try:
        message = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return parts, None
    is_message = bool(message.method) or message.result is not UNSET or message.error is not UNSET
    return parts, message if is_message else None


def _replay(parts: list[Message]) -> Receive:
    """Return what was received once more."""
    left = iter(parts)

    async def receive() -> Message:
        return next(left, {"type": "http.disconnect"})

    return receive


async def _take_answer(context: OperationContext, message: _Envelope, send: Send) -> None:
    """Save the answer to a question of ours; an error, or what is no answer to a form, is an empty one."""
    result = message.result if message.result is not UNSET else {}
    if len(msgspec.json.encode(result)) > MAX_ANSWER_BYTES:
        result = {}
    is_known = await anyio.to_thread.run_sync(save_client_answer, context, str(message.id), result)
    await send({"type": "http.response.start", "status": 202 if is_known else 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _with_session(send: Send, params: dict[str, Any]) -> Send:
    """Give the client a session, if it says that it can ask its person."""
    try:
        capabilities = types.ClientCapabilities.model_validate(params.get("capabilities"))
    except ValueError:
        return send
    session = new_session(capabilities).encode()

    async def send_with_session(message: Message) -> None:
        if message["type"] == "http.response.start" and session:
            message = {**message, "headers": [*message["headers"], (SESSION_HEADER.encode(), session)]}
        await send(message)

    return send_with_session


async def _stop_with_client(receive: Receive, stream: ResponseStream, scope: anyio.CancelScope) -> None:
    """Stop waiting for a person, or for a run, when the client is gone; what takes less time goes on."""
    while (await receive())["type"] != "http.disconnect":
        pass
    await stream.opened.wait()
    scope.cancel()
