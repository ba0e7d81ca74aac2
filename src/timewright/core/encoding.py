"""Values into plain data: the one spelling we emit.

Names are lower snake case, durations `1h30m`, instants RFC 3339 with a `Z`, choices their own word. Every
field is written, also one that has its default: what is not said would change its meaning with the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

from msgspec import Struct

from timewright.core.moments import spell_duration, spell_instant


def encode(value: Struct) -> dict[str, Any]:
    """A value as a mapping that `decode` reads back to the same value."""
    config = value.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return {**tag, **{outer: plain(getattr(value, inner)) for outer, inner in names}}


def plain(value: Any) -> Any:
    """The same in words that JSON has."""
    if isinstance(value, Struct):
        return encode(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, timedelta):
        return spell_duration(value)
    if isinstance(value, datetime):
        return spell_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value
