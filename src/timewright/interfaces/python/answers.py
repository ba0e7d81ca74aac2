"""Copies of answers that the caller may change."""

from __future__ import annotations

from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr


def own_copy(value: Any) -> Any:
    """Return an answer with its own dicts and lists; parts that cannot change are shared.

    Answers contain cached records. Without the copy, a change of `answer.schedule.metadata` would change what
    the engine runs.
    """
    if isinstance(value, Struct):
        return _copy_struct(value)
    if isinstance(value, dict):
        return {key: own_copy(one) for key, one in value.items()}
    if isinstance(value, list):
        return [own_copy(one) for one in value]
    if isinstance(value, tuple):
        copies = tuple(map(own_copy, value))
        return copies if any(one is not old for one, old in zip(copies, value, strict=True)) else value
    return value


def _copy_struct(value: Struct) -> Struct:
    """Return a copy if a field contains a dict or a list, else the value itself."""
    copied = None
    for name in value.__struct_fields__:
        found = getattr(value, name)
        own = own_copy(found)
        if own is not found:
            copied = copy(value) if copied is None else copied
            force_setattr(copied, name, own)
    return value if copied is None else copied
