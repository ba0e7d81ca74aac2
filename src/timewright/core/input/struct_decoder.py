"""Decodes JSON-like data into Structs, field by field; every error names the path, the rule and a fix.

The type annotations define what is allowed; this module only walks them. A missing field takes its value from
`base` if there is one (a preset, or the value being changed), else its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, get_args

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.alerts.channels import AnySender, expand_sender
from timewright.core.alerts.incidents import AlertRules, CheckIn, Expect
from timewright.core.calendars import CalendarRule, WeeklyHours, parse_hours_phrase, parse_rule_phrase
from timewright.core.input import scalars
from timewright.core.input.aliases import FIELD_ALIASES, REPLACEMENTS, FieldPath, normalize_choice, snake_case
from timewright.core.input.input_errors import (
    check_cap,
    input_error,
    join_path,
    missing_field,
    raise_at_path,
    show_value,
    unknown_field,
)
from timewright.core.input.shorthand import (
    Milliseconds,
    expand_backoff,
    expand_cadence,
    expand_target,
    expand_trigger,
)
from timewright.core.policies.answers import ChangeWatch
from timewright.core.policies.backoff import Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.policies.policies import PRIORITIES, LeaseTerms, Retry
from timewright.core.recurrence.triggers import After, AnyOf, Cron, Every, Manual, Once, Rrule
from timewright.core.run.run import Cancelled, Failed, Lost, Released, Started, Succeeded, TimedOut
from timewright.core.schedule.upstream import Need
from timewright.core.target import Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.errors import TimewrightError, UnknownField

_NEED = re.compile(
    r"(?P<schedule>.+?)(?:\s*:\s*|\s+within\s+)(?P<within>[^\s:]+)"
    r"(?:\s+on\s+(?P<on>\w+))?(?:\s+wait\s+(?P<wait>\S+))?(?:\s+else\s+(?P<else>\w+))?"
)
_OUTCOMES = {
    "success": "succeeded",
    "succeeded": "succeeded",
    "completed": "succeeded",
    "failed": "failed",
    "error": "failed",
    "timeout": "timed_out",
    "timed_out": "timed_out",
    "lost": "lost",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "released": "released",
    "started": "started",
}
_OUTCOME_LABELS = frozenset({"useful", "noop", "skipped"})


def expand_need(raw: Any, path: str) -> Any:
    """Expand a need from text: `nightly-load:2h`, optionally followed by `on`, `wait` and `else`."""
    if not isinstance(raw, str):
        return raw
    found = _NEED.fullmatch(raw.strip()) if len(raw) <= 512 else None
    if found is None:
        rule = "the name of a schedule, and the maximum age of its last run"
        raise input_error(path, raw, "has no maximum age", rule=rule, fix=f"{raw.strip()[:60]}:2h")
    return {name: value for name, value in found.groupdict().items() if value is not None}


def expand_outcome(raw: Any, path: str) -> Any:
    """Expand an outcome from a status such as `SUCCESS`, or a mapping with one."""
    given = {"status": raw} if isinstance(raw, str) else raw
    rule = "succeeded, failed, timed_out, lost, cancelled or released"
    if not isinstance(given, Mapping):
        raise input_error(path, raw, "is not an outcome", rule=rule, fix="succeeded")
    words = {snake_case(str(key)): value for key, value in given.items()}
    word = next((words.pop(name) for name in ("kind", "status", "outcome") if name in words), None)
    plain = normalize_choice(word) if isinstance(word, str) else ""
    if plain in _OUTCOME_LABELS:
        return {**words, "kind": "succeeded", "outcome_label": plain}
    if plain not in _OUTCOMES:
        raise input_error(path, word, "is not an outcome", rule=rule, fix="succeeded")
    kind = _OUTCOMES[plain]
    return {"error": "failed", **words, "kind": kind} if kind == "failed" else {**words, "kind": kind}


MAX_KEY_LENGTH = 255

_LEAVE_OUT = "leave it out for the default"

_EXPANDERS: dict[frozenset[type], Callable[[Any, str], Any]] = {
    frozenset({Cron, Every, After, Once, Manual, Rrule, AnyOf}): expand_trigger,
    frozenset({Cron, Every, Once, Rrule}): expand_trigger,
    frozenset({Call, Http, Shell, Workflow, Handoff, Publish, Note}): expand_target,
    frozenset({Succeeded, Failed, TimedOut, Lost, Cancelled, Released}): expand_outcome,
    frozenset({Succeeded, Failed, TimedOut, Lost, Cancelled, Released, Started}): expand_outcome,
    frozenset(get_args(AnySender)): expand_sender,
}
# Without a `kind`, a value keeps the kind of the value it changes.
_EXPANDERS_WITH_BASE: dict[frozenset[type], Callable[[Any, str, object], Any]] = {
    frozenset({Exponential, Ladder, Constant}): expand_backoff,
    frozenset({Steady, Stretch, Ladder}): expand_cadence,
}


@cache
def type_info(into: Any) -> mi.Type:
    """Return msgspec's description of a type, cached."""
    return mi.type_info(into)


def read_value(raw: Any, info: mi.Type, path: str, base: object = None) -> Any:
    """Decode data as the given type, or raise InvalidInput."""
    if isinstance(raw, Milliseconds) and type(info) not in _ACCEPTS_MILLISECONDS:
        rule = "only durations and points in time have a form in milliseconds"
        raise input_error(f"{path}_ms", raw.value, "is not known", rule=rule, fix=path, kind=UnknownField)
    if isinstance(info, mi.UnionType):
        return _read_union(raw, info, path, base)
    if isinstance(info, mi.StructType):
        return _read_nested(raw, info, path, base)
    simple_reader = _SIMPLE_READERS.get(type(info))
    return (
        simple_reader(raw, path) if simple_reader is not None else _TYPED_READERS[type(info)](raw, info, path)
    )


# Types that one value can stand for: that value in words, and an example.
_SHORT_FORMS: dict[type, tuple[str, str]] = {
    Retry: ("a number of attempts, or ", "3"),
    LeaseTerms: ("a duration, or ", "60s"),
    Expect: ("a duration, or ", "2h"),
    CheckIn: ("a URL, or ", "https://example.com/check-in"),
    ChangeWatch: ("a path, or ", "body.price"),
}


# The field that one value for the whole object means, so that another field may stand beside it.
_MAIN_FIELDS = {"retry": "max_attempts", "lease": "length"}


def canonical_fields(raw: Any, cls: type, path: str = "") -> dict[str, Any]:
    """Return a mapping with canonical field names; unknown fields and fields given twice are refused."""
    if not isinstance(raw, Mapping):
        known, _ = _field_names(cls)
        first = next(iter(known), "name")
        short, fix = _SHORT_FORMS.get(cls, ("", f"{{{first}: …}}"))
        rule = f"{short}a mapping with some of: {', '.join(known)}"
        why = "is not understood" if short else "is not a mapping"
        raise input_error(path, raw, why, rule=rule, fix=fix)
    known, aliases = _field_names(cls)
    given: dict[str, Any] = {}
    foreign = REPLACEMENTS.get(cls, {})
    pairs = [(_path_of(key, known, aliases, path, foreign), key, value) for key, value in raw.items()]
    # Whole objects first, so that an alias may then set one field inside an object.
    for where, key, value in sorted(pairs, key=lambda pair: len(pair[0])):
        timed = snake_case(key).endswith("_ms") and snake_case(key) not in known
        _set_path(given, where, Milliseconds(value) if timed else value, path)
    return given


def is_field_name(key: Any, cls: type) -> bool:
    """Whether a type has a field with exactly this name or alias."""
    known, aliases = _field_names(cls)
    return isinstance(key, str) and (key in known or key in aliases)


@cache
def _field_names(cls: type) -> tuple[dict[str, FieldPath], dict[str, FieldPath]]:
    """Return the fields of a type by their JSON names, and by their aliases."""
    info = type_info(cls)
    assert isinstance(info, mi.StructType)
    known: dict[str, FieldPath] = {field.encode_name: (field.name,) for field in info.fields}
    aliases: dict[str, FieldPath] = {
        **{name: (name,) for (name,) in known.values()},
        **FIELD_ALIASES.get(cls, {}),
    }
    if info.tag_field is not None:
        known[info.tag_field] = (info.tag_field,)
    return known, aliases


def read_struct(given: Mapping[str, Any], cls: type, path: str, base: object = None) -> Any:
    """Build a Struct from fields with canonical names."""
    info = type_info(cls)
    assert isinstance(info, mi.StructType)
    values: dict[str, Any] = {}
    for field in info.fields:
        inherited = _base_value(base, field.name)
        if field.name in given:
            where = join_path(path, field.encode_name)
            values[field.name] = _read_field(given[field.name], field.type, where, inherited)
        elif inherited is not _ABSENT:
            values[field.name] = inherited
        elif field.required:
            raise missing_field(join_path(path, field.encode_name))
    try:
        return cls(**values)
    except TimewrightError as error:
        raise_at_path(path, error)


def _read_field(raw: Any, info: mi.Type, path: str, base: object) -> Any:
    if path.rpartition(".")[2] == "priority" and isinstance(raw, str):
        word = normalize_choice(raw) if len(raw) <= 64 else ""
        if word not in PRIORITIES:
            rule = f"an integer from 0 to 1000, smaller first, or one of {', '.join(PRIORITIES)}"
            raise input_error(path, raw, "is not a priority", rule=rule, fix="normal")
        return PRIORITIES[word]
    return read_value(raw, info, path, None if base is _ABSENT else base)


_ABSENT = object()


def _base_value(base: object, name: str) -> Any:
    if base is None:
        return _ABSENT
    if isinstance(base, Struct):
        return getattr(base, name, _ABSENT)
    return base.get(name, _ABSENT) if isinstance(base, Mapping) else _ABSENT


def _path_of(
    key: Any,
    known: Mapping[str, FieldPath],
    aliases: Mapping[str, FieldPath],
    path: str,
    foreign: Mapping[str, str],
) -> FieldPath:
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH:
        raise input_error(path, key, "is not a field name", rule="field names are short text", fix=_LEAVE_OUT)
    word = snake_case(key)
    stem = word.removesuffix("_ms")
    for name in (key, word, stem):
        found = known.get(name) or aliases.get(name)
        if found is not None:
            return found
    raise unknown_field(path, key, known, aliases=aliases, replacement=foreign.get(word, ""))


def _set_path(given: dict[str, Any], where: FieldPath, value: Any, path: str) -> None:
    head, *rest = where
    inner = given.get(head, {})
    if rest and head in _MAIN_FIELDS and isinstance(inner, int | str | timedelta | Milliseconds):
        inner = {_MAIN_FIELDS[head]: inner}
    if rest and head in given and not isinstance(inner, Mapping):
        part = f"{rest[-1]}: {show_value(value)}"
        rule = f"{rest[-1]} is part of {head}, which is not given as a mapping"
        fix = f"{head}: {{…, {part}}}, or remove one of them"
        raise input_error(join_path(path, head), inner, f"cannot be combined with {part}", rule=rule, fix=fix)
    if head in given and not rest:
        rule = "one field, one value"
        raise input_error(join_path(path, head), value, "is given twice", rule=rule, fix="remove one of them")
    if not rest:
        given[head] = value
        return
    inner = dict(inner)
    _set_path(inner, tuple(rest), value, join_path(path, head))
    given[head] = inner


def _read_nested(raw: Any, info: mi.StructType, path: str, base: object) -> Any:
    if isinstance(raw, info.cls):
        # msgspec does not check bounds in constructors, so a Struct built by a program is decoded again.
        return read_struct({name: getattr(raw, name) for name in raw.__struct_fields__}, info.cls, path)
    given = canonical_fields(_expand_single(raw, info.cls, path), info.cls, path)
    if info.tag_field is not None:
        tag = given.pop(info.tag_field, info.tag)
        if tag != info.tag:
            raise input_error(
                join_path(path, info.tag_field), tag, "is another kind", rule=f"{info.tag}", fix=f"{info.tag}"
            )
    return read_struct(given, info.cls, path, base if isinstance(base, info.cls) else None)


def _expand_single(raw: Any, cls: type, path: str) -> Any:
    """Expand a single value that stands for a whole object."""
    if cls is Need:
        return expand_need(raw, path)
    if cls is Retry and isinstance(raw, int) and not isinstance(raw, bool):
        return {"max_attempts": raw}
    if cls is LeaseTerms and isinstance(raw, str | timedelta | Milliseconds):
        return {"length": raw}
    if cls is CheckIn and isinstance(raw, str):
        return {"url": raw}
    if cls is Expect and isinstance(raw, str | timedelta | Milliseconds):
        return {"within": raw}
    if cls is AlertRules and isinstance(raw, bool):
        return {"enabled": raw}
    if cls is ChangeWatch and isinstance(raw, str):
        return {"changed": raw}
    if cls is WeeklyHours and isinstance(raw, str):
        return parse_hours_phrase(raw, path)
    if cls is CalendarRule and isinstance(raw, str):
        return parse_rule_phrase(raw, path)
    if cls is CalendarRule and isinstance(raw, Mapping):
        return {
            key: [value] if isinstance(value, str) and key != "roll" else value for key, value in raw.items()
        }
    return raw


def _read_union(raw: Any, info: mi.UnionType, path: str, base: object) -> Any:
    if raw is None and info.includes_none:
        return None
    kinds = [kind for kind in info.types if not isinstance(kind, mi.NoneType)]
    if info.includes_none and isinstance(kinds[0], mi.TimeDeltaType) and str(raw).lower() == "none":
        return None
    structs = {kind.tag: kind for kind in kinds if isinstance(kind, mi.StructType)}
    if len(kinds) == 1 or isinstance(kinds[0], mi.StrType):  # one type, or a name or what it names
        return read_value(raw, kinds[0] if isinstance(raw, str) else kinds[-1], path, base)
    classes = frozenset(kind.cls for kind in structs.values())
    if isinstance(raw, tuple(classes)):
        return check_cap(raw, path)
    expand_with_base = _EXPANDERS_WITH_BASE.get(classes)
    tagged = (
        expand_with_base(raw, path, base) if expand_with_base is not None else _EXPANDERS[classes](raw, path)
    )
    found = structs.get(tagged.get("kind"))
    if found is None:
        rule = f"one of {', '.join(sorted(str(tag) for tag in structs))}"
        raise input_error(
            join_path(path, "kind"), tagged.get("kind"), "is not allowed here", rule=rule, fix=rule
        )
    return check_cap(_read_nested(tagged, found, path, base), path)


def _read_list(raw: Any, info: mi.Type, path: str) -> Any:
    assert isinstance(info, mi.VarTupleType)
    low, high = info.min_length or 0, info.max_length or scalars.MAX_PARTS
    if not isinstance(raw, list | tuple) or not low <= len(raw) <= high:
        rule = f"a list of {low} to {high}"
        raise input_error(path, raw, "is not a valid list", rule=rule, fix="[first, second]")
    return tuple(read_value(one, info.item_type, f"{path}[{i}]") for i, one in enumerate(raw))


def _read_mapping(raw: Any, info: mi.Type, path: str) -> Any:
    assert isinstance(info, mi.DictType)
    if not isinstance(raw, Mapping):
        raise input_error(
            path, raw, "is not a mapping", rule="a mapping of names to values", fix="{name: value}"
        )
    has_pattern = getattr(info.key_type, "pattern", None) is not None
    return {
        # Where keys are digits, YAML and Python may have the number itself, as in {3: quiet}.
        read_value(str(key) if has_pattern and type(key) is int else key, info.key_type, path): read_value(
            value, info.value_type, join_path(path, str(key)[:MAX_KEY_LENGTH])
        )
        for key, value in raw.items()
    }


_SIMPLE_READERS: dict[type[mi.Type], Callable[[Any, str], Any]] = {
    mi.AnyType: scalars.read_json_value,
    mi.BoolType: scalars.read_bool,
    mi.DateTimeType: scalars.read_instant,
    mi.DateType: scalars.read_date,
    mi.NoneType: scalars.read_null,
    mi.TimeDeltaType: scalars.read_duration,
}
_TYPED_READERS: dict[type[mi.Type], Callable[[Any, mi.Type, str], Any]] = {
    mi.DictType: _read_mapping,
    mi.EnumType: scalars.read_choice,
    mi.FloatType: scalars.read_number,
    mi.IntType: scalars.read_number,
    mi.LiteralType: scalars.read_literal,
    mi.StrType: scalars.read_text,
    mi.VarTupleType: _read_list,
}
_ACCEPTS_MILLISECONDS = frozenset({mi.DateTimeType, mi.StructType, mi.TimeDeltaType, mi.UnionType})
