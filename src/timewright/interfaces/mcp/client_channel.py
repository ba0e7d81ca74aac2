"""Messages to the client while it waits for the answer to an HTTP request; earlier protocol versions only.

The response is a JSON document, or a stream of events if messages precede the answer.

A client sends its answer to a question in a request of its own, which may reach another instance. The answer
is therefore passed on through the store, so that instances need no sticky sessions.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from starlette.types import Message, Send

from timewright.errors import NotAllowed
from timewright.operations import OperationContext
from timewright.operations.idempotency import claim_once, find_claim

CHANNEL = "timewright.mcp_client"
SESSION_HEADER = "mcp-session-id"
# A confirmation token is valid for at least so long.
MAX_ANSWER_S = 300.0
# Of one instance. Each reads the store twice a second; a client that cannot be asked uses a dry run.
MAX_OPEN_QUESTIONS = 100
POLL_INTERVAL_S = 0.5
# A session says only what its client can do, which later versions repeat in every request. So it needs no
# memory on any instance, and there is nothing in it to steal or to forge.
_ASKS = "asks-"
_SESSION = re.compile(_ASKS + "[0-9a-f]{32}")
_QUESTION, _ANSWER = "mcp-question-", "mcp-answer-"
# A proxy may close a connection on which nothing arrives for 30 s or 60 s.
PING_INTERVAL_S = 15.0
_PING = b": ping\r\n\r\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class ClientChannel:
    """Notifies the client of one request, and asks it."""

    def __init__(
        self, context: OperationContext, stream: ResponseStream, questions: anyio.Semaphore, *, session: str
    ) -> None:
        self._context = context
        self._stream = stream
        self._questions = questions
        self._session = session

    @property
    def can_ask(self) -> bool:
        """Whether the client can ask its person, and this instance can wait for one more answer."""
        return _SESSION.fullmatch(self._session) is not None and self._questions.value > 0

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        await self._stream.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result once it arrives; empty if the client answers an error."""
        question = secrets.token_hex(16)
        await anyio.to_thread.run_sync(claim_once, self._context, _QUESTION + question)
        with anyio.move_on_after(MAX_ANSWER_S):
            async with self._questions:
                message = {"jsonrpc": "2.0", "id": question, "method": method, "params": params}
                await self._stream.write(message)
                return await self._wait_for_answer(question)
        raise NotAllowed(
            "the client did not answer in time",
            field="confirm",
            rule=f"within {MAX_ANSWER_S / 60:g} minutes",
            fix="call the tool again",
        )

    async def _wait_for_answer(self, question: str) -> dict[str, Any]:
        find = partial(find_claim, self._context, _ANSWER + question)
        while True:
            found = await anyio.to_thread.run_sync(find)
            if found is not None:
                return dict(found.get("result") or {})
            await anyio.sleep(POLL_INTERVAL_S)


def channel_of(ctx: Any) -> ClientChannel | None:
    """The channel of a request: over HTTP, from a client of an earlier version that accepts a stream."""
    return ctx.request.scope.get(CHANNEL) if ctx.request is not None else None


def save_client_answer(context: OperationContext, question: str, result: Mapping[str, Any]) -> bool:
    """Save the client's answer for the instance that asked; False if this caller was not asked that."""
    if find_claim(context, _QUESTION + question) is None:
        return False
    claim_once(context, _ANSWER + question, body={"result": result})
    return True


def new_session(capabilities: types.ClientCapabilities) -> str:
    """Return the session of a client that can ask its person with a form; empty for any other client."""
    asking = capabilities.elicitation
    is_form = asking is not None and (asking.form is not None or asking.url is None)
    return _ASKS + secrets.token_hex(16) if is_form else ""


class ResponseStream:
    """Passes a JSON answer on as it is, or as the last event of a stream that messages before it opened."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = anyio.Lock()
        self._answer = b""
        self._has_answered = False
        self.opened = anyio.Event()
        """Set when the response has become a stream."""

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        async with self._lock:
            self._has_answered = True
            if not self.opened.is_set():
                await self._send(message)
            elif message["type"] == "http.response.body":
                self._answer += message.get("body", b"")
                if not message.get("more_body", False):
                    await self._send(_body(_event(self._answer), more=False))

    async def write(self, message: Mapping[str, Any]) -> None:
        """Send a message to the client, before the answer."""
        await self._write(_event(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()))

    async def send_pings(self) -> None:
        """Keep the connection open while the answer takes long."""
        while True:
            await anyio.sleep(PING_INTERVAL_S)
            await self._write(_PING)

    async def _write(self, text: bytes) -> None:
        async with self._lock:
            if self._has_answered:
                return
            if not self.opened.is_set():
                self.opened.set()
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await self._send(_body(text, more=True))


def _event(data: bytes) -> bytes:
    return b"event: message\r\ndata: " + data + b"\r\n\r\n"


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
