"""Values on their way into JSON: what msgspec writes as we spell it is left to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import cache, lru_cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec import inspect as mi

from timewright.core.encoding import encode, plain
from timewright.core.schedule import Schedule
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
_AS_THEY_ARE = frozenset({str, int, float, bool, NoneType})
# Defaults that are one and the same value wherever they stand.
_KEPT = (Struct, Enum, timedelta, tuple)
_NOTHING = object()


def sendable(value: Struct) -> dict[str, Any]:
    """A mapping that msgspec writes into the same bytes as what `encode` gives."""
    if type(value).__struct_config__.tag_field is not None:
        return encode(value)
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return {outer: _left(getattr(value, inner)) for outer, inner in names}


@lru_cache(maxsize=1024)
def is_written_alike(kind: type[Struct]) -> bool:
    """Whether msgspec writes every value of a type exactly as we spell it."""
    return _alike(mi.type_info(kind), frozenset())


def _left(value: Any) -> Any:
    kind: type = type(value)
    if issubclass(kind, tuple) and value and all(isinstance(one, Struct) for one in value):
        return value if all(is_written_alike(one) for one in set(map(type, value))) else plain(value)
    if kind is Schedule:
        return _recent(value)
    if issubclass(kind, Struct):
        return value if is_written_alike(kind) else _spelled(value)
    return plain(value)


@partial(once_for_each, most=512)
def _recent(value: Schedule) -> dict[str, Any]:
    """The same schedule is asked for again and again, and never changes."""
    return _spelled(value)


def _spelled(value: Struct) -> dict[str, Any]:
    """What `encode` gives, with those parts in JSON already that are as they are by default."""
    tag, fields, values_of = _outline(type(value))
    made = dict(tag)
    for (name, usual, spelled), found in zip(fields, values_of(value), strict=True):
        if type(found) in _AS_THEY_ARE:
            made[name] = found
        else:
            made[name] = spelled if found is usual else plain(found)
    return made


@cache
def _outline(
    kind: type[Struct],
) -> tuple[dict[str, Any], tuple[tuple[str, Any, Any], ...], Callable[[Struct], tuple[Any, ...]]]:
    """What a kind of value begins with, its fields with their defaults, and how to take them out."""
    config, inner = kind.__struct_config__, kind.__struct_fields__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    usual = (*[_NOTHING] * (len(inner) - len(kind.__struct_defaults__)), *kind.__struct_defaults__)
    fields = tuple(
        (name, one, Raw(msgspec.json.encode(plain(one))))
        if isinstance(one, _KEPT)
        else (name, _NOTHING, None)
        for name, one in zip(kind.__struct_encode_fields__, usual, strict=True)
    )
    takes = attrgetter(*inner) if len(inner) > 1 else lambda one: tuple(getattr(one, name) for name in inner)
    return tag, fields, takes


def _alike(info: mi.Type, inside: frozenset[type]) -> bool:
    if isinstance(info, mi.StructType):
        known = inside | {info.cls}
        # What leaves fields out, or holds itself, is walked through by hand.
        walked = info.cls in inside or info.cls.__struct_config__.omit_defaults or info.array_like
        fields = (one for one in info.fields if one.name not in _AS_IT_CAME)
        return not walked and all(_alike(one.type, known) for one in fields)
    if isinstance(info, mi.UnionType):
        return all(_alike(one, inside) for one in info.types)
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return _alike(info.item_type, inside)
    if isinstance(info, mi.DictType):
        return isinstance(info.key_type, mi.StrType) and _alike(info.value_type, inside)
    return isinstance(info, _THE_SAME)
