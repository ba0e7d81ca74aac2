"""The fields of a request as options and arguments: what each is called, and how its text is read."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from msgspec import NODEFAULT, Struct
from msgspec import inspect as mi
from msgspec.structs import fields, replace

from timewright.core.calendars import WeeklyHours
from timewright.core.encoding import plain
from timewright.core.schedule import Schedule
from timewright.core.upstream import Need
from timewright.doors.cli.words import said
from timewright.operations import Operation, subjects

Kind = Literal["text", "number", "flag", "switch", "words", "pairs", "data", "request", "command"]

NEVER = frozenset({"id", "namespace", "revision", "created_at", "created_by", "origin", "source"})

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

_SHORT: tuple[tuple[str, str, Kind, str], ...] = (
    ("When", "every", "text", "DURATION"),
    ("When", "cron", "text", "EXPRESSION"),
    ("When", "rrule", "text", "RULE"),
    ("When", "zone", "text", "ZONE"),
    ("When", "after", "text", "NAME|DURATION"),
    ("When", "on", "text", "WORD"),
    ("When", "delay", "text", "DURATION"),
    ("When", "at", "text", "INSTANT"),
    ("When", "manual", "flag", ""),
    ("When", "anchor", "text", "INSTANT"),
    ("When", "dst", "text", "WORD"),
    ("What", "note", "text", "TEXT"),
    ("What", "http", "request", "METHOD URL"),
    ("What", "headers", "pairs", "NAME=VALUE"),
    ("What", "body", "data", "DATA"),
    ("What", "http_timeout", "text", "DURATION"),
    ("What", "call", "text", "NAME"),
    ("What", "args", "pairs", "NAME=VALUE"),
    ("What", "shell", "command", ""),
    ("What", "handoff", "flag", ""),
    ("Policies", "max_attempts", "number", "N"),
    ("Policies", "backoff", "data", "DATA"),
    ("Policies", "time_limit", "text", "DURATION"),
)

_WHEN = ("trigger", "start_at", "end_at", "max_runs", "calendar", "needs", "align")

_ITSELF = ("name", "description", "group", "tags", "metadata", "preset")


class Field(Struct, frozen=True, kw_only=True):
    """One option or argument: the field it fills, how its text is read, and what it says of itself."""

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
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return self.kind in ("words", "pairs")


def subject_of(operation: Operation[Any]) -> Field | None:
    """What an operation is about, and therefore takes as an argument rather than as an option."""
    subject = subjects.subject_of(operation)
    if subject is None:
        return None
    request: type[Struct] = operation.request
    own = {field.key: field for field in _fields_of(request, operation.name)}
    return own.get(subject.field) or Field(key=subject.field, flag=subject.field, kind="text", section="")


def options_of(operation: Operation[Any]) -> tuple[Field, ...]:
    """Every option of an operation: its own fields, then those of the model it spreads."""
    subject = subject_of(operation)
    taken = {subject.key} if subject is not None else set()
    request: type[Struct] = operation.request
    own = [field for field in _fields_of(request, operation.name) if field.key not in taken]
    taken |= {field.key for field in own} | NEVER
    model = model_of(operation)
    if model is None:
        return tuple(own)
    spread = [*(_short() if model is Schedule else ()), *_fields_of(model, operation.name)]
    # Whoever only looks says when, and nothing of what would be done.
    wanted = [field for field in spread if not operation.reads_only or field.section == "When"]
    return (*(_optional(field) for field in wanted if field.key not in taken), *own)


def setting_fields(base: Struct) -> tuple[Field, ...]:
    """The settings as options, over those that hold otherwise."""
    made = _fields_of(type(base), "up", "Settings")
    return tuple(replace(_optional(field), default=_default(getattr(base, field.key))) for field in made)


def model_of(operation: Operation[Any]) -> type[Struct] | None:
    """The model whose fields an operation takes beside its own."""
    spreads: tuple[str, type[Struct]] | None = operation.request.spreads
    return spreads[1] if spreads is not None else None


@cache
def _fields_of(cls: type[Struct], operation: str, section: str = "") -> tuple[Field, ...]:
    spreads: tuple[str, type[Struct]] | None = getattr(cls, "spreads", None)
    info = {field.name: field for field in _info(cls).fields}
    return tuple(
        _field(info[one.name], one.default, operation, section or _section(cls, one.encode_name))
        for one in fields(cls)
        if spreads is None or one.name != spreads[0]
    )


def _field(field: mi.Field, default: Any, operation: str, section: str) -> Field:
    kind, choices, nullable = _kind_of(field.type)
    key = field.encode_name
    # Many of one thing are written as one, several times: --tag a --tag b.
    flag = key.removesuffix("s") if kind == "words" else key
    return Field(
        key=key,
        flag=f"--{flag.replace('_', '-')}",
        kind=kind,
        section=section,
        help=said(operation, key),
        nullable=nullable,
        required=field.required,
        metavar="WORD" if choices else "FILE" if key == "file" else _metavar(field.type, kind),
        choices=choices,
        default=_default(default),
    )


def _kind_of(info: mi.Type) -> tuple[Kind, tuple[str, ...], bool]:
    """How the text of a field is read, its choices, and whether it may be nothing."""
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
    if isinstance(info, mi.VarTupleType) and (isinstance(info.item_type, _TEXTS) or _is_need(info.item_type)):
        return "words", (), False
    return ("pairs" if isinstance(info, mi.DictType) else "data"), (), False


def _is_need(info: mi.Type) -> bool:
    """A need has a short form in one word, and so have hours of the week."""
    return isinstance(info, mi.StructType) and info.cls in (Need, WeeklyHours)


def _metavar(info: mi.Type, kind: Kind) -> str:
    if isinstance(info, mi.UnionType):
        return _metavar(info.types[0], kind)
    if isinstance(info, mi.VarTupleType) and _is_need(info.item_type):
        return "DAYS HOURS" if info.item_type == mi.type_info(WeeklyHours) else "NAME:DURATION"
    if isinstance(info, mi.VarTupleType) and kind == "words":
        return _metavar(info.item_type, "text")
    return _METAVARS.get(type(info)) or {"number": "N", "data": "DATA", "pairs": "NAME=VALUE"}.get(
        kind, "TEXT"
    )


def _default(value: Any) -> str:
    if value is NODEFAULT or value in (None, "", (), False) or isinstance(value, Struct):
        return ""
    return "on" if value is True else str(plain(value))


def _section(cls: type[Struct], key: str) -> str:
    if cls is not Schedule:
        return "Options"
    if key in _WHEN:
        return "When"
    if key in _ITSELF:
        return "Itself"
    return "What" if key == "target" else "Policies"


def _short() -> list[Field]:
    """The short ways to write a trigger, a target and a few policies."""
    # `after` and `at` mean an instant elsewhere; on a schedule they are a delay and the one instant.
    words = {"after": "after_end", "at": "once"}
    return [
        Field(
            key=key,
            flag=f"--{(key.removesuffix('s') if kind == 'pairs' else key).replace('_', '-')}",
            kind=kind,
            section=section,
            help=said("", words.get(key, key)),
            metavar=metavar,
        )
        for section, key, kind, metavar in _SHORT
    ]


def _optional(field: Field) -> Field:
    """A field of a model: it may be left out, and a flag can be turned on and off."""
    is_switch = field.kind == "flag" and field.key not in ("manual", "handoff")
    return replace(field, required=False, kind="switch" if is_switch else field.kind)


def _info(cls: type[Struct]) -> mi.StructType:
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    return info
