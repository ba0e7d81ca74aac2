"""Operations as MCP tools: names, schemas and annotations."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from mcp_types import Tool, ToolAnnotations

from timewright.operations import Operation, operations
from timewright.operations.access.callers import Caller
from timewright.operations.json_schemas import Schema, request_schema
from timewright.operations.registry import ListRequest

# Lists are short by default because they use up the context window of an agent.
DEFAULT_PAGE_ROWS = 20
# Verbs that cannot be undone or stop work in progress; they need a dry run and a confirmation.
DESTRUCTIVE = frozenset(
    {"archive", "cancel", "clear", "delete", "drain", "reclaim", "reject", "revoke", "rotate", "skip"}
)
# Verbs that can be repeated without further effect.
IDEMPOTENT = frozenset(
    {"archive", "cancel", "clear", "delete", "pause", "put", "resume", "revoke", "set", "update"}
)
# Schema keywords whose keys are field names, and keywords that are left out.
NAME_KEYWORDS = frozenset({"properties", "$defs"})
OMITTED_KEYWORDS = frozenset({"minLength", "maxLength", "additionalProperties"})
DURATION = "a duration: 90s, 15m, 1h30m, 7d or PT15M"
CONFIRM: Schema = {
    "type": "string",
    "description": "the token that the same call with dry_run returned",
}


def tool_name(operation: Operation[Any]) -> str:
    """Return the tool name of an operation: `schedule_pause`."""
    return operation.name.replace(" ", "_")


def operation_named(tool: str) -> Operation[Any] | None:
    """Return the operation of a tool, if it exists."""
    return _by_tool().get(tool)


def tools_for(caller: Caller) -> list[Tool]:
    """Return the tools whose scope the caller has."""
    return [_tool(operation.name) for operation in _allowed(caller)]


def is_destructive(operation: Operation[Any]) -> bool:
    """Whether a call needs a dry run and a confirmation."""
    return not operation.read_only and operation.verb.split()[-1] in DESTRUCTIVE


def is_list(operation: Operation[Any]) -> bool:
    """Whether the answer is paged."""
    return issubclass(operation.request_type, ListRequest)


def _allowed(caller: Caller) -> Iterable[Operation[Any]]:
    return (one for one in operations if one.scope in caller.scopes)


@functools.cache
def _by_tool() -> dict[str, Operation[Any]]:
    return {tool_name(operation): operation for operation in operations}


@functools.cache
def _tool(name: str) -> Tool:
    operation = operations[name]
    schema = _shorten(request_schema(operation))
    # The description is that of the tool.
    del schema["description"]
    if is_destructive(operation):
        schema["properties"] = {**schema["properties"], "confirm": CONFIRM}
    if is_list(operation):
        schema["properties"]["limit"] = {**schema["properties"]["limit"], "default": DEFAULT_PAGE_ROWS}
    description = operation.summary
    if is_destructive(operation):
        description += (
            " Call it with dry_run first: the answer shows the changes and returns the token for confirm."
        )
    return Tool(
        name=tool_name(operation),
        description=description,
        input_schema=schema,
        annotations=ToolAnnotations(
            read_only_hint=operation.read_only,
            destructive_hint=is_destructive(operation),
            idempotent_hint=operation.read_only or operation.verb.split()[-1] in IDEMPOTENT,
            open_world_hint=False,
        ),
    )


def _shorten(schema: Any) -> Any:
    """Return a schema without keywords that use many tokens and tell a model little."""
    if isinstance(schema, list):
        return [_shorten(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("description") == DURATION:
        schema = {**schema, "description": "such as 90s, 15m, 7d"}
    return {
        name: {key: _shorten(one) for key, one in value.items()} if name in NAME_KEYWORDS else _shorten(value)
        for name, value in schema.items()
        if name in NAME_KEYWORDS or not (name in OMITTED_KEYWORDS or (name == "default" and not value))
    }
