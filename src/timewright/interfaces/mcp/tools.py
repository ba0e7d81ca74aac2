"""Operations as tools for agents: names, schemas and annotations. Needs no MCP library."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from timewright.interfaces.cli.option_help import help_for
from timewright.interfaces.mcp.toolsets import (
    CORE,
    CORE_FIELDS,
    FIND_OPERATION,
    MORE_FIELDS,
    OFTEN_FOUND,
    SHOWN_FIELDS,
    TOOLSETS,
    is_listed,
    is_usable,
)
from timewright.operations import Operation, operations
from timewright.operations.access.callers import Caller
from timewright.operations.json_schemas import Schema, answer_schema, request_schema
from timewright.operations.registry import ListRequest

# Lists are short by default because they use up the context window of an agent.
DEFAULT_PAGE_ROWS = 20
# Verbs that cannot be undone or stop work in progress; they need a dry run and a confirmation.
DESTRUCTIVE = frozenset(
    {
        "archive",
        "cancel",
        "clear",
        "delete",
        "drain",
        "finish",
        "reclaim",
        "reject",
        "revoke",
        "rotate",
        "skip",
    }
)
# Verbs that can be repeated without further effect.
IDEMPOTENT = frozenset(
    {"archive", "bind", "cancel", "clear", "delete", "pause", "put", "resume", "revoke", "set"}
)
# Exceptions: every call makes another reminder; hints end by themselves and are proposed again at will; and
# these reach systems outside.
NOT_IDEMPOTENT = frozenset({"reminder set"})
NOT_DESTRUCTIVE = frozenset({"hint clear"})
OPEN_WORLD = frozenset({"schedule test", "channel test", "calendar refresh"})
# Schema keywords whose keys are field names, and keywords that are left out.
NAME_KEYWORDS = frozenset({"properties", "$defs"})
OMITTED_KEYWORDS = frozenset({"minLength", "maxLength", "additionalProperties"})
DURATION = "a duration: 90s, 15m, 1h30m, 7d or PT15M"
# A schema without a type, or with a list of types, is less portable: some clients reject it.
ANY_VALUE: Schema = {"anyOf": [{"type": kind} for kind in ("string", "object", "array", "number", "boolean")]}
# A target is its main value, or an object with more fields.
TARGET_VALUE: Schema = {"anyOf": [{"type": kind} for kind in ("string", "object")]}
TARGET_FIELDS = frozenset({"call", "http", "workflow"})
ANY_JSON: Schema = {"anyOf": [*ANY_VALUE["anyOf"], {"type": "null"}]}
TYPE_KEYWORDS = frozenset({"type", "anyOf", "$ref", "enum", "const"})
CONFIRM: Schema = {"type": "string", "description": "token of the same call with dry_run, e.g. 5f1c09ab…"}
MAX_EXAMPLE_CHARS = 60
# Fields of answers that the output schemas of core tools leave out.
RARELY_READ = frozenset(
    {"dedupe_scope", "lease_id", "revision", "created_at", "backfill_of", "parent", "trail", "charges"}
    | {"external_ids", "in_flight", "held", "upstream", "downstream", "paused_by", "local", "unreadable"}
)
# What agents have to know of a tool besides its summary.
NOTES = {
    "reminder set": (
        "Nobody is told, except by the channel in the field channel, which is accepted though not shown, and"
        " by channels with the event reminder.due."
    ),
    "schedule resume": "Only a person ends a pause that a person set: ask one.",
}
# Texts for the fields of core tools, shorter than those of the command line.
CORE_HELP = {
    "description": "for people, e.g. sales report of the day before",
    "name": "unique name, e.g. nightly-report",
    "every": "interval, or phrase with its time of day, e.g. 15m, weekdays at 9am Europe/Berlin",
    "cron": "5 fields, e.g. 0 9 * * 1-5",
    "schedule create at": "run once at, instead of every, e.g. tomorrow 9am, 2026-12-25T09:00Z",
    "schedule create zone": "zone of at, cron and phrases; not of 15m, e.g. Europe/Berlin",
    "reminder set zone": "zone of at, every and cron, e.g. Europe/Berlin",
    "schedule explain at": "instant that was planned, e.g. yesterday 3am, 2026-12-25T09:00Z",
    "schedule explain last": "the last one instead of the next, e.g. true",
    "at": "instant, e.g. in 2h, tomorrow 9am Europe/Berlin, 2026-12-25T09:00Z",
    "schedule pause until": "instant, e.g. in 2h, tomorrow 8am Europe/Berlin",
    "until": "instant, e.g. today",
    "since": "instant or how long ago, e.g. 24h, yesterday, 2026-03-01 Europe/Berlin",
    "end_at": "last instant, inclusive, e.g. 2026-12-31T23:00Z",
    "max_runs": "number of times, then it ends, e.g. 5",
    "reminder set after": "in this time, e.g. 20m",
    "run list state": "leased means running, e.g. failed",
    "zone": "time zone, e.g. Europe/Berlin",
    "note": "text that is the result, e.g. water the plants",
    "call": 'registered function, e.g. reports.send or {"name":"reports.send","args":{"day":1}}',
    "schedule run payload": 'replaces arguments of the function, or the body; e.g. {"day":"2026-03-09"}',
    "http": (
        "request, e.g. POST https://example.com/hook or"
        ' {"url":"https://example.com/hook","method":"POST","body":{"a":1}}'
    ),
    "workflow": "stored workflow, e.g. nightly-load",
    "overlap": "while one still runs, e.g. skip",
    "schedule": "name or id, e.g. nightly-report",
    "run": "run id, e.g. run_01J9ZK…",
    "dry_run": "change nothing, e.g. true",
    "reason": "why, e.g. maintenance",
    "name_contains": "part of the name, e.g. orders",
    "cursor": "cursor of the last page, e.g. eyJ…",
    "limit": "rows, e.g. 20",
    "queue": "name of a queue, e.g. mail",
    "group pause group": "name of a group, e.g. reports",
    "group resume group": "name of a group, e.g. reports",
}


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A tool as an agent sees it; the last four are hints about what a call may do."""

    name: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    open_world: bool = False


def tool_name(operation: Operation[Any]) -> str:
    """Return the tool name of an operation: `schedule_pause`."""
    return operation.name.replace(" ", "_")


def operation_named(tool: str) -> Operation[Any] | None:
    """Return the operation of a tool, if it exists; `run_retry_failures` is `run_retry-failures`."""
    return _by_tool().get(tool.replace("-", "_"))


def tools_for(caller: Caller, toolsets: frozenset[str] = frozenset(TOOLSETS)) -> list[ToolDescription]:
    """Return the tools of these toolsets that the caller may use, by name; always the same order."""
    listed = (one for one in operations if is_listed(one, caller, toolsets))
    return [_find_tool(caller), *(_tool(operation.name) for operation in listed)]


def is_destructive(operation: Operation[Any]) -> bool:
    """Whether a call needs a dry run and a confirmation."""
    is_exception = operation.read_only or operation.name in NOT_DESTRUCTIVE
    return not is_exception and operation.verb.split()[-1] in DESTRUCTIVE


def is_idempotent(operation: Operation[Any]) -> bool:
    """Whether a second call with the same request changes nothing more."""
    is_exception = operation.name in NOT_IDEMPOTENT
    return operation.read_only or (operation.verb.split()[-1] in IDEMPOTENT and not is_exception)


def is_list(operation: Operation[Any]) -> bool:
    """Whether the answer is paged."""
    return issubclass(operation.request_type, ListRequest)


def describe_fields(operation: Operation[Any]) -> dict[str, str]:
    """Return what each field of a tool is; required ones say so."""
    schema = _tool(operation.name).input_schema
    required = schema.get("required", [])
    return {
        name: f"required: {field['description']}" if name in required else field["description"]
        for name, field in schema["properties"].items()
    }


def description_of(operation: Operation[Any]) -> str:
    """Return what a tool does, the fields that its schema leaves out, and how it is confirmed."""
    description = " ".join(filter(None, (operation.summary, NOTES.get(operation.name))))
    if operation.name in MORE_FIELDS:
        description += f" Also accepts: {', '.join(MORE_FIELDS[operation.name])}."
    if is_destructive(operation):
        description += " First with dry_run: the answer has the token for confirm."
    return description


@functools.cache
def _by_tool() -> dict[str, Operation[Any]]:
    return {tool_name(operation).replace("-", "_"): operation for operation in operations}


@functools.cache
def _tool(name: str) -> ToolDescription:
    operation = operations[name]
    schema = _input_schema(operation)
    return ToolDescription(
        name=tool_name(operation),
        title=f"{operation.verb} {operation.noun}".strip().capitalize(),
        description=description_of(operation),
        input_schema=schema,
        output_schema=_output_schema(operation),
        read_only=operation.read_only,
        destructive=is_destructive(operation),
        idempotent=is_idempotent(operation),
        open_world=operation.name in OPEN_WORLD,
    )


def _find_tool(caller: Caller) -> ToolDescription:

    def confirmed(name: str) -> str:
        return ", dry_run, then confirm" if is_destructive(operations[name]) else ""

    others = ", ".join(about for name, about in TOOLSETS.items() if name != CORE)
    often = ", ".join(
        f"{tool_name(operations[name])}({', '.join(fields)}{confirmed(name)})"
        for name, fields in OFTEN_FOUND.items()
        if is_usable(operations[name], caller)
    )
    return ToolDescription(
        name=FIND_OPERATION,
        title="Find an operation",
        description=(
            "Find the tool for a task that no listed tool does, with its fields; then call it by its name."
            f" There are tools for: {others}. Often used: {often}."
        ),
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "the task, e.g. add to a queue"}},
            "required": ["query"],
        },
        output_schema={"type": "object", "properties": {"operations": {"type": "array"}}},
    )


def _input_schema(operation: Operation[Any]) -> Schema:
    """Return the schema of a request; a core tool and a preview show only their most used fields."""
    schema: Schema = _shorten(request_schema(operation))
    # The description is that of the tool.
    del schema["description"]
    fields: dict[str, Schema] = schema["properties"]
    shown = SHOWN_FIELDS.get(operation.name)
    if shown is not None:
        fields = {name: _simple(fields.get(name, {"type": "string"})) for name in shown}
        fields |= dict.fromkeys(TARGET_FIELDS & fields.keys(), TARGET_VALUE)
        schema = {"type": "object", "properties": fields, "required": schema.get("required", [])}
    if is_destructive(operation):
        fields["confirm"] = CONFIRM
    if "limit" in fields and is_list(operation):
        fields["limit"] = {**fields["limit"], "default": DEFAULT_PAGE_ROWS}
    schema["properties"] = {name: _described(operation, name, field) for name, field in fields.items()}
    return schema


def _simple(field: Schema) -> Schema:
    """Return a field without what a caller may leave out: null, and the parts of a complex value."""
    if field.get("anyOf") == ANY_JSON["anyOf"]:
        return ANY_VALUE
    choices = [one for one in field.get("anyOf", [field]) if one != {"type": "null"} and "$ref" not in one]
    plain = choices[0] if choices else {"type": "string"}
    shown = {name: value for name, value in plain.items() if name in ("type", "enum", "description")}
    return shown if "type" in shown or "enum" in shown else {**ANY_VALUE, **shown}


def _described(operation: Operation[Any], name: str, field: Schema) -> Schema:
    """Return a field with a description that has an example."""
    about = CORE_HELP.get(f"{operation.name} {name}") or CORE_HELP.get(name) or field.get("description")
    about = about or help_for(operation.name, name) or name.replace("_", " ")
    example = _example(operation, name)
    if example and "e.g." not in about and len(example) <= MAX_EXAMPLE_CHARS:
        about = f"{about.rstrip('.')}, e.g. {example}"
    return {**field, "description": about}


def _example(operation: Operation[Any], name: str) -> str:
    """Return an example value of a field: of the operation, or of any other with this field."""
    for one in (operation, *operations):
        for example in one.examples:
            if name in example and example[name] not in (None, "", {}, []):
                value = example[name]
                return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return ""


def _output_schema(operation: Operation[Any]) -> Schema:
    """Return the top level of the answer's schema; the rest would cost more tokens than it helps."""
    schema = answer_schema(operation)
    shown = {
        name: field
        for name, field in schema["properties"].items()
        if operation.name not in CORE_FIELDS or name not in RARELY_READ
    }
    kinds = {name: _kind(field, schema.get("$defs", {})) for name, field in shown.items()}
    return {"type": "object", "properties": {name: kind for name, kind in kinds.items() if kind}}


def _kind(field: Schema, defs: Mapping[str, Schema]) -> Schema:
    """Return the type of a field of an answer; empty, and then not shown, if it may have several."""
    field = defs.get(field.get("$ref", "").rpartition("/")[2], field)
    return {"type": field.get("type", "string")} if "type" in field or "enum" in field else {}


def _shorten(schema: Any) -> Any:
    """Return a schema without keywords that use many tokens and tell a model little, and with its types."""
    if isinstance(schema, list):
        return [_shorten(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("description") == DURATION:
        schema = {**schema, "description": "such as 90s, 15m, 7d"}
    if TYPE_KEYWORDS.isdisjoint(schema):
        return {**schema, **ANY_JSON}
    return {
        name: {key: _shorten(one) for key, one in value.items()} if name in NAME_KEYWORDS else _shorten(value)
        for name, value in schema.items()
        if name in NAME_KEYWORDS or not (name in OMITTED_KEYWORDS or (name == "default" and not value))
    }
