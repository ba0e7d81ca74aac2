"""Requests to model APIs and their replies: the OpenAI and Anthropic formats, and tool calls in plain JSON.

A request is sent with limits on size, time and retries.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol

import aiohttp
import msgspec
from msgspec import Struct

from timewright.core.moments import SECOND
from timewright.core.sensitive_keys import redact_text
from timewright.operations.text_safety import sanitize
from timewright.planner.tool_session import tool_description, tool_schema

MAX_TEXT_CHARS = 100_000
MAX_ARGUMENT_CHARS = 20_000
MAX_TRIES = 4
MAX_WAIT_S = 30.0
MAX_RESPONSE_BYTES = 2_000_000
MAX_REASON_CHARS = 300
QUOTA_SIGNS = ("insufficient_quota", "exceeded your current quota", "credit balance is too low")
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
Sleep = Callable[[float], Awaitable[None]]


class RequestedToolCall(Struct, frozen=True, kw_only=True):
    """A tool call by the model; `problem` says why it could not be parsed."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    problem: str = ""


class ConversationTurn(Struct, frozen=True, kw_only=True):
    """One turn of the conversation, by us, by the model, or with the results of its tools."""

    author: Literal["us", "model", "tools"]
    text: str = ""
    tool_calls: tuple[RequestedToolCall, ...] = ()
    answers: tuple[str, ...] = ()


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked: the conversation so far, and the tools of which it must call one."""

    model: str
    key: str
    system: str
    turns: Sequence[ConversationTurn]
    max_tokens: int
    tools: Sequence[str]


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to an endpoint: path, headers and body."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ModelReply(Struct, frozen=True, kw_only=True):
    """A model's reply with its token counts."""

    text: str = ""
    tool_calls: tuple[RequestedToolCall, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0


class ApiDialect(Protocol):
    """Builds requests and parses replies of one API format."""

    def build_request(self, prompt: Prompt) -> ApiRequest:
        """Build the request for the next turn."""
        ...

    def parse_reply(self, answer: Any) -> ModelReply:
        """Parse a reply; missing parts become empty."""
        ...


class ChatCompletionsDialect:
    """OpenAI's `chat/completions`, which most other endpoints also accept."""

    def build_request(self, prompt: Prompt) -> ApiRequest:
        """Build the request for the next turn."""
        body: dict[str, Any] = {
            "model": prompt.model,
            "max_tokens": prompt.max_tokens,
            "messages": [
                {"role": "system", "content": prompt.system},
                *(m for turn in prompt.turns for m in _openai_messages(turn)),
            ],
        }
        if prompt.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": name,
                        "description": tool_description(name),
                        "parameters": tool_schema(name),
                    },
                }
                for name in prompt.tools
            ]
            forced: Any = {"type": "function", "function": {"name": prompt.tools[0]}}
            body["tool_choice"] = forced if len(prompt.tools) == 1 else "required"
        headers = {"Authorization": f"Bearer {prompt.key}"} if prompt.key else {}
        return ApiRequest(path="/chat/completions", headers=headers, body=body)

    def parse_reply(self, answer: Any) -> ModelReply:
        """Parse a reply."""
        choices = _list(_at(answer, "choices"))
        message = _at(choices[0], "message") if choices else {}
        uses = tuple(_chat_tool_call(n, one) for n, one in enumerate(_list(_at(message, "tool_calls"))))
        usage = _at(answer, "usage")
        return ModelReply(
            text=_text(_at(message, "content")),
            tool_calls=uses,
            tokens_in=_count(_at(usage, "prompt_tokens")),
            tokens_out=_count(_at(usage, "completion_tokens")),
        )


class MessagesDialect:
    """Anthropic's `messages`."""

    def build_request(self, prompt: Prompt) -> ApiRequest:
        """Build the request for the next turn."""
        body: dict[str, Any] = {
            "model": prompt.model,
            "max_tokens": prompt.max_tokens,
            "system": prompt.system,
            "messages": [_anthropic_message(turn) for turn in prompt.turns],
        }
        if prompt.tools:
            body["tools"] = [
                {"name": name, "description": tool_description(name), "input_schema": tool_schema(name)}
                for name in prompt.tools
            ]
            forced = {"type": "tool", "name": prompt.tools[0]}
            body["tool_choice"] = forced if len(prompt.tools) == 1 else {"type": "any"}
        headers = {"x-api-key": prompt.key} if prompt.key else {}
        return ApiRequest(path="/messages", headers={**headers, "anthropic-version": "2023-06-01"}, body=body)

    def parse_reply(self, answer: Any) -> ModelReply:
        """Parse a reply."""
        blocks = _list(_at(answer, "content"))
        uses = tuple(
            _tool_call(_text(_at(one, "id")) or f"use-{n}", _at(one, "name"), _at(one, "input"))
            for n, one in enumerate(blocks)
            if _at(one, "type") == "tool_use"
        )
        usage = _at(answer, "usage")
        counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return ModelReply(
            text="".join(_text(_at(one, "text")) for one in blocks)[:MAX_TEXT_CHARS],
            tool_calls=uses,
            tokens_in=sum(_count(_at(usage, name)) for name in counted),
            tokens_out=_count(_at(usage, "output_tokens")),
        )


DIALECTS: Mapping[str, ApiDialect] = {"openai": ChatCompletionsDialect(), "anthropic": MessagesDialect()}


def parse_tool_call(text: str) -> RequestedToolCall:
    """Parse the one JSON tool call in a text; anything else becomes a `problem`."""
    found = _objects(text[:MAX_TEXT_CHARS])
    if len(found) != 1:
        problem = f"expected exactly one JSON object, found {len(found)}"
        return RequestedToolCall(id="json", name="", problem=problem)
    return _tool_call("json", found[0].get("tool"), found[0].get("arguments", {}))


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text, at most three, because one is expected."""
    found: list[dict[str, Any]] = []
    place, reader = text.find("{"), json.JSONDecoder()
    for _ in range(100):
        if place < 0 or len(found) == 3:
            break
        try:
            value, end = reader.raw_decode(text, place)
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)
            continue
        found.append(value)
        place = text.find("{", end)
    return found


def _openai_messages(turn: ConversationTurn) -> list[dict[str, Any]]:
    if turn.author == "tools":
        pairs = zip(turn.tool_calls, turn.answers, strict=True)
        return [{"role": "tool", "tool_call_id": use.id, "content": text} for use, text in pairs]
    if turn.author == "us":
        return [{"role": "user", "content": turn.text}]
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {"name": use.name, "arguments": msgspec.json.encode(use.arguments).decode()},
            }
            for use in turn.tool_calls
        ]
    elif not turn.text:
        message["content"] = "(nothing)"
    return [message]


def _anthropic_message(turn: ConversationTurn) -> dict[str, Any]:
    if turn.author == "tools":
        pairs = zip(turn.tool_calls, turn.answers, strict=True)
        blocks: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": use.id, "content": text} for use, text in pairs
        ]
        return {"role": "user", "content": blocks}
    if turn.author == "us":
        return {"role": "user", "content": turn.text}
    blocks = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [
        {"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments}
        for use in turn.tool_calls
    ]
    return {"role": "assistant", "content": blocks or "(nothing)"}


def _chat_tool_call(number: int, one: Any) -> RequestedToolCall:
    function = _at(one, "function")
    call_id = _text(_at(one, "id")) or f"use-{number}"
    return _tool_call(call_id, _at(function, "name"), _at(function, "arguments"))


def _tool_call(call_id: str, name: Any, arguments: Any) -> RequestedToolCall:
    """A tool call by name, with arguments as an object or as JSON text."""
    tool_name = name[:100] if isinstance(name, str) else ""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments[:MAX_ARGUMENT_CHARS] or "{}")
        except (msgspec.MsgspecError, RecursionError) as error:
            return RequestedToolCall(
                id=call_id[:200], name=tool_name, problem=f"the arguments are not JSON: {error}"[:300]
            )
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return RequestedToolCall(id=call_id[:200], name=tool_name, problem="the arguments are not an object")
    return RequestedToolCall(id=call_id[:200], name=tool_name, arguments=arguments)


def _at(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return min(max(int(value), 0), 10**8) if isinstance(value, int) and not isinstance(value, bool) else 0


class ModelUnavailable(Exception):
    """The endpoint gave no usable response; the message contains no secret."""


class ModelClient:
    """Sends requests to one endpoint. The API key goes into a header and is not stored."""

    def __init__(
        self, base_url: str, *, timeout: timedelta = 60 * SECOND, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._base = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds(), connect=10)
        self._sleep = sleep

    def send(self, request: ApiRequest) -> Any:
        """Send one request and return the parsed response; retry a busy endpoint."""
        return asyncio.run(self._send_with_retries(request))

    async def _send_with_retries(self, request: ApiRequest) -> Any:
        problem = ""
        async with aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session:
            for number in range(MAX_TRIES):
                wait = float(2**number)
                try:
                    status, retry_after, text = await self._send_once(session, request)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    problem = f"the endpoint does not answer: {type(error).__name__}"
                else:
                    if 200 <= status < 300:
                        return _read(text)
                    reason = _reason(text, request)
                    problem = f"the endpoint answered {status}" + (f": {reason}" if reason else "")
                    if status not in RETRYABLE_STATUSES or is_quota_used_up(reason):
                        break
                    wait = retry_after if retry_after is not None else wait
                if number < MAX_TRIES - 1:
                    await self._sleep(min(wait, MAX_WAIT_S))
        raise ModelUnavailable(problem)

    async def _send_once(
        self, session: aiohttp.ClientSession, request: ApiRequest
    ) -> tuple[int, float | None, bytes]:
        url = f"{self._base}{request.path}"
        # Redirects are refused, because a redirect would send the key to another host.
        async with session.post(
            url, json=request.body, headers=request.headers, allow_redirects=False
        ) as response:
            text = await response.content.read(MAX_RESPONSE_BYTES + 1)
            while len(text) <= MAX_RESPONSE_BYTES and (
                more := await response.content.read(MAX_RESPONSE_BYTES)
            ):
                text += more
            if len(text) > MAX_RESPONSE_BYTES:
                raise ModelUnavailable(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
            return response.status, _seconds(response.headers.get("Retry-After")), text


def is_quota_used_up(problem: str) -> bool:
    """Whether a provider refuses because the account has no tokens or money left; waiting does not help."""
    lowered = problem.lower()
    return any(sign in lowered for sign in QUOTA_SIGNS)


def _reason(text: bytes, request: ApiRequest) -> str:
    """Return the provider's own words about a refused request, without the key that was sent."""
    shown = text[:MAX_REASON_CHARS].decode(errors="replace")
    try:
        found = json.loads(text[:MAX_RESPONSE_BYTES])
        error = found.get("error", found) if isinstance(found, dict) else {}
        parts = [error.get(name) for name in ("code", "message")] if isinstance(error, dict) else [error]
        shown = " ".join(part for part in parts if isinstance(part, str))
    except (ValueError, RecursionError):
        pass
    for value in request.headers.values():
        shown = shown.replace(value.removeprefix("Bearer "), "…")
    return str(sanitize(redact_text(shown.strip()), max_chars=MAX_REASON_CHARS))


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelUnavailable(f"the response is not JSON: {type(error).__name__}") from None


def _seconds(text: str | None) -> float | None:
    """Parse Retry-After as seconds; a date is ignored."""
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and 0 <= found < 86_400 else None
