"""What an operation is about: the one field that names it, in a path or as an argument."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.operations.registry import Operation, Request, Write

OBJECTS = ("schedule", "run", "queue", "group", "calendar", "limit")


class Subject(Struct, frozen=True, kw_only=True):
    """The field that names what is meant, and whether it may be left out."""

    field: str
    required: bool


def subject_of(operation: Operation[Any]) -> Subject | None:
    """Its noun, else the one thing it cannot do without, else a name or a lease."""
    request: type[Request] = operation.request
    return _subject(operation.noun, request)


@cache
def _subject(noun: str, request: type[Request]) -> Subject | None:
    spreads = request.spreads
    texts = _texts(request, leaving_out=spreads[0] if spreads is not None else "")
    if noun in texts:
        return Subject(field=noun, required=texts[noun])
    needed = [name for name in OBJECTS if texts.get(name)]
    if needed:
        return Subject(field=needed[0], required=True)
    if spreads is not None and "name" in spreads[1].__struct_fields__:
        return Subject(field="name", required=False)
    # A question about one thing by its name; what writes takes a name for what it makes.
    asked = ("lease",) if issubclass(request, Write) else ("name", "lease")
    named = next((name for name in asked if name in texts), None)
    return Subject(field=named, required=texts[named]) if named is not None else None


def _texts(request: type[Struct], *, leaving_out: str) -> dict[str, bool]:
    """The fields of a request that are text, each with whether it must be there."""
    info = mi.type_info(request)
    assert isinstance(info, mi.StructType)
    found = [field for field in info.fields if field.name != leaving_out]
    return {field.encode_name: field.required for field in found if isinstance(field.type, mi.StrType)}
