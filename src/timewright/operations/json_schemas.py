"""JSON Schemas of requests and answers, for OpenAPI and for MCP tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec import inspect as mi

from timewright.core.input.encoding import to_json_value
from timewright.core.policies.policies import PRIORITIES
from timewright.core.schedule.schedule import Schedule
from timewright.operations.registry import Operation

Schema = dict[str, Any]

# Fields that only Timewright writes.
SERVER_FIELDS = frozenset({"id", "namespace", "revision", "created_at", "created_by", "origin", "owner"})
_DURATION: Schema = {"type": "string", "description": "a duration: 90s, 15m, 1h30m, 7d or PT15M"}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
# Shorthand fields for `trigger` and `target`.
_SHORTHAND: Mapping[str, Schema] = {
    "cron": {"type": "string", "description": "five or six fields: 0 9 * * 1-5"},
    "every": _DURATION,
    "once": _INSTANT,
    "manual": {"type": "boolean", "description": "runs only when someone starts it"},
    "zone": {"type": "string", "description": "an IANA time zone: Europe/Berlin"},
    "call": {"description": "a Python function by its registered name"},
    "http": {"description": "a request: POST https://example.com/hook"},
    "shell": {"type": "array", "items": {"type": "string"}, "description": "a command and its arguments"},
    "workflow": {"description": "a stored workflow by its name"},
    "handoff": {"description": "a payload for the worker that leases it"},
    "publish": {"description": "a message for a broker"},
    "note": {"type": "string", "description": "a text; the run's result is the text itself"},
}


def request_schema(operation: Operation[Any]) -> Schema:
    """Return the JSON Schema of a request, including the fields of the model it flattens."""
    builder = _SchemaBuilder(for_request=True)
    schema = builder.struct(operation.request_type)
    schema["description"] = operation.summary
    if operation.request_type.flattens is not None:
        collected, model = operation.request_type.flattens
        del schema["properties"][collected]
        model_fields = builder.struct(model)["properties"]
        short = dict(_SHORTHAND) if model is Schedule else {}
        writable = {name: value for name, value in model_fields.items() if name not in SERVER_FIELDS}
        schema["properties"] = {**writable, **short, **schema["properties"]}
        # An update keeps fields that are left out; a new object needs at least a name.
        if operation.verb in ("create", "put"):
            schema["required"] = ["name"]
    return builder.with_definitions(schema)


def answer_schema(operation: Operation[Any]) -> Schema:
    """Return the JSON Schema of an answer."""
    builder = _SchemaBuilder(for_request=False)
    return builder.with_definitions(builder.struct(operation.answer_type))


class _SchemaBuilder:
    """Builds schemas of types; nested types are collected under `$defs` by class name."""

    def __init__(self, *, for_request: bool) -> None:
        self._for_request = for_request
        self._shared: dict[str, Schema] = {}

    def with_definitions(self, schema: Schema) -> Schema:
        """Return the schema with the `$defs` it refers to."""
        return {**schema, "$defs": dict(sorted(self._shared.items()))} if self._shared else schema

    def struct(self, model: type[Struct]) -> Schema:
        """Return the schema of a Struct; in a request, fields with a default are optional."""
        info = mi.type_info(model)
        assert isinstance(info, mi.StructType)
        properties: dict[str, Schema] = {}
        if info.tag_field is not None:
            properties[info.tag_field] = {"const": info.tag}
        for field in info.fields:
            properties[field.encode_name] = self._field(field)
        needed = [field.encode_name for field in info.fields if field.required or not self._for_request]
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": sorted(needed)} if needed else schema

    def of(self, kind: mi.Type) -> Schema:
        """Return the schema of any type that requests and answers contain."""
        if isinstance(kind, mi.UnionType):
            return self._union(kind)
        if isinstance(kind, mi.StructType):
            return self._named(kind.cls)
        if isinstance(kind, mi.VarTupleType | mi.ListType):
            return {"type": "array", "items": self.of(kind.item_type)}
        if isinstance(kind, mi.DictType):
            return {"type": "object", "additionalProperties": self.of(kind.value_type)}
        return _SIMPLE[type(kind)](kind)

    def _field(self, field: mi.Field) -> Schema:
        schema = self.of(field.type)
        if self._for_request and field.name == "priority":
            schema = {"anyOf": [schema, {"enum": sorted(PRIORITIES)}]}
        if field.default is not NODEFAULT:
            schema = {**schema, "default": to_json_value(field.default)}
        return schema

    def _union(self, kind: mi.UnionType) -> Schema:
        kinds = [self.of(one) for one in kind.types]
        # Requests may write triggers, targets, outcomes and backoffs as text.
        if self._for_request and sum(isinstance(one, mi.StructType) for one in kind.types) > 1:
            kinds.append({"type": "string"})
        return {"anyOf": kinds}

    def _named(self, model: type[Struct]) -> Schema:
        name = model.__name__
        if name not in self._shared:
            self._shared[name] = {}
            self._shared[name] = self.struct(model)
        return {"$ref": f"#/$defs/{name}"}


def _text(kind: mi.Type) -> Schema:
    assert isinstance(kind, mi.StrType)
    if kind.pattern is not None:
        # A decimal amount: text keeps every digit, but a JSON number is accepted too.
        return {"anyOf": [{"type": "string", "pattern": kind.pattern}, {"type": "number", "minimum": 0}]}
    bounds = {"minLength": kind.min_length, "maxLength": kind.max_length}
    return {"type": "string", **{name: value for name, value in bounds.items() if value is not None}}


def _number(kind: mi.Type) -> Schema:
    assert isinstance(kind, mi.IntType | mi.FloatType)
    word = "integer" if isinstance(kind, mi.IntType) else "number"
    bounds = {"minimum": kind.ge, "maximum": kind.le}
    return {"type": word, **{name: value for name, value in bounds.items() if value is not None}}


def _choice(kind: mi.Type) -> Schema:
    assert isinstance(kind, mi.EnumType)
    return {"enum": [member.value for member in kind.cls]}


def _literal(kind: mi.Type) -> Schema:
    assert isinstance(kind, mi.LiteralType)
    return {"enum": list(kind.values)}


_SIMPLE: Mapping[type[mi.Type], Callable[[mi.Type], Schema]] = {
    mi.AnyType: lambda _: {},
    mi.BoolType: lambda _: {"type": "boolean"},
    mi.DateTimeType: lambda _: dict(_INSTANT),
    mi.DateType: lambda _: {"type": "string", "format": "date"},
    mi.EnumType: _choice,
    mi.FloatType: _number,
    mi.IntType: _number,
    mi.LiteralType: _literal,
    mi.NoneType: lambda _: {"type": "null"},
    mi.StrType: _text,
    mi.TimeDeltaType: lambda _: dict(_DURATION),
}
