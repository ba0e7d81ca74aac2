"""The parameters of resource methods with their types, for `help()` and for the stub file.

`docs/verbs.py` writes the same parameters into `resource_methods.pyi`, which editors and type checkers read.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec import inspect as mi

from timewright.core.budgets.costs import AMOUNT_PATTERN, QUANTITY_PATTERN
from timewright.core.schedule.schedule import Schedule
from timewright.operations import Operation, operations
from timewright.operations.json_schemas import SERVER_FIELDS
from timewright.operations.registry import subject_of

# Short forms of a schedule's trigger, target, retry and lease, each with its type.
SHORTHAND_FIELDS = {
    "every": "timedelta | str",
    "cron": "str",
    "rrule": "str",
    "zone": "str | tzinfo",
    "after": "timedelta | str | Mapping[str, Any]",
    "on": "str",
    "delay": "timedelta | str",
    "once": "datetime | str",
    "at": "datetime | str",
    "manual": "bool | Mapping[str, Any]",
    "anchor": "datetime | str",
    "dst": "str",
    "note": "str",
    "http": "str | Mapping[str, Any]",
    "method": "str",
    "headers": "Mapping[str, str]",
    "body": "Any",
    "http_timeout": "timedelta | str",
    "call": "str | Mapping[str, Any]",
    "shell": "Sequence[str] | Mapping[str, Any]",
    "workflow": "str | Mapping[str, Any]",
    "handoff": "Any",
    "publish": "str | Mapping[str, Any]",
    "max_attempts": "int",
    "backoff": "Any",
    "time_limit": "timedelta | str | None",
}
# Fields whose input has more forms than the stored value.
INPUT_TYPES = {"priority": "int | str"}
TYPE_NAMES: dict[type[mi.Type], str] = {
    mi.StrType: "str",
    mi.IntType: "int",
    mi.FloatType: "float",
    mi.BoolType: "bool",
    mi.DateTimeType: "datetime | str",
    mi.TimeDeltaType: "timedelta | str",
    mi.EnumType: "str",
    mi.LiteralType: "str",
    mi.NoneType: "None",
    mi.DictType: "Mapping[str, Any]",
}


class _Omitted:
    """The default of an optional parameter: the field is left out of the request."""

    def __repr__(self) -> str:
        return "..."


OMITTED = _Omitted()


class MethodParameter(Struct, frozen=True, kw_only=True):
    """One parameter of a resource method; only the object can be given by position."""

    name: str
    type_name: str
    required: bool = False
    by_position: bool = False


def parameters_of(operation: Operation[Any]) -> tuple[MethodParameter, ...]:
    """Return the parameters of an operation: its object first, then its fields, then the model's."""
    found: dict[str, MethodParameter] = {}
    for one in chain(_request_parameters(operation), _model_parameters(operation)):
        found.setdefault(one.name, one)
    return tuple(found.values())


@cache
def signature_of(operation_name: str) -> inspect.Signature:
    """Return the signature of a resource method."""
    kinds = {True: inspect.Parameter.POSITIONAL_OR_KEYWORD, False: inspect.Parameter.KEYWORD_ONLY}
    operation = operations[operation_name]
    return inspect.Signature(
        [
            inspect.Parameter(
                one.name,
                kinds[one.by_position],
                default=inspect.Parameter.empty if one.required else OMITTED,
                annotation=one.type_name,
            )
            for one in parameters_of(operation)
        ],
        return_annotation=operation.answer_type.__name__,
    )


@cache
def docstring_of(operation_name: str) -> str:
    """Return the docstring of a resource method: its summary and one line for each field."""
    operation = operations[operation_name]
    answer = operation.answer_type
    parameters = [f"  {one.name}: {one.type_name}" for one in parameters_of(operation)]
    listed = ["Fields:", *parameters, ""] if parameters else []
    returned = f"Returns {answer.__name__}: {', '.join(answer.__struct_fields__)}."
    return "\n".join([operation.summary, "", *listed, returned])


def _request_parameters(operation: Operation[Any]) -> Iterator[MethodParameter]:
    """Yield the request's own fields; the field that collects the model's fields is not one of them."""
    subject = subject_of(operation)
    info = mi.type_info(operation.request_type)
    assert isinstance(info, mi.StructType)
    collects = operation.request_type.flattens[0] if operation.request_type.flattens is not None else ""
    own = {one.encode_name: one for one in info.fields if one.name != collects}
    if subject is not None:
        type_name = type_name_of(own[subject.field].type) if subject.field in own else "str"
        yield MethodParameter(
            name=subject.field, type_name=type_name, required=subject.required, by_position=True
        )
    for name, one in own.items():
        if subject is None or name != subject.field:
            yield MethodParameter(name=name, type_name=type_name_of(one.type), required=one.required)


def _model_parameters(operation: Operation[Any]) -> Iterator[MethodParameter]:
    """Yield the fields of the model that the request accepts beside its own."""
    if operation.request_type.flattens is None:
        return
    model = operation.request_type.flattens[1]
    info = mi.type_info(model)
    assert isinstance(info, mi.StructType)
    if model is Schedule:
        yield from (MethodParameter(name=name, type_name=kind) for name, kind in SHORTHAND_FIELDS.items())
    for one in info.fields:
        name = one.encode_name
        if name not in SERVER_FIELDS and not keyword.iskeyword(name):
            yield MethodParameter(name=name, type_name=INPUT_TYPES.get(name) or type_name_of(one.type))


def type_name_of(info: mi.Type) -> str:
    """Return the type of a field as source text; every form of a nested object is `Any`."""
    if isinstance(info, mi.UnionType):
        names = dict.fromkeys(" | ".join(type_name_of(one) for one in info.types).split(" | "))
        return "Any" if "Any" in names else " | ".join(names)
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return f"Sequence[{type_name_of(info.item_type)}]"
    if isinstance(info, mi.StrType) and info.pattern in (AMOUNT_PATTERN, QUANTITY_PATTERN):
        return "str | float"
    return TYPE_NAMES.get(type(info), "Any")
