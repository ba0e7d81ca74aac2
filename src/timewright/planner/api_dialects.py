"""Requests and replies of model APIs: the OpenAI and Anthropic formats, and tool calls in plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from timewright.planner.tools import tool_description, tool_schema

MAX_TEXT_CHARS = 100_000
MAX_ARGUMENT_CHARS = 20_000


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

    def build_request(
        self,
        model: str,
        key: str,
        system: str,
        turns: Sequence[ConversationTurn],
        *,
        max_tokens: int,
        tools: Sequence[str],
    ) -> ApiRequest:
        """Build the request for the next turn; the model must call one of `tools`."""
        ...

    def parse_reply(self, answer: Any) -> ModelReply:
        """Parse a reply; missing parts become empty."""
        ...


class ChatCompletionsDialect:
    """OpenAI's `chat/completions`, which most other endpoints also accept."""

    def build_request(
        self,
        model: str,
        key: str,
        system: str,
        turns: Sequence[ConversationTurn],
        *,
        max_tokens: int,
        tools: Sequence[str],
    ) -> ApiRequest:
        """Build the request for the next turn."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "messages": [
                {"role": "system", "content": system},
                *(m for turn in turns for m in _openai_messages(turn)),
            ],
        }
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": name,
                        "description": tool_description(name),
                        "parameters": tool_schema(name),
                    },
                }
                for name in tools
            ]
            one: Any = {"type": "function", "function": {"name": tools[0]}}
            body["tool_choice"] = one if len(tools) == 1 else "required"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
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

    def build_request(
        self,
        model: str,
        key: str,
        system: str,
        turns: Sequence[ConversationTurn],
        *,
        max_tokens: int,
        tools: Sequence[str],
    ) -> ApiRequest:
        """Build the request for the next turn."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "system": system,
            "messages": [_anthropic_message(turn) for turn in turns],
        }
        if tools:
            body["tools"] = [
                {"name": name, "description": tool_description(name), "input_schema": tool_schema(name)}
                for name in tools
            ]
            one = {"type": "tool", "name": tools[0]}
            body["tool_choice"] = one if len(tools) == 1 else {"type": "any"}
        headers = {"x-api-key": key} if key else {}
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
