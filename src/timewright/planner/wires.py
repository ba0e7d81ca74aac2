"""How a model is asked and its answer read: the two shapes that most endpoints speak, and plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from timewright.planner.tools import tool_schema, tool_summary

LONGEST_TEXT = 100_000
LONGEST_ARGUMENTS = 20_000


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool that the model wants to use; a `problem` says why its words could not be read."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    problem: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """One turn of the conversation: what we say, what the model says, or what its tools answered."""

    by: Literal["us", "model", "tools"]
    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    answers: tuple[str, ...] = ()


class Asked(Struct, frozen=True, kw_only=True):
    """A request to an endpoint: where below its address, how we show who we are, and what is said."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Reply(Struct, frozen=True, kw_only=True):
    """What a model answered, and how many tokens went in and out."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0


class Wire(Protocol):
    """One shape of request and answer."""

    def ask(
        self, model: str, key: str, system: str, turns: Sequence[Turn], *, most: int, tools: Sequence[str]
    ) -> Asked:
        """The request for the next turn; with several tools one must be used, with one that one."""
        ...

    def read(self, answer: Any) -> Reply:
        """What was answered; what is not there reads as nothing."""
        ...


class ChatCompletions:
    """OpenAI's `chat/completions`, which most other endpoints speak too."""

    def ask(
        self, model: str, key: str, system: str, turns: Sequence[Turn], *, most: int, tools: Sequence[str]
    ) -> Asked:
        """The request for the next turn."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": most,
            "messages": [{"role": "system", "content": system}, *(m for turn in turns for m in _chat(turn))],
        }
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": name,
                        "description": tool_summary(name),
                        "parameters": tool_schema(name),
                    },
                }
                for name in tools
            ]
            one: Any = {"type": "function", "function": {"name": tools[0]}}
            body["tool_choice"] = one if len(tools) == 1 else "required"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Asked(path="/chat/completions", headers=headers, body=body)

    def read(self, answer: Any) -> Reply:
        """What was answered."""
        choices = _list(_at(answer, "choices"))
        message = _at(choices[0], "message") if choices else {}
        uses = tuple(_chat_use(n, one) for n, one in enumerate(_list(_at(message, "tool_calls"))))
        usage = _at(answer, "usage")
        return Reply(
            text=_text(_at(message, "content")),
            uses=uses,
            tokens_in=_count(_at(usage, "prompt_tokens")),
            tokens_out=_count(_at(usage, "completion_tokens")),
        )


class Messages:
    """Anthropic's `messages`."""

    def ask(
        self, model: str, key: str, system: str, turns: Sequence[Turn], *, most: int, tools: Sequence[str]
    ) -> Asked:
        """The request for the next turn."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": most,
            "system": system,
            "messages": [_message(turn) for turn in turns],
        }
        if tools:
            body["tools"] = [
                {"name": name, "description": tool_summary(name), "input_schema": tool_schema(name)}
                for name in tools
            ]
            one = {"type": "tool", "name": tools[0]}
            body["tool_choice"] = one if len(tools) == 1 else {"type": "any"}
        headers = {"x-api-key": key} if key else {}
        return Asked(path="/messages", headers={**headers, "anthropic-version": "2023-06-01"}, body=body)

    def read(self, answer: Any) -> Reply:
        """What was answered."""
        blocks = _list(_at(answer, "content"))
        uses = tuple(
            _use(_text(_at(one, "id")) or f"use-{n}", _at(one, "name"), _at(one, "input"))
            for n, one in enumerate(blocks)
            if _at(one, "type") == "tool_use"
        )
        usage = _at(answer, "usage")
        counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return Reply(
            text="".join(_text(_at(one, "text")) for one in blocks)[:LONGEST_TEXT],
            uses=uses,
            tokens_in=sum(_count(_at(usage, name)) for name in counted),
            tokens_out=_count(_at(usage, "output_tokens")),
        )


WIRES: Mapping[str, Wire] = {"openai": ChatCompletions(), "anthropic": Messages()}


def use_in(text: str) -> ToolUse:
    """The one tool a model names in plain JSON, whatever stands around it; anything else is a problem."""
    found = _objects(text[:LONGEST_TEXT])
    if len(found) != 1:
        problem = f"exactly one JSON object is wanted, {len(found)} were found"
        return ToolUse(id="json", name="", problem=problem)
    return _use("json", found[0].get("tool"), found[0].get("arguments", {}))


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text, side by side; at most three, because one is wanted."""
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


def _chat(turn: Turn) -> list[dict[str, Any]]:
    if turn.by == "tools":
        pairs = zip(turn.uses, turn.answers, strict=True)
        return [{"role": "tool", "tool_call_id": use.id, "content": text} for use, text in pairs]
    if turn.by == "us":
        return [{"role": "user", "content": turn.text}]
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.uses:
        message["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {"name": use.name, "arguments": msgspec.json.encode(use.arguments).decode()},
            }
            for use in turn.uses
        ]
    elif not turn.text:
        message["content"] = "(nothing)"
    return [message]


def _message(turn: Turn) -> dict[str, Any]:
    if turn.by == "tools":
        pairs = zip(turn.uses, turn.answers, strict=True)
        blocks: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": use.id, "content": text} for use, text in pairs
        ]
        return {"role": "user", "content": blocks}
    if turn.by == "us":
        return {"role": "user", "content": turn.text}
    blocks = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [
        {"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments} for use in turn.uses
    ]
    return {"role": "assistant", "content": blocks or "(nothing)"}


def _chat_use(number: int, one: Any) -> ToolUse:
    function = _at(one, "function")
    use_id = _text(_at(one, "id")) or f"use-{number}"
    return _use(use_id, _at(function, "name"), _at(function, "arguments"))


def _use(use_id: str, name: Any, arguments: Any) -> ToolUse:
    """A tool by its name, with arguments that may be an object or the text of one."""
    called = name[:100] if isinstance(name, str) else ""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments[:LONGEST_ARGUMENTS] or "{}")
        except (msgspec.MsgspecError, RecursionError) as error:
            return ToolUse(id=use_id[:200], name=called, problem=f"the arguments are not JSON: {error}"[:300])
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return ToolUse(id=use_id[:200], name=called, problem="the arguments are not an object")
    return ToolUse(id=use_id[:200], name=called, arguments=arguments)


def _at(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return min(max(int(value), 0), 10**8) if isinstance(value, int) and not isinstance(value, bool) else 0
