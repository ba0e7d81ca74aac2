"""The request field that names an operation's object: a path segment in HTTP, an argument in the CLI."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.operations.registry import Operation, OperationRequest, WriteRequest

OBJECTS = ("schedule", "run", "queue", "group", "calendar", "limit", "event")


class Subject(Struct, frozen=True, kw_only=True):
    """The field that names the object, and whether it is required."""

    field: str
    required: bool


def subject_of(operation: Operation[Any]) -> Subject | None:
    """Return the field named like the noun, else the one required object field, else `name` or `lease`."""
    request: type[OperationRequest] = operation.request_type
    return _subject(operation.noun, request)


@cache
def _subject(noun: str, request: type[OperationRequest]) -> Subject | None:
    flattens = request.flattens
    texts = _texts(request, leaving_out=flattens[0] if flattens is not None else "")
    if noun in texts:
        return Subject(field=noun, required=texts[noun])
    needed = [name for name in OBJECTS if texts.get(name)]
    if needed:
        return Subject(field=needed[0], required=True)
    if flattens is not None and "name" in flattens[1].__struct_fields__:
        return Subject(field="name", required=False)
    # In a read, `name` is the object asked about; in a write, it is the name of a new object.
    candidates = ("lease",) if issubclass(request, WriteRequest) else ("name", "lease")
    named = next((name for name in candidates if name in texts), None)
    return Subject(field=named, required=texts[named]) if named is not None else None


def _texts(request: type[Struct], *, leaving_out: str) -> dict[str, bool]:
    """Return the string fields of a request, each with whether it is required."""
    info = mi.type_info(request)
    assert isinstance(info, mi.StructType)
    found = [field for field in info.fields if field.name != leaving_out]
    return {field.encode_name: field.required for field in found if isinstance(field.type, mi.StrType)}
