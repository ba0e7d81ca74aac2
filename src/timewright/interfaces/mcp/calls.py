"""Calls of tools by agents: the checks that hold for every agent. Needs no MCP library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.errors import InvalidInput, NotFound
from timewright.interfaces.mcp.confirm import Confirmations, shared_confirmations
from timewright.interfaces.mcp.tools import (
    DEFAULT_PAGE_ROWS,
    describe_fields,
    description_of,
    is_destructive,
    is_list,
    operation_named,
    tool_name,
    tools_for,
)
from timewright.interfaces.mcp.toolsets import FIND_OPERATION, find_operations, is_usable, toolset_of
from timewright.operations import Operation, OperationContext
from timewright.operations.health.start_warnings import lacks_engine
from timewright.operations.text_safety import MAX_TEXT_CHARS, find_cut_mark, sanitize

NO_ENGINE = "note: no instance is running, so nothing starts before a person runs: timewright up"


class ToolAnswer(Struct, frozen=True):
    """The answer of a tool: as texts for a model, and whole as data; a dry run has a confirmation token."""

    texts: list[str]
    data: dict[str, Any]
    confirm: str = ""


class ToolCalls:
    """Calls the tools of some toolsets, with confirmations, and with texts that are safe to show."""

    def __init__(self) -> None:
        # For a store without a secret key.
        self._confirmations = Confirmations()

    def call(
        self,
        context: OperationContext,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        toolsets: frozenset[str],
    ) -> ToolAnswer:
        """Call a tool, or raise why not."""
        if tool == FIND_OPERATION:
            return _find(context, arguments, toolsets)
        _check_listed(tool, toolsets)
        operation = operation_named(tool)
        if operation is None or operation.scope not in context.caller.scopes:
            raise _tool_not_found(tool, context)
        request = _request(operation, arguments)
        # The payload of a lease is the work itself, and no other call hands it out again.
        is_full = operation.name == "queue lease"
        if operation.read_only:
            is_full = request.pop("full", False) is True
        _reject_cut_text(operation, request)
        is_dry_run = bool(request.get("dry_run"))
        now, actor = SystemClock().now(), f"{context.namespace}/{context.caller.actor}"
        confirmations = self._confirmations
        if is_destructive(operation):
            confirmations = shared_confirmations(context) or confirmations
        if is_destructive(operation) and not is_dry_run:
            confirmations.check(operation.name, arguments, actor=actor, now=now)
            confirmations.use(context, operation.name, arguments)
        answer = operation(context, request)
        shown = sanitize(answer, max_chars=None if is_full else MAX_TEXT_CHARS)
        texts, confirm = [to_json(shown)], ""
        if find_cut_mark(shown) is not None and find_cut_mark(answer) is None:
            texts.append(
                f"texts over {MAX_TEXT_CHARS} characters are cut here; the structured content has them whole,"
                f" and so has {'the same call' if operation.read_only else 'any that reads'} with full: true"
            )
        if is_destructive(operation) and is_dry_run:
            confirm = confirmations.token(operation.name, arguments, actor=actor, now=now)
            texts.append(
                f"nothing was changed; to apply it, repeat the call with confirm: {confirm}"
                " instead of dry_run"
            )
        elif is_dry_run:
            texts.append("this was a dry run: nothing was changed, and ids in the answer are not kept")
        if not is_dry_run and lacks_engine(context, operation.name):
            texts.append(NO_ENGINE)
        return ToolAnswer(texts, answer, confirm)


def needs_confirmation(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call cannot be undone, is no dry run, and has no confirmation."""
    operation = operation_named(tool)
    is_asked = operation is not None and is_destructive(operation) and not arguments.get("dry_run")
    return is_asked and not arguments.get("confirm")


def to_json(answer: Any) -> str:
    """Return data as compact JSON, for a model to read."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str)


def _request(operation: Operation[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    request = {name: value for name, value in arguments.items() if name != "confirm"}
    if "confirm" in arguments and not is_destructive(operation):
        request["confirm"] = arguments["confirm"]
    if is_list(operation):
        request.setdefault("limit", DEFAULT_PAGE_ROWS)
    return request


def _find(context: OperationContext, arguments: Mapping[str, Any], toolsets: frozenset[str]) -> ToolAnswer:
    """Answer which tools fit a task, with their fields."""
    fitting = find_operations(str(arguments.get("query", "")))
    usable = [one for one in fitting if is_usable(one, context.caller)]
    found = [
        {
            "tool": tool_name(one),
            "does": description_of(one),
            "toolset": toolset_of(one),
            "fields": describe_fields(one),
        }
        for one in usable
    ]
    chosen = ",".join(sorted(toolsets))
    note = (
        "call a tool by its name, also one that is not listed; if your client calls only listed ones, start"
    )
    if not {toolset_of(one) for one in usable} <= toolsets:
        note = f"this connection has only the tools of {chosen}; for others, start"
    answer = {"operations": found}
    texts = [to_json(answer), f"{note} timewright mcp with --tools NAME, or use /mcp?tools=NAME"]
    refused = [one for one in fitting if one.scope not in context.caller.scopes]
    if refused:
        missing = ", ".join(f"{tool_name(one)} needs the scope {one.scope}" for one in refused)
        texts.append(f"fits too, but is not permitted to you: {missing}; ask a person")
    return ToolAnswer(texts, answer)


def _check_listed(tool: str, toolsets: frozenset[str]) -> None:
    """Refuse a tool of a toolset that the client did not choose."""
    operation = operation_named(tool)
    if operation is not None and toolset_of(operation) not in toolsets:
        chosen = ",".join([*sorted(toolsets), toolset_of(operation)])
        raise NotFound(
            f"{tool} is in the toolset {toolset_of(operation)}",
            field="name",
            value=tool,
            rule=f"the toolsets of this connection are: {', '.join(sorted(toolsets))}",
            fix=f"start timewright mcp --tools {chosen}, or use /mcp?tools={chosen}",
        )


def _reject_cut_text(operation: Operation[Any], request: Mapping[str, Any]) -> None:
    """Refuse to store a text that was cut for display, because the rest of it would be lost."""
    cut = None if operation.read_only else find_cut_mark(dict(request))
    if cut is not None:
        raise InvalidInput(
            "the request contains a text that was cut for display",
            field="arguments",
            value=cut[-60:],
            rule="a write contains whole values; `… (N more characters)` marks a cut one",
            fix="read the value with full: true, or leave the field out",
        )


def _tool_not_found(tool: str, context: OperationContext) -> NotFound:
    """Return the error for an unknown tool, or for one whose scope the caller lacks."""
    operation = operation_named(tool)
    if operation is None:
        near = get_close_matches(tool[:64], [one.name for one in tools_for(context.caller)], n=1, cutoff=0.6)
        return NotFound(
            f"unknown tool {tool[:64]!r}",
            field="name",
            value=tool[:64],
            rule="a name from tools/list",
            fix=f"did you mean {near[0]}?" if near else "tools/list",
        )
    return NotFound(
        f"{tool_name(operation)} is not permitted",
        field="name",
        value=tool_name(operation),
        rule=f"it needs the scope {operation.scope}; you have {', '.join(sorted(context.caller.scopes))}",
        fix="start timewright mcp --write with a key that has the scope",
    )
