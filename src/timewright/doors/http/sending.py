"""Values on their way into JSON: what msgspec writes as we spell it is left to it."""

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

from timewright.core.encoding import encode, plain
from timewright.operations.identity import once_for_each

# Instants in answers are in UTC, where both spellings are one.
_THE_SAME = (
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
# May hold anything, and came as JSON.
_AS_IT_CAME = frozenset({"metadata"})
# Defaults that are one and the same value wherever they stand.
_KEPT = (Struct, Enum, timedelta, tuple)
_NOTHING = object()
# So many rows are a page: as long as none of them has changed, it is the same one.
_MANY = 10

_Odd = tuple[str, Any, Any]


def sendable(value: Struct) -> dict[str, Any]:
    """A mapping that msgspec writes into the same bytes as what `encode` gives."""
    if type(value).__struct_config__.tag_field is not None:
        return encode(value)
    return _spelled(value)


@lru_cache(maxsize=1024)
def is_written_alike(kind: type[Struct]) -> bool:
    """Whether msgspec writes every value of a type exactly as we spell it."""
    return _alike(mi.type_info(kind), frozenset())


def _left(value: Any) -> Any:
    kind: type = type(value)
    if kind is tuple and value:
        return _page(value) if len(value) >= _MANY else _row(value)
    if issubclass(kind, Struct):
        return value if is_written_alike(kind) else _spelled(value)
    return plain(value)


def _row(values: tuple[Any, ...]) -> Any:
    alike = all(isinstance(one, Struct) and is_written_alike(type(one)) for one in values)
    return values if alike else plain(values)


@partial(once_for_each, most=64)
def _page(rows: tuple[Any, ...]) -> Raw:
    return Raw(msgspec.json.encode(_row(rows)))


def _spelled(value: Struct) -> dict[str, Any]:
    """What `encode` gives, with those parts in JSON already that are as they are by default."""
    tag, names, odd, values_of = _outline(type(value))
    made = dict(tag)
    made.update(zip(names, values_of(value), strict=True))
    for name, usual, spelled in odd:
        found = made[name]
        made[name] = spelled if found is usual else _left(found)
    return made


@cache
def _outline(
    kind: type[Struct],
) -> tuple[dict[str, Any], tuple[str, ...], tuple[_Odd, ...], Callable[[Struct], tuple[Any, ...]]]:
    """What a kind of value begins with, the outer names of its fields, and how to take them out.

    The odd ones among them, which msgspec may write otherwise, stand there with their defaults.
    """
    config, inner = kind.__struct_config__, kind.__struct_fields__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    names = kind.__struct_encode_fields__
    defaults = (*[_NOTHING] * (len(inner) - len(kind.__struct_defaults__)), *kind.__struct_defaults__)
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    odd = tuple(
        (name, usual, Raw(msgspec.json.encode(plain(usual))))
        if isinstance(usual, _KEPT)
        else (name, _NOTHING, None)
        for name, usual, field in zip(names, defaults, info.fields, strict=True)
        if not _is_alike(field, frozenset({kind})) or _is_page(field.type)
    )
    takes = attrgetter(*inner) if len(inner) > 1 else lambda one: tuple(getattr(one, name) for name in inner)
    return tag, names, odd, takes


def _is_page(info: mi.Type) -> bool:
    return isinstance(info, mi.VarTupleType) and isinstance(info.item_type, mi.StructType)


def _is_alike(field: mi.Field, inside: frozenset[type]) -> bool:
    return field.name in _AS_IT_CAME or _alike(field.type, inside)


def _alike(info: mi.Type, inside: frozenset[type]) -> bool:
    if isinstance(info, mi.StructType):
        known = inside | {info.cls}
        # What leaves fields out, or holds itself, is walked through by hand.
        walked = info.cls in inside or info.cls.__struct_config__.omit_defaults or info.array_like
        return not walked and all(_is_alike(one, known) for one in info.fields)
    if isinstance(info, mi.UnionType):
        return all(_alike(one, inside) for one in info.types)
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return _alike(info.item_type, inside)
    if isinstance(info, mi.DictType):
        return isinstance(info.key_type, mi.StrType) and _alike(info.value_type, inside)
    return isinstance(info, _THE_SAME)
