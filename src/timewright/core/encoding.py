"""Values into plain data: the one spelling we emit.

Names are lower snake case, durations `1h30m`, instants RFC 3339 with a `Z`, choices their own word. Every
field is written, also one that has its default: what is not said would change its meaning with the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any

from msgspec import Struct

from timewright.core.moments import spell_duration, spell_instant

# Most of what there is to write is in words that JSON has already.
_AS_THEY_ARE = frozenset({str, int, float, bool, NoneType})
_UTC_LENGTH = len("+00:00")

_spelled = lru_cache(maxsize=1024)(spell_duration)


def encode(value: Struct) -> dict[str, Any]:
    """A value as a mapping that `decode` reads back to the same value."""
    tag, names, values_of = _outline(type(value))
    made = dict(tag)
    made.update(zip(names, values_of(value), strict=True))
    for name, found in made.items():
        kind: type = type(found)
        if kind not in _AS_THEY_ARE:
            made[name] = _way_of(kind)(found)
    return made


def plain(value: Any) -> Any:
    """The same in words that JSON has."""
    kind: type = type(value)
    return value if kind in _AS_THEY_ARE else _way_of(kind)(value)


@lru_cache(maxsize=4096)
def _outline(
    kind: type[Struct],
) -> tuple[dict[str, Any], tuple[str, ...], Callable[[Struct], tuple[Any, ...]]]:
    """What a kind of value begins with, the outer names of its fields, and how to take them out."""
    config = kind.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    inner = kind.__struct_fields__
    # Of one name the getter gives the value itself, and of none it is not made.
    takes = attrgetter(*inner) if len(inner) > 1 else lambda one: tuple(getattr(one, name) for name in inner)
    return tag, kind.__struct_encode_fields__, takes


@lru_cache(maxsize=4096)
def _way_of(kind: type) -> Callable[[Any], Any]:
    """How values of one type are written: the first of these that it is."""
    ways: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
        (Struct, encode),
        (Mapping, lambda value: {str(key): plain(inner) for key, inner in value.items()}),
        ((list, tuple), lambda value: [plain(inner) for inner in value]),
        (timedelta, _spelled),
        (datetime, _instant),
        (date, lambda value: value.isoformat()),
        (Enum, lambda value: value._value_),
    )
    return next((way for kinds, way in ways if issubclass(kind, kinds)), lambda value: value)


def _instant(moment: datetime) -> str:
    """Most instants are in UTC already, and need not be turned there."""
    if moment.tzinfo is UTC:
        return f"{moment.isoformat()[:-_UTC_LENGTH]}Z"
    return spell_instant(moment)
