"""Encodes answers for msgspec: only the parts that msgspec would write differently are converted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec import inspect as mi

from timewright.core.input.encoding import encode, to_json_value
from timewright.operations.identity_cache import cache_by_identity

# Types that msgspec writes as `encode` does; instants in answers are always in UTC.
_SAME_ENCODING = (
    mi.StrType,
    mi.IntType,
    mi.FloatType,
    mi.BoolType,
    mi.NoneType,
    mi.EnumType,
    mi.LiteralType,
    mi.DateTimeType,
    mi.DateType,
)
# Fields that hold any JSON value.
_JSON_FIELDS = frozenset({"metadata"})
# Types of immutable default values, whose encoding can be computed once.
_SHARED_DEFAULTS = (Struct, Enum, timedelta, tuple)
_NO_DEFAULT = object()
# From this number of rows on, the encoding of a tuple is cached by identity.
_MIN_CACHED_ROWS = 10

# Encoded name, default value and encoded default of a field that msgspec may write differently.
_SpecialField = tuple[str, Any, Any]


def encode_answer(value: Struct) -> dict[str, Any]:
    """Return a mapping that msgspec writes to the same bytes as the result of `encode`."""
    if type(value).__struct_config__.tag_field is not None:
        return encode(value)
    return _fields(value)


@lru_cache(maxsize=1024)
def is_plain_for_msgspec(kind: type[Struct]) -> bool:
    """Whether msgspec writes every value of a type exactly as `encode` does."""
    return _is_same_encoding(mi.type_info(kind), frozenset())


def _convert(value: Any) -> Any:
    kind: type = type(value)
    if kind is tuple and value:
        return _cached_rows(value) if len(value) >= _MIN_CACHED_ROWS else _rows(value)
    if issubclass(kind, Struct):
        return value if is_plain_for_msgspec(kind) else _fields(value)
    return to_json_value(value)


def _rows(values: tuple[Any, ...]) -> Any:
    same = all(isinstance(one, Struct) and is_plain_for_msgspec(type(one)) for one in values)
    return values if same else to_json_value(values)


@partial(cache_by_identity, max_entries=64)
def _cached_rows(rows: tuple[Any, ...]) -> Raw:
    return Raw(msgspec.json.encode(_rows(rows)))


def _fields(value: Struct) -> dict[str, Any]:
    """Return the fields as `encode` does, with default values already encoded."""
    tag, names, special, values_of = _layout(type(value))
    encoded = dict(tag)
    encoded.update(zip(names, values_of(value), strict=True))
    for name, default, encoded_default in special:
        found = encoded[name]
        encoded[name] = encoded_default if found is default else _convert(found)
    return encoded


@cache
def _layout(
    kind: type[Struct],
) -> tuple[dict[str, Any], tuple[str, ...], tuple[_SpecialField, ...], Callable[[Struct], tuple[Any, ...]]]:
    """Return the tag, the encoded field names, the special fields and a getter of all values of a type.

    Special fields are those that msgspec may write differently.
    """
    config, inner = kind.__struct_config__, kind.__struct_fields__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    names = kind.__struct_encode_fields__
    defaults = (*[_NO_DEFAULT] * (len(inner) - len(kind.__struct_defaults__)), *kind.__struct_defaults__)
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    special = tuple(
        (name, default, Raw(msgspec.json.encode(to_json_value(default))))
        if isinstance(default, _SHARED_DEFAULTS)
        else (name, _NO_DEFAULT, None)
        for name, default, field in zip(names, defaults, info.fields, strict=True)
        if not _is_same_field(field, frozenset({kind})) or _is_struct_tuple(field.type)
    )
    getter = attrgetter(*inner) if len(inner) > 1 else lambda one: tuple(getattr(one, name) for name in inner)
    return tag, names, special, getter


def _is_struct_tuple(info: mi.Type) -> bool:
    return isinstance(info, mi.VarTupleType) and isinstance(info.item_type, mi.StructType)


def _is_same_field(field: mi.Field, inside: frozenset[type]) -> bool:
    return field.name in _JSON_FIELDS or _is_same_encoding(field.type, inside)


def _is_same_encoding(info: mi.Type, inside: frozenset[type]) -> bool:
    if isinstance(info, mi.StructType):
        known = inside | {info.cls}
        # Types that omit defaults, are arrays or contain themselves are converted field by field.
        differs = info.cls in inside or info.cls.__struct_config__.omit_defaults or info.array_like
        return not differs and all(_is_same_field(one, known) for one in info.fields)
    if isinstance(info, mi.UnionType):
        return all(_is_same_encoding(one, inside) for one in info.types)
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return _is_same_encoding(info.item_type, inside)
    if isinstance(info, mi.DictType):
        return isinstance(info.key_type, mi.StrType) and _is_same_encoding(info.value_type, inside)
    return isinstance(info, _SAME_ENCODING)
