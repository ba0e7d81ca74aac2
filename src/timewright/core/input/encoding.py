"""Encodes Structs as JSON-like data, in one canonical form.

Field names are lower snake case, durations `1h30m`, instants RFC 3339 with a `Z`, enum members their value.
Fields with their default are written too, because a stored document must not change when a default changes.
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

from timewright.core.moments import format_duration, format_instant

# Types that need no conversion.
_JSON_SCALARS = frozenset({str, int, float, bool, NoneType})
_UTC_LENGTH = len("+00:00")

_cached_format_duration = lru_cache(maxsize=1024)(format_duration)


def encode(value: Struct) -> dict[str, Any]:
    """Return a Struct as a mapping that `decode` turns back into an equal Struct."""
    tag, names, get_values = _struct_layout(type(value))
    encoded = dict(tag)
    encoded.update(zip(names, get_values(value), strict=True))
    for name, found in encoded.items():
        kind: type = type(found)
        if kind not in _JSON_SCALARS:
            encoded[name] = _converter(kind)(found)
    return encoded


def to_json_value(value: Any) -> Any:
    """Return a value as JSON-compatible data."""
    kind: type = type(value)
    return value if kind in _JSON_SCALARS else _converter(kind)(value)


@lru_cache(maxsize=4096)
def _struct_layout(
    kind: type[Struct],
) -> tuple[dict[str, Any], tuple[str, ...], Callable[[Struct], tuple[Any, ...]]]:
    """Return the tag of a Struct type, the JSON names of its fields, and a getter for their values."""
    config = kind.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    field_names = kind.__struct_fields__
    # `attrgetter` returns a tuple only for two or more names.
    getter = (
        attrgetter(*field_names)
        if len(field_names) > 1
        else lambda one: tuple(getattr(one, name) for name in field_names)
    )
    return tag, kind.__struct_encode_fields__, getter


@lru_cache(maxsize=4096)
def _converter(kind: type) -> Callable[[Any], Any]:
    """Return the converter for values of a type: the first match in the table."""
    converters: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
        (Struct, encode),
        (Mapping, lambda value: {str(key): to_json_value(field_names) for key, field_names in value.items()}),
        ((list, tuple), lambda value: [to_json_value(field_names) for field_names in value]),
        (timedelta, _cached_format_duration),
        (datetime, _encode_instant),
        (date, lambda value: value.isoformat()),
        (Enum, lambda value: value._value_),
    )
    return next(
        (converter for kinds, converter in converters if issubclass(kind, kinds)), lambda value: value
    )


def _encode_instant(moment: datetime) -> str:
    """Format an instant; faster for UTC, the usual case."""
    if moment.tzinfo is UTC:
        return f"{moment.isoformat()[:-_UTC_LENGTH]}Z"
    return format_instant(moment)
