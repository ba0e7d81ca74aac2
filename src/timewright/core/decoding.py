"""Plain data into values, field by field: every refusal names its path, its rule and a fix.

The types say what is allowed; this only walks them. A field that is left out takes its value from `base`
where there is one (a preset, or the value being changed), and else its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.backoff import Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.calendars import CalendarRule, WeeklyHours
from timewright.core.calendars.spoken import hours_shape, rule_shape
from timewright.core.foreign import SAID_HERE
from timewright.core.policies import PRIORITIES, LeaseTerms, Retry
from timewright.core.refusals import join, missing, refuse_from, refused, unknown
from timewright.core.run import Cancelled, Failed, Lost, Released, Started, Succeeded, TimedOut
from timewright.core.scalars import (
    LONGEST_TEXT,
    read_choice,
    read_day,
    read_duration,
    read_flag,
    read_instant,
    read_literal,
    read_nothing,
    read_number,
    read_plain,
    read_text,
)
from timewright.core.shapes import (
    Milliseconds,
    backoff_shape,
    cadence_shape,
    need_shape,
    outcome_shape,
    target_shape,
    trigger_shape,
)
from timewright.core.spellings import ALIASES, Path, plain_word, snake
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.core.triggers import After, AnyOf, Cron, Every, Manual, Once, Rrule
from timewright.core.upstream import Need
from timewright.errors import TimewrightError, UnknownField

DEEPEST = 64
MOST_PARTS = 100_000
LONGEST_KEY = 255
# What holds nothing else, without a look through all that a mapping might be.
_SINGLE_PARTS = frozenset({str, bytes, int, float, bool, type(None)})

_LEAVE_OUT = "leave it out for the default"

_SHAPES: dict[frozenset[type], Callable[[Any, str], Any]] = {
    frozenset({Cron, Every, After, Once, Manual, Rrule, AnyOf}): trigger_shape,
    frozenset({Cron, Every, Once, Rrule}): trigger_shape,
    frozenset({Call, Http, Shell, Workflow, Handoff, Publish, Note}): target_shape,
    frozenset({Succeeded, Failed, TimedOut, Lost, Cancelled, Released}): outcome_shape,
    frozenset({Succeeded, Failed, TimedOut, Lost, Cancelled, Released, Started}): outcome_shape,
}
# What names no kind keeps the kind of the value it changes.
_SHAPES_OVER: dict[frozenset[type], Callable[[Any, str, object], Any]] = {
    frozenset({Exponential, Ladder, Constant}): backoff_shape,
    frozenset({Steady, Stretch, Ladder}): cadence_shape,
}


@cache
def type_of(into: Any) -> mi.Type:
    """What a type asks for, looked up once."""
    return mi.type_info(into)


def check_size(raw: Any, path: str = "") -> None:
    """Refuse data that is nested too deep, has too many parts, or too much text; also if it holds itself."""
    pending: list[tuple[Any, int]] = [(raw, 0)]
    parts = text = 0
    while pending:
        value, depth = pending.pop()
        parts += 1
        kind = type(value)
        text += len(value) if kind is str or isinstance(value, str | bytes) else 0
        if depth > DEEPEST or parts > MOST_PARTS or text > LONGEST_TEXT:
            rule = f"at most {DEEPEST} levels, {MOST_PARTS} parts and {LONGEST_TEXT} characters"
            raise refused(path, raw, "is too deep or too large", rule=rule, fix="less, or several of them")
        if kind in _SINGLE_PARTS:
            continue
        if kind is dict or isinstance(value, Mapping):
            pending += ((inner, depth + 1) for pair in value.items() for inner in pair)
        elif isinstance(value, list | tuple | set | frozenset):
            pending += ((inner, depth + 1) for inner in value)


def read(raw: Any, info: mi.Type, path: str, base: object = None) -> Any:
    """The value that plain data stands for, or a refusal."""
    if isinstance(raw, Milliseconds) and type(info) not in _TIMED:
        rule = "only durations and points in time have a form in milliseconds"
        raise refused(f"{path}_ms", raw.value, "is not known", rule=rule, fix=path, kind=UnknownField)
    if isinstance(info, mi.UnionType):
        return _read_union(raw, info, path, base)
    if isinstance(info, mi.StructType):
        return _read_nested(raw, info, path, base)
    single = _SINGLE.get(type(info))
    return single(raw, path) if single is not None else _TYPED[type(info)](raw, info, path)


def names_of(raw: Any, cls: type, path: str = "") -> dict[str, Any]:
    """A mapping under our own field names; a name nobody knows, or one field twice, is refused."""
    if not isinstance(raw, Mapping):
        rule = f"a mapping with the fields of a {cls.__name__.lower()}"
        raise refused(path, raw, "is not a mapping", rule=rule, fix="{name: value}")
    known, aliases = _names(cls)
    given: dict[str, Any] = {}
    foreign = SAID_HERE.get(cls, {})
    pairs = [(_path_of(key, known, aliases, path, foreign), key, value) for key, value in raw.items()]
    # Whole parts first, so that a short name may then set one field inside a part.
    for where, key, value in sorted(pairs, key=lambda pair: len(pair[0])):
        timed = snake(key).endswith("_ms") and snake(key) not in known
        _put(given, where, Milliseconds(value) if timed else value, path)
    return given


def is_named(key: Any, cls: type) -> bool:
    """Whether a field of a type has exactly this name."""
    known, aliases = _names(cls)
    return isinstance(key, str) and (key in known or key in aliases)


@cache
def _names(cls: type) -> tuple[dict[str, Path], dict[str, Path]]:
    """The fields of a type by their outer names, and by every other name they have."""
    info = type_of(cls)
    assert isinstance(info, mi.StructType)
    known: dict[str, Path] = {field.encode_name: (field.name,) for field in info.fields}
    aliases: dict[str, Path] = {**{name: (name,) for (name,) in known.values()}, **ALIASES.get(cls, {})}
    if info.tag_field is not None:
        known[info.tag_field] = (info.tag_field,)
    return known, aliases


def read_struct(given: Mapping[str, Any], cls: type, path: str, base: object = None) -> Any:
    """A value from fields under our own names."""
    info = type_of(cls)
    assert isinstance(info, mi.StructType)
    values: dict[str, Any] = {}
    for field in info.fields:
        under = _part(base, field.name)
        if field.name in given:
            where = join(path, field.encode_name)
            values[field.name] = _read_field(given[field.name], field.type, where, under)
        elif under is not _ABSENT:
            values[field.name] = under
        elif field.required:
            rule = f"{field.encode_name} is needed"
            raise missing(join(path, field.encode_name), rule=rule, fix=_example(field.encode_name))
    try:
        return cls(**values)
    except TimewrightError as error:
        refuse_from(path, error)


def _read_field(raw: Any, info: mi.Type, path: str, base: object) -> Any:
    if path.rpartition(".")[2] == "priority" and isinstance(raw, str):
        word = plain_word(raw) if len(raw) <= 64 else ""
        if word not in PRIORITIES:
            rule = f"an integer from 0 to 1000, smaller first, or one of {', '.join(PRIORITIES)}"
            raise refused(path, raw, "is not a priority", rule=rule, fix="normal")
        return PRIORITIES[word]
    return read(raw, info, path, None if base is _ABSENT else base)


_ABSENT = object()


def _part(base: object, name: str) -> Any:
    if base is None:
        return _ABSENT
    if isinstance(base, Struct):
        return getattr(base, name, _ABSENT)
    return base.get(name, _ABSENT) if isinstance(base, Mapping) else _ABSENT


def _example(name: str) -> str:
    examples = {
        "name": "name: nightly-report",
        "trigger": "cron: '0 9 * * 1-5', or every: 15m",
        "target": "http: POST https://example.com/hook, or call: reports.nightly",
    }
    return examples.get(name, f"add {name}")


def _path_of(
    key: Any, known: Mapping[str, Path], aliases: Mapping[str, Path], path: str, foreign: Mapping[str, str]
) -> Path:
    if not isinstance(key, str) or len(key) > LONGEST_KEY:
        raise refused(path, key, "is not a field name", rule="field names are short text", fix=_LEAVE_OUT)
    word = snake(key)
    stem = word.removesuffix("_ms")
    for name in (key, word, stem):
        found = known.get(name) or aliases.get(name)
        if found is not None:
            return found
    raise unknown(path, key, known, also=aliases, meant=foreign.get(word, ""))


def _put(given: dict[str, Any], where: Path, value: Any, path: str) -> None:
    head, *rest = where
    inner = given.get(head, {})
    if head in given and (not rest or not isinstance(inner, Mapping)):
        rule = "one field, one value"
        raise refused(join(path, head), value, "is given twice", rule=rule, fix="take one of them out")
    if not rest:
        given[head] = value
        return
    inner = dict(inner)
    _put(inner, tuple(rest), value, join(path, head))
    given[head] = inner


def _read_nested(raw: Any, info: mi.StructType, path: str, base: object) -> Any:
    if isinstance(raw, info.cls):
        # A value that a program made says nothing about its numbers: only reading looks at their bounds.
        return read_struct({name: getattr(raw, name) for name in raw.__struct_fields__}, info.cls, path)
    given = names_of(_opened(raw, info.cls, path), info.cls, path)
    if info.tag_field is not None:
        tag = given.pop(info.tag_field, info.tag)
        if tag != info.tag:
            raise refused(
                join(path, info.tag_field), tag, "is another kind", rule=f"{info.tag}", fix=f"{info.tag}"
            )
    return read_struct(given, info.cls, path, base if isinstance(base, info.cls) else None)


def _opened(raw: Any, cls: type, path: str) -> Any:
    """The part that is meant when one value stands for the whole."""
    if cls is Need:
        return need_shape(raw, path)
    if cls is Retry and isinstance(raw, int) and not isinstance(raw, bool):
        return {"max_attempts": raw}
    if cls is LeaseTerms and isinstance(raw, str | timedelta | Milliseconds):
        return {"length": raw}
    if cls is WeeklyHours and isinstance(raw, str):
        return hours_shape(raw, path)
    if cls is CalendarRule and isinstance(raw, str):
        return rule_shape(raw, path)
    if cls is CalendarRule and isinstance(raw, Mapping):
        return {
            key: [value] if isinstance(value, str) and key != "roll" else value for key, value in raw.items()
        }
    return raw


def _read_union(raw: Any, info: mi.UnionType, path: str, base: object) -> Any:
    if raw is None and info.includes_none:
        return None
    kinds = [kind for kind in info.types if not isinstance(kind, mi.NoneType)]
    structs = {kind.tag: kind for kind in kinds if isinstance(kind, mi.StructType)}
    if len(kinds) == 1:
        return read(raw, kinds[0], path, base)
    classes = frozenset(kind.cls for kind in structs.values())
    if isinstance(raw, tuple(classes)):
        return raw
    over = _SHAPES_OVER.get(classes)
    tagged = over(raw, path, base) if over is not None else _SHAPES[classes](raw, path)
    found = structs.get(tagged.get("kind"))
    if found is None:
        rule = f"one of {', '.join(sorted(str(tag) for tag in structs))}"
        raise refused(join(path, "kind"), tagged.get("kind"), "is not allowed here", rule=rule, fix=rule)
    return _read_nested(tagged, found, path, base)


def _read_row(raw: Any, info: mi.Type, path: str) -> Any:
    assert isinstance(info, mi.VarTupleType)
    low, high = info.min_length or 0, info.max_length or MOST_PARTS
    if not isinstance(raw, list | tuple) or not low <= len(raw) <= high:
        rule = f"a list of {low} to {high}"
        raise refused(path, raw, "is not such a list", rule=rule, fix="[first, second]")
    return tuple(read(one, info.item_type, f"{path}[{i}]") for i, one in enumerate(raw))


def _read_mapping(raw: Any, info: mi.Type, path: str) -> Any:
    assert isinstance(info, mi.DictType)
    if not isinstance(raw, Mapping):
        raise refused(path, raw, "is not a mapping", rule="a mapping of names to values", fix="{name: value}")
    return {
        read(key, info.key_type, path): read(value, info.value_type, join(path, str(key)[:LONGEST_KEY]))
        for key, value in raw.items()
    }


_SINGLE: dict[type[mi.Type], Callable[[Any, str], Any]] = {
    mi.AnyType: read_plain,
    mi.BoolType: read_flag,
    mi.DateTimeType: read_instant,
    mi.DateType: read_day,
    mi.NoneType: read_nothing,
    mi.TimeDeltaType: read_duration,
}
_TYPED: dict[type[mi.Type], Callable[[Any, mi.Type, str], Any]] = {
    mi.DictType: _read_mapping,
    mi.EnumType: read_choice,
    mi.FloatType: read_number,
    mi.IntType: read_number,
    mi.LiteralType: read_literal,
    mi.StrType: read_text,
    mi.VarTupleType: _read_row,
}
_TIMED = frozenset({mi.DateTimeType, mi.StructType, mi.TimeDeltaType, mi.UnionType})
