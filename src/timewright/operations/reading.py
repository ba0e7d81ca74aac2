"""Plain data into a request: its own fields, and those of the model it spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from unicodedata import normalize

import msgspec
from msgspec import Struct
from msgspec import inspect as mi
from msgspec.structs import replace

from timewright.core.decoding import check_size, is_named, names_of, type_of
from timewright.core.foreign import SAID_HERE
from timewright.core.refusals import unknown
from timewright.core.spellings import ALIASES, snake
from timewright.core.vocabulary import decode
from timewright.errors import TimewrightError, UnknownField

R = TypeVar("R", bound=Struct)

LONGEST_PLAIN = 4_000
LARGEST_PLAIN = 2**53
_OF_ONE_MEANING = (mi.IntType, mi.BoolType, mi.EnumType, mi.NoneType, mi.DictType, mi.AnyType)

_NAMES = frozenset(
    {"schedule", "queue", "group", "calendar", "workflow", "limit", "tag", "key", "secret", "namespace"}
)


def read_request(payload: Mapping[str, Any], request: type[R]) -> R:
    """Read what was asked; a field nobody knows is refused with the nearest one that is."""
    plainly = _plainly(payload, request)
    if plainly is not None:
        return plainly
    try:
        asked = _read(payload, request)
    except TimewrightError as error:
        raise _discreet(error, getattr(request, "hides", ())) from None
    # Two spellings of one text are one name, here as where names are written.
    composed = {
        name: normalize("NFC", text)
        for name in _NAMES.intersection(request.__struct_fields__)
        if isinstance(text := getattr(asked, name), str) and not text.isascii()
    }
    return replace(asked, **composed) if composed else asked


def _plainly(payload: Mapping[str, Any], request: type[R]) -> R | None:
    """What is asked in words and numbers that have one meaning only; nothing if there may be another."""
    fields = _plain_fields(request)
    if type(payload) is not dict or not all(
        name in fields and _is_plain(value) for name, value in payload.items()
    ):
        return None
    try:
        return msgspec.convert(payload, request)
    except msgspec.ValidationError:
        return None  # whoever reads it field by field says better what is wrong


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() and len(value) <= LONGEST_PLAIN and "\0" not in value
    return kind is bool or (kind is int and abs(value) <= LARGEST_PLAIN) or (kind is dict and not value)


@cache
def _plain_fields(request: Any) -> frozenset[str]:
    """The fields of a request that mean the same to everyone: texts, numbers, choices, flags, plain data."""
    info = type_of(request)
    assert isinstance(info, mi.StructType)
    if getattr(request, "spreads", None) is not None:
        return frozenset()
    kinds = {
        one.encode_name: one.type.types if isinstance(one.type, mi.UnionType) else (one.type,)
        for one in info.fields
    }
    return frozenset(name for name, some in kinds.items() if all(map(_means_one, some)))


def _means_one(kind: mi.Type) -> bool:
    if isinstance(kind, mi.StrType):
        return kind.pattern is None
    return isinstance(kind, _OF_ONE_MEANING)


def _discreet(error: TimewrightError, hidden: Sequence[str]) -> TimewrightError:
    """The same refusal, without the value of a field that holds a secret."""
    field = error.field or ""
    if field.partition(".")[0] not in hidden:
        return error
    return type(error)(f"{field} cannot be used", field=field, rule=error.rule, fix=error.fix)


def _read(payload: Mapping[str, Any], request: type[R]) -> R:
    spreads: tuple[str, type[Struct]] | None = getattr(request, "spreads", None)
    if spreads is None or not isinstance(payload, Mapping):
        return decode(payload, request)
    check_size(payload)
    field, model = spreads
    own = {name for name in request.__struct_fields__ if name != field}
    asked = {key: value for key, value in payload.items() if _is_own(key, own)}
    rest = {key: value for key, value in payload.items() if key not in asked}
    for key in rest:
        _check_known(key, own, model)
    # The model's fields are read later, over what is there already, and are handed on as they were written.
    return replace(decode({**asked, field: {}}, request), **{field: rest})


def _is_own(key: Any, own: set[str]) -> bool:
    return isinstance(key, str) and (snake(key) in own or snake(key).removesuffix("_ms") in own)


def _check_known(key: Any, own: set[str], model: type[Struct]) -> None:
    if is_named(key, model):
        return
    try:
        names_of({key: None}, model)
    except UnknownField:
        known = {*own, *model.__struct_encode_fields__}
        meant = SAID_HERE.get(model, {}).get(snake(key), "")
        raise unknown("", key, known, also=ALIASES.get(model, {}), meant=meant) from None
