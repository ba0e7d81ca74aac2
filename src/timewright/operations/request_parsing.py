"""Parse JSON values into a request: its own fields, and those of the model that it flattens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar
from unicodedata import normalize

import msgspec
from msgspec import Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from timewright.core.input.aliases import FIELD_ALIASES, REPLACEMENTS, SHORT_FIELDS, snake_case
from timewright.core.input.decode import decode
from timewright.core.input.input_errors import unknown_field
from timewright.core.input.instant_text import (
    ZONE_FIELDS,
    DefaultZone,
    instant_fields,
    resolve_instants,
    zone_in,
    zone_in_text,
)
from timewright.core.input.scalars import check_size
from timewright.core.input.struct_decoder import canonical_fields, is_field_name, type_info
from timewright.core.moments import format_duration
from timewright.core.schedule.schedule import Schedule
from timewright.core.zones import check_zone, load_zone
from timewright.errors import InvalidInput, TimewrightError, UnknownField

R = TypeVar("R", bound=Struct)

MAX_PLAIN_CHARS = 4_000
# Fields that only Timewright writes.
SYSTEM_FIELDS = frozenset({"id", "namespace", "created_at", "created_by", "origin", "owner"})
MAX_PLAIN_INT = 2**53
# Words that callers use for the end and the start of a schedule, and that look like no field of it.
_END, _START = "end_at, e.g. 2026-12-31T23:00Z", "start_at, e.g. 2026-12-01T08:00Z"
GUESSED_FIELDS = {
    **dict.fromkeys(("expires", "expires_at"), _END),
    **dict.fromkeys(("not_before", "from", "begin", "begin_at"), _START),
}
# Synonyms of fields: used if the request has the field, and has no field with the name of the synonym.
_FIELD_SYNONYMS = {
    "status": "state",
    **dict.fromkeys(("timezone", "time_zone", "tz"), "zone"),
    **dict.fromkeys(("until", "end_date", "stop_at"), "end_at"),
    **dict.fromkeys(("in", "delay"), "after"),
    **dict.fromkeys(("args", "arguments", "input"), "payload"),
    **dict.fromkeys(("count", "times"), "max_runs"),
    **dict.fromkeys(("message", "query"), "text"),
    **dict.fromkeys(("name", "search"), "name_contains"),
}
# Words for a duration, and what to write instead in a request that has this field, a point in time.
_DURATION_WORDS = frozenset({"in", "delay", "after", "for", "duration"})
_REPLACEMENT_FOR_DURATION = {"until": "until: in 2h", "at": "at: in 2h"}
_SIMPLE_TYPES = (mi.IntType, mi.BoolType, mi.EnumType, mi.NoneType, mi.DictType, mi.AnyType)

_NAME_FIELDS = frozenset(
    {"schedule", "queue", "group", "calendar", "workflow", "limit", "tag", "key", "secret", "namespace"}
)


def parse_request(
    payload: Mapping[str, Any],
    request: type[R],
    *,
    now: Callable[[], datetime] | None = None,
    zone: DefaultZone = "UTC",
) -> R:
    """Parse a request; an unknown field raises an error that names the most similar known field.

    With `now`, its points in time may be written in words, and without an offset they are read in `zone`.
    """
    zones: Mapping[str, str] = {}
    simple = _parse_simple(payload, request)
    if simple is not None:
        return simple
    try:
        if isinstance(payload, Mapping):
            payload = _with_field_names(payload, request)
            if now is not None and instant_fields(request):
                zones = _written_zones(payload, request)
                payload = resolve_instants(payload, instant_fields(request), now=now(), zone=zone)
                payload = _without_used_zone(payload, request)
        parsed = _parse_fields(payload, request)
    except TimewrightError as error:
        raise _without_secret_value(error, getattr(request, "redacted_fields", ())) from None
    # Normalise names to NFC, as they are when they are stored.
    normalized = {
        name: normalize("NFC", text)
        for name in _NAME_FIELDS.intersection(request.__struct_fields__)
        if isinstance(text := getattr(parsed, name), str) and not text.isascii()
    }
    zoned = {name: getattr(parsed, name).astimezone(load_zone(zone)) for name, zone in zones.items()}
    return replace(parsed, **normalized, **zoned) if normalized or zoned else parsed


def _parse_simple(payload: Mapping[str, Any], request: type[R]) -> R | None:
    """Parse unambiguous strings and numbers in one step; None if field-by-field parsing is needed."""
    fields = _simple_fields(request)
    if type(payload) is not dict or not all(
        name in fields and _is_simple(value) for name, value in payload.items()
    ):
        return None
    try:
        return msgspec.convert(payload, request)
    except msgspec.ValidationError:
        return None  # field-by-field parsing raises a clearer error


def _is_simple(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() and len(value) <= MAX_PLAIN_CHARS and "\0" not in value
    return kind is bool or (kind is int and abs(value) <= MAX_PLAIN_INT) or (kind is dict and not value)


@cache
def _simple_fields(request: Any) -> frozenset[str]:
    """Return the fields that have one spelling only: strings, numbers, enums, flags and JSON values."""
    info = type_info(request)
    assert isinstance(info, mi.StructType)
    if getattr(request, "flattens", None) is not None:
        return frozenset()
    kinds = {
        one.encode_name: one.type.types if isinstance(one.type, mi.UnionType) else (one.type,)
        for one in info.fields
    }
    return frozenset(name for name, some in kinds.items() if all(map(_has_one_spelling, some)))


def _has_one_spelling(kind: mi.Type) -> bool:
    if isinstance(kind, mi.StrType):
        return kind.pattern is None
    return isinstance(kind, _SIMPLE_TYPES)


def _without_secret_value(error: TimewrightError, hidden: Sequence[str]) -> TimewrightError:
    """Return the error without the value, if its field holds a secret."""
    field = error.field or ""
    if field.partition(".")[0] not in hidden:
        return error
    return type(error)(f"{field} is not valid", field=field, rule=error.rule, fix=error.fix)


def _with_field_names(payload: Mapping[str, Any], request: type[Struct]) -> Mapping[str, Any]:
    """Return the payload with synonyms replaced by the names of the request's fields."""
    if getattr(request, "flattens", None) is not None:
        return payload
    renamed: dict[str, Any] = {}
    for key, value in payload.items():
        name = _resolve_field_name(key, request)
        renamed[key if name in payload else name] = value
    return renamed


def _resolve_field_name(key: Any, request: type[Struct]) -> Any:
    """Return the request field that a key is a synonym of, or the key unchanged.

    Raises for a duration word if the request has a point in time instead. A request with `after` takes a
    duration: there `in` and `delay` are synonyms of it.
    """
    known = request.__struct_encode_fields__
    word = snake_case(key) if isinstance(key, str) else ""
    if not word or word in known:
        return key
    subject = _subject(request)
    if subject and word in ("name", "id", f"{subject}_name", f"{subject}_id"):
        return subject
    replacements = [fix for field, fix in _REPLACEMENT_FOR_DURATION.items() if field in known]
    if replacements and word in _DURATION_WORDS and "after" not in known:
        raise unknown_field("", word, known, replacement=replacements[0])
    meant = _FIELD_SYNONYMS.get(word, "")
    return meant if meant in known else key


@cache
def _subject(request: type[Struct]) -> str:
    """Return the one field that a request needs, if it names or identifies what the request is about."""
    info = type_info(request)
    assert isinstance(info, mi.StructType)
    needed = [field.encode_name for field in info.fields if field.required]
    return needed[0] if len(needed) == 1 and needed[0] in {*_NAME_FIELDS, "run"} else ""


def _written_zones(payload: Mapping[str, Any], request: type[Struct]) -> Mapping[str, str]:
    """Return the zones that were written with the points in time of a request that repeats them."""
    if not getattr(request, "keeps_zones", False):
        return {}
    texts = {name: payload.get(name) for name in instant_fields(request)}
    found = {name: zone_in_text(text) or zone_in(payload) for name, text in texts.items() if text}
    return {name: zone for name, zone in found.items() if zone}


def _without_used_zone(payload: Mapping[str, Any], request: type[Struct]) -> Mapping[str, Any]:
    """Return the fields without a zone that has served to read the points in time beside it."""
    known = request.__struct_encode_fields__
    if getattr(request, "flattens", None) is not None or "zone" in known:
        return payload
    if not instant_fields(request).intersection(payload):
        return payload
    for name in ZONE_FIELDS:
        if name in payload:
            check_zone(payload[name], field=name)
    return {key: value for key, value in payload.items() if key not in ZONE_FIELDS}


def _parse_fields(payload: Mapping[str, Any], request: type[R]) -> R:
    flattens: tuple[str, type[Struct]] | None = getattr(request, "flattens", None)
    if flattens is None or not isinstance(payload, Mapping):
        return decode(payload, request)
    check_size(payload)
    field, model = flattens
    own = {name for name in request.__struct_fields__ if name != field}
    parsed = {key: value for key, value in payload.items() if _is_own(key, own)}
    rest = {key: value for key, value in payload.items() if key not in parsed}
    for key in rest:
        _check_known(key, own, model)
    # The model's fields are parsed later, over the stored object, so they are passed on unparsed.
    return replace(decode({**parsed, field: {}}, request), **{field: rest})


def _is_own(key: Any, own: set[str]) -> bool:
    return isinstance(key, str) and (snake_case(key) in own or snake_case(key).removesuffix("_ms") in own)


def _check_known(key: Any, own: set[str], model: type[Struct]) -> None:
    if is_field_name(key, model):
        return
    try:
        canonical_fields({key: None}, model)
    except UnknownField:
        written = SHORT_FIELDS if model is Schedule else ()
        known = {*own, *written, *model.__struct_encode_fields__} - SYSTEM_FIELDS
        meant = REPLACEMENTS.get(model, {}).get(snake_case(key), "")
        if model is Schedule:
            meant = meant or GUESSED_FIELDS.get(snake_case(key), "")
        raise unknown_field("", key, known, aliases=FIELD_ALIASES.get(model, {}), replacement=meant) from None


def check_length(length: timedelta, field: str, least: timedelta, most: timedelta, *, fix: str) -> timedelta:
    """Return a duration that is within its limits; raise InvalidInput otherwise."""
    if least <= length <= most:
        return length
    raise InvalidInput(
        f"{field} is out of range",
        field=field,
        value=format_duration(length),
        rule=f"{format_duration(least)} to {format_duration(most)}",
        fix=fix,
    )
