"""What may be asked and what is answered, as JSON Schema: for doors that describe what they open to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec import inspect as mi

from timewright.core.encoding import plain
from timewright.core.policies import PRIORITIES
from timewright.core.schedule import Schedule
from timewright.operations.registry import Operation

Schema = dict[str, Any]

# What Timewright writes into a model by itself, and nobody else.
_OURS = frozenset({"id", "namespace", "revision", "created_at", "created_by", "origin"})
_DURATION: Schema = {"type": "string", "description": "a duration: 90s, 15m, 1h30m, 7d or PT15M"}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
# The short ways to write a trigger and a target; `trigger` and `target` are the long ones.
_SHORT: Mapping[str, Schema] = {
    "cron": {"type": "string", "description": "five or six fields: 0 9 * * 1-5"},
    "every": _DURATION,
    "once": _INSTANT,
    "manual": {"type": "boolean", "description": "only when asked"},
    "zone": {"type": "string", "description": "an IANA time zone: Europe/Berlin"},
    "call": {"description": "a Python function by its registered name"},
    "http": {"description": "a request: POST https://example.com/hook"},
    "shell": {"type": "array", "items": {"type": "string"}, "description": "a command and its arguments"},
    "workflow": {"description": "a stored workflow by its name"},
    "handoff": {"description": "a payload for whoever leases it"},
    "publish": {"description": "a message for a broker"},
    "note": {"type": "string", "description": "a text that is its own result"},
}


def request_schema(operation: Operation[Any]) -> Schema:
    """The JSON Schema of a request, with the fields of the model it spreads beside its own."""
    parts = _Parts(asked=True)
    schema = parts.struct(operation.request)
    schema["description"] = operation.summary
    if operation.request.spreads is not None:
        gathered, model = operation.request.spreads
        del schema["properties"][gathered]
        theirs = parts.struct(model)["properties"]
        short = dict(_SHORT) if model is Schedule else {}
        kept = {name: value for name, value in theirs.items() if name not in _OURS}
        schema["properties"] = {**kept, **short, **schema["properties"]}
        # What an edit leaves out stays as it is; a new thing has at least a name.
        if operation.verb in ("create", "put"):
            schema["required"] = ["name"]
    return parts.closed(schema)


def answer_schema(operation: Operation[Any]) -> Schema:
    """The JSON Schema of what an operation gives back."""
    parts = _Parts(asked=False)
    return parts.closed(parts.struct(operation.answer))


class _Parts:
    """Schemas of types, with those of the values inside them gathered under their names."""

    def __init__(self, *, asked: bool) -> None:
        self._asked = asked
        self._shared: dict[str, Schema] = {}

    def closed(self, schema: Schema) -> Schema:
        """A schema with the parts it refers to."""
        return {**schema, "$defs": dict(sorted(self._shared.items()))} if self._shared else schema

    def struct(self, model: type[Struct]) -> Schema:
        """The schema of a value with fields; in what is asked only those without a default must be there."""
        info = mi.type_info(model)
        assert isinstance(info, mi.StructType)
        properties: dict[str, Schema] = {}
        if info.tag_field is not None:
            properties[info.tag_field] = {"const": info.tag}
        for field in info.fields:
            properties[field.encode_name] = self._field(field)
        needed = [field.encode_name for field in info.fields if field.required or not self._asked]
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": sorted(needed)} if needed else schema

    def of(self, kind: mi.Type) -> Schema:
        """The schema of any type that requests and answers are made of."""
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
        if self._asked and field.name == "priority":
            schema = {"anyOf": [schema, {"enum": sorted(PRIORITIES)}]}
        if field.default is not NODEFAULT:
            schema = {**schema, "default": plain(field.default)}
        return schema

    def _union(self, kind: mi.UnionType) -> Schema:
        kinds = [self.of(one) for one in kind.types]
        # Triggers, targets, outcomes and backoffs may be asked for in a word or a line of text.
        if self._asked and sum(isinstance(one, mi.StructType) for one in kind.types) > 1:
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
        # A decimal number: as text no digit is lost, and most will write it as a number.
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
