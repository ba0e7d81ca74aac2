"""Values on their way into JSON: what msgspec writes as we spell it is left to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.encoding import encode, plain
from timewright.core.schedule import Schedule

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
_MOST_RECENT = 512
_RECENT: dict[int, tuple[Schedule, Any]] = {}


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
    return value if issubclass(kind, Struct) and is_written_alike(kind) else plain(value)


def _recent(value: Schedule) -> Any:
    """The spelling of a schedule: the same one is asked for again and again, and never changes."""
    known = _RECENT.get(id(value))
    if known is None or known[0] is not value:
        if len(_RECENT) >= _MOST_RECENT:
            _RECENT.clear()
        # The value is kept as well, so that its place in memory stays its own.
        known = _RECENT[id(value)] = (value, plain(value))
    return known[1]


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
