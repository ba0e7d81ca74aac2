"""The fields of a request as command-line options: names, kinds, help and defaults."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal

from msgspec import NODEFAULT, Struct
from msgspec import inspect as mi
from msgspec.structs import fields, replace

from timewright.core.calendars import WeeklyHours
from timewright.core.input.encoding import to_json_value
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.upstream import Need
from timewright.interfaces.cli.option_help import help_for
from timewright.operations import Operation, registry
from timewright.operations.json_schemas import SERVER_FIELDS

Kind = Literal["text", "number", "flag", "switch", "words", "pairs", "data", "request", "command"]

HIDDEN_FIELDS = SERVER_FIELDS | {"source"}

_TEXTS = (
    mi.StrType,
    mi.DateTimeType,
    mi.TimeDeltaType,
    mi.EnumType,
    mi.LiteralType,
    mi.DateType,
    mi.TimeType,
)

_METAVARS: dict[type[mi.Type], str] = {
    mi.DateTimeType: "INSTANT",
    mi.TimeDeltaType: "DURATION",
    mi.DateType: "DAY",
}

_SHORTHAND: tuple[tuple[str, str, Kind, str], ...] = (
    ("Trigger", "every", "text", "DURATION"),
    ("Trigger", "cron", "text", "EXPRESSION"),
    ("Trigger", "rrule", "text", "RULE"),
    ("Trigger", "zone", "text", "ZONE"),
    ("Trigger", "after", "text", "NAME|DURATION"),
    ("Trigger", "on", "text", "WORD"),
    ("Trigger", "delay", "text", "DURATION"),
    ("Trigger", "at", "text", "INSTANT"),
    ("Trigger", "manual", "flag", ""),
    ("Trigger", "anchor", "text", "INSTANT"),
    ("Trigger", "dst", "text", "WORD"),
    ("Target", "note", "text", "TEXT"),
    ("Target", "http", "request", "METHOD URL"),
    ("Target", "headers", "pairs", "NAME=VALUE"),
    ("Target", "body", "data", "DATA"),
    ("Target", "http_timeout", "text", "DURATION"),
    ("Target", "call", "text", "NAME"),
    ("Target", "args", "pairs", "NAME=VALUE"),
    ("Target", "shell", "command", ""),
    ("Target", "handoff", "flag", ""),
    ("Policies", "max_attempts", "number", "N"),
    ("Policies", "backoff", "data", "DATA"),
    ("Policies", "time_limit", "text", "DURATION"),
)

_TRIGGER_FIELDS = ("trigger", "start_at", "end_at", "max_runs", "run_at_start", "calendar", "needs", "align")

_METADATA_FIELDS = ("name", "description", "group", "tags", "metadata", "preset")


class OptionField(Struct, frozen=True, kw_only=True):
    """One option or argument: its field, the kind of its text, and its help."""

    key: str
    flag: str
    kind: Kind
    section: str
    help: str = ""
    nullable: bool = False
    required: bool = False
    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()
    default: str = ""

    @property
    def repeatable(self) -> bool:
        """Whether the option can be given more than once."""
        return self.kind in ("words", "pairs")


def subject_of(operation: Operation[Any]) -> OptionField | None:
    """Return the field that is an argument instead of an option: the object of the operation."""
    subject = registry.subject_of(operation)
    if subject is None:
        return None
    request: type[Struct] = operation.request_type
    own = {field.key: field for field in _fields_of(request, operation.name)}
    return own.get(subject.field) or OptionField(
        key=subject.field, flag=subject.field, kind="text", section=""
    )


def options_of(operation: Operation[Any]) -> tuple[OptionField, ...]:
    """Return all options: the fields of the flattened model, then those of the request."""
    subject = subject_of(operation)
    taken = {subject.key} if subject is not None else set()
    request: type[Struct] = operation.request_type
    own = [field for field in _fields_of(request, operation.name) if field.key not in taken]
    taken |= {field.key for field in own} | HIDDEN_FIELDS
    model = model_of(operation)
    if model is None:
        return tuple(own)
    flattened = [*(_shorthand_fields() if model is Schedule else ()), *_fields_of(model, operation.name)]
    # A read-only operation takes only the trigger.
    wanted = [field for field in flattened if not operation.read_only or field.section == "Trigger"]
    return (*(_optional(field) for field in wanted if field.key not in taken), *own)


def setting_fields(base: Struct) -> tuple[OptionField, ...]:
    """Return the settings as options, with the given defaults."""
    settings = _fields_of(type(base), "up", "Settings")
    return tuple(replace(_optional(field), default=_default(getattr(base, field.key))) for field in settings)


def model_of(operation: Operation[Any]) -> type[Struct] | None:
    """Return the model whose fields are flattened into the request."""
    flattened: tuple[str, type[Struct]] | None = operation.request_type.flattens
    return flattened[1] if flattened is not None else None


@cache
def _fields_of(cls: type[Struct], operation: str, section: str = "") -> tuple[OptionField, ...]:
    flattened: tuple[str, type[Struct]] | None = getattr(cls, "flattens", None)
    info = {field.name: field for field in _info(cls).fields}
    return tuple(
        _field(info[one.name], one.default, operation, section or _section(cls, one.encode_name))
        for one in fields(cls)
        if flattened is None or one.name != flattened[0]
    )


def _field(field: mi.Field, default: Any, operation: str, section: str) -> OptionField:
    kind, choices, nullable = _kind_of(field.type)
    key = field.encode_name
    # A repeatable option has a singular name: --tag a --tag b.
    flag = re.sub("ies$", "y", key).removesuffix("s") if kind == "words" else key
    return OptionField(
        key=key,
        flag=f"--{flag.replace('_', '-')}",
        kind=kind,
        section=section,
        help=help_for(operation, key),
        nullable=nullable,
        required=field.required,
        metavar="WORD" if choices else "FILE" if key == "file" else _metavar(field.type, kind),
        choices=choices,
        default=_default(default),
    )


def _kind_of(info: mi.Type) -> tuple[Kind, tuple[str, ...], bool]:
    """Return the kind of a field, its choices, and whether it may be null."""
    if isinstance(info, mi.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, mi.NoneType)]
        kind, choices, _ = _kind_of(kinds[0]) if len(kinds) == 1 else ("data", (), False)
        return kind, choices, info.includes_none
    if isinstance(info, mi.EnumType):
        return "text", tuple(str(member.value) for member in info.cls), False
    if isinstance(info, mi.LiteralType):
        return "text", tuple(map(str, info.values)), False
    if isinstance(info, _TEXTS):
        return "text", (), False
    if isinstance(info, mi.IntType | mi.FloatType):
        return "number", (), False
    if isinstance(info, mi.BoolType):
        return "flag", (), False
    if isinstance(info, mi.VarTupleType) and (
        isinstance(info.item_type, _TEXTS) or _has_short_form(info.item_type)
    ):
        return "words", (), False
    return ("pairs" if isinstance(info, mi.DictType) else "data"), (), False


def _has_short_form(info: mi.Type) -> bool:
    """Whether the type has a one-word form: a dependency, hours of the week, or the name of a limit."""
    if isinstance(info, mi.UnionType):
        return isinstance(info.types[0], mi.StrType)
    return isinstance(info, mi.StructType) and info.cls in (Need, WeeklyHours)


def _metavar(info: mi.Type, kind: Kind) -> str:
    if isinstance(info, mi.UnionType):
        return _metavar(info.types[0], kind)
    if isinstance(info, mi.VarTupleType) and isinstance(info.item_type, mi.UnionType):
        return "NAME"
    if isinstance(info, mi.VarTupleType) and _has_short_form(info.item_type):
        return "DAYS HOURS" if info.item_type == mi.type_info(WeeklyHours) else "NAME:DURATION"
    if isinstance(info, mi.VarTupleType) and kind == "words":
        return _metavar(info.item_type, "text")
    return _METAVARS.get(type(info)) or {"number": "N", "data": "DATA", "pairs": "NAME=VALUE"}.get(
        kind, "TEXT"
    )


def _default(value: Any) -> str:
    if value is NODEFAULT or value in (None, "", (), False) or isinstance(value, Struct):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "on" if value is True else str(to_json_value(value))


def _section(cls: type[Struct], key: str) -> str:
    if cls is not Schedule:
        return "Options"
    if key in _TRIGGER_FIELDS:
        return "Trigger"
    if key in _METADATA_FIELDS:
        return "Metadata"
    return "Target" if key == "target" else "Policies"


def _shorthand_fields() -> list[OptionField]:
    """Return the shorthand options for triggers, targets and some policies."""
    # On a schedule `after` and `at` have other meanings than in filters.
    help_keys = {"after": "after_end", "at": "once"}
    return [
        OptionField(
            key=key,
            flag=f"--{(key.removesuffix('s') if kind == 'pairs' else key).replace('_', '-')}",
            kind=kind,
            section=section,
            help=help_for("", help_keys.get(key, key)),
            metavar=metavar,
        )
        for section, key, kind, metavar in _SHORTHAND
    ]


def _optional(field: OptionField) -> OptionField:
    """Return an optional copy of a field; a flag becomes a switch with --no-."""
    is_switch = field.kind == "flag" and field.key not in ("manual", "handoff")
    return replace(field, required=False, kind="switch" if is_switch else field.kind)


def _info(cls: type[Struct]) -> mi.StructType:
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    return info
