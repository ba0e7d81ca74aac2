"""Operations as tools: a name, a schema, and what a client should know before it calls one."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from mcp_types import Tool, ToolAnnotations

from timewright.operations import Operation, operations
from timewright.operations.callers import Caller
from timewright.operations.registry import Listing
from timewright.operations.schemas import Schema, request_schema

# A list costs an agent its attention: short unless it asks for more.
SHORT = 20
# What cannot be taken back, or ends work of others: shown first, done when confirmed.
DESTRUCTIVE = frozenset(
    {"archive", "cancel", "clear", "delete", "drain", "reclaim", "reject", "revoke", "rotate", "skip"}
)
# Asked twice they leave the same behind as asked once.
IDEMPOTENT = frozenset(
    {"archive", "cancel", "clear", "delete", "pause", "put", "resume", "revoke", "set", "update"}
)
# Of a schema: where names of fields stand, and what is left out.
NAMES = frozenset({"properties", "$defs"})
LEFT_OUT = frozenset({"minLength", "maxLength", "additionalProperties"})
DURATION = "a duration: 90s, 15m, 1h30m, 7d or PT15M"
CONFIRM: Schema = {
    "type": "string",
    "description": "the word that a call with dry_run gave; without it nothing is changed",
}


def tool_name(operation: Operation[Any]) -> str:
    """The one name in a client's spelling: `schedule_pause`."""
    return operation.name.replace(" ", "_")


def operation_named(tool: str) -> Operation[Any] | None:
    """The operation behind a tool, if there is one."""
    return _by_tool().get(tool)


def tools_for(caller: Caller) -> list[Tool]:
    """The tools whose scope the caller has; the others are not shown."""
    return [_tool(operation.name) for operation in _allowed(caller)]


def is_destructive(operation: Operation[Any]) -> bool:
    """Whether a client must look before it does this."""
    return not operation.reads_only and operation.verb.split()[-1] in DESTRUCTIVE


def is_list(operation: Operation[Any]) -> bool:
    """Whether the answer is one page of many."""
    return issubclass(operation.request, Listing)


def _allowed(caller: Caller) -> Iterable[Operation[Any]]:
    return (one for one in operations if one.scope in caller.scopes)


@functools.cache
def _by_tool() -> dict[str, Operation[Any]]:
    return {tool_name(operation): operation for operation in operations}


@functools.cache
def _tool(name: str) -> Tool:
    operation = operations[name]
    schema = _brief(request_schema(operation))
    # The tool says the same in its own description.
    del schema["description"]
    if is_destructive(operation):
        schema["properties"] = {**schema["properties"], "confirm": CONFIRM}
    if is_list(operation):
        schema["properties"]["limit"] = {**schema["properties"]["limit"], "default": SHORT}
    description = operation.summary
    if is_destructive(operation):
        description += (
            " Ask with dry_run first: that answer shows what would change and gives the word for confirm."
        )
    return Tool(
        name=tool_name(operation),
        description=description,
        input_schema=schema,
        annotations=ToolAnnotations(
            read_only_hint=operation.reads_only,
            destructive_hint=is_destructive(operation),
            idempotent_hint=operation.reads_only or operation.verb.split()[-1] in IDEMPOTENT,
            open_world_hint=False,
        ),
    )


def _brief(schema: Any) -> Any:
    """A schema without what a model reads again and again and learns little from; a refusal says the rest."""
    if isinstance(schema, list):
        return [_brief(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("description") == DURATION:
        schema = {**schema, "description": "such as 90s, 15m, 7d"}
    return {
        name: {key: _brief(one) for key, one in value.items()} if name in NAMES else _brief(value)
        for name, value in schema.items()
        if name in NAMES or not (name in LEFT_OUT or (name == "default" and not value))
    }
