"""The JSON Schema of definition files, so that editors complete and check them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from timewright.core.definitions.file import SECTIONS, Kind
from timewright.operations.context import OperationContext
from timewright.operations.json_schemas import request_schema
from timewright.operations.registry import OperationRequest, operations

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PUT: dict[Kind, str] = {
    "calendar": "calendar put",
    "limit": "limit set",
    "queue": "queue policy set",
    "workflow": "workflow put",
    "schedule": "schedule put",
}
# Fields of requests that a definition does not have.
_REQUEST_FIELDS = ("reason", "dry_run", "force", "revision", "queue", "limit", "ical")
_MAX_RUNNING = {"type": "integer", "minimum": 1, "maximum": 100_000}


class GetFileSchema(OperationRequest, frozen=True, kw_only=True):
    """Nothing to give."""


class FileSchema(Struct, frozen=True, kw_only=True):
    """The JSON Schema of definition files."""

    json_schema: dict[str, Any]


@operations.add("schema", scope="read", examples=({},))
def get_file_schema(_context: OperationContext, _request: GetFileSchema) -> FileSchema:
    """Show the JSON Schema of definition files; editors complete and check files with it."""
    return FileSchema(json_schema=build_file_schema())


def build_file_schema() -> dict[str, Any]:
    """Build the schema from the requests that write each kind."""
    shared: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        shared[kind] = _definition(kind, shared)
        sections[section] = {"type": ["array", "null"], "items": {"$ref": f"#/$defs/{kind}"}}
    header = {
        "owner": {"type": "string", "description": "who the definitions belong to; default: the file name"},
        "zone": {"type": "string", "description": "the zone of schedules that name none; default: UTC"},
    }
    named = [_with_kind(shared[kind], kind) for kind in SECTIONS.values()]
    return {
        "$schema": DIALECT,
        "title": "Timewright definition file",
        "anyOf": [
            {"type": "object", "properties": {**header, **sections}, "additionalProperties": False},
            {"type": "array", "items": {"anyOf": named}},
            *named,
        ],
        "$defs": dict(sorted(shared.items())),
    }


def _definition(kind: Kind, shared: dict[str, Any]) -> dict[str, Any]:
    name = {"name": {"type": "string", "minLength": 1, "maxLength": 255}}
    found = request_schema(operations[_PUT[kind]])
    shared.update(found.get("$defs", {}))
    properties = {key: value for key, value in found["properties"].items() if _is_field(key, kind)}
    if kind == "queue":
        properties["max_running"] = _MAX_RUNNING
    # Short forms and the words of other schedulers are accepted too, so other fields are not refused here.
    return {"type": "object", "properties": {**name, **properties}, "required": ["name"]}


def _is_field(name: str, kind: Kind) -> bool:
    return name not in _REQUEST_FIELDS or (kind == "schedule" and name == "queue")


def _with_kind(definition: dict[str, Any], kind: Kind) -> dict[str, Any]:
    required = definition["required"] if kind == "schedule" else [*definition["required"], "kind"]
    properties = {"kind": {"const": kind}, **definition["properties"]}
    return {**definition, "properties": properties, "required": required}
