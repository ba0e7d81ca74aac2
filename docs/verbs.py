# ruff: noqa: INP001 - pages are no package; the folder is one only to import these files
"""Writes the type hints of every noun and verb from the list of operations: `.venv/bin/python -m docs.verbs`.

The nouns find their verbs when they are asked, which no editor can know; this file tells it. A test compares
it with what this gives.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import inspect as mi
from msgspec.structs import fields

from timewright.core.budgets.costs import AMOUNT_PATTERN, QUANTITY_PATTERN
from timewright.core.schedule.schedule import Schedule
from timewright.interfaces.cli.fields import HIDDEN_FIELDS, model_of, options_of
from timewright.interfaces.python.resources import PLURALS
from timewright.operations import Operation, operations
from timewright.operations.subjects import subject_of

FILE = Path(__file__).resolve().parents[1] / "src" / "timewright" / "interfaces" / "python" / "resource_methods.pyi"

HEAD = '''# fmt: off
# ruff: noqa: A002, E501, PYI021 - names as the operations have them; one verb a line, what it does below it
"""The verbs of every noun, for editors and type checkers: docs/verbs.py writes it, a test keeps it true."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

Plain: TypeAlias = dict[str, Any]
'''

KINDS: dict[type[mi.Type], str] = {
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


def text() -> str:
    """The whole file."""
    return "\n".join([HEAD, *(_noun(noun, is_async=flag) for flag in (False, True) for noun in PLURALS)])


def _noun(noun: str, *, is_async: bool) -> str:
    name = f"{'Async' if is_async else ''}{PLURALS[noun].capitalize()}"
    verbs = [one for one in operations if one.name.split()[0] == noun and one.name != noun]
    return f"class {name}:\n" + "".join(_verb(one, is_async=is_async) for one in verbs)


def _verb(operation: Operation[Any], *, is_async: bool) -> str:
    name = "_".join(operation.name.split()[1:])
    name = f"{name}_" if keyword.iskeyword(name) else name
    taken = ", ".join(["self", *_parameters(operation)])
    before = "async def" if is_async else "def"
    return f'    {before} {name}({taken}) -> Plain:\n        """{operation.summary}"""\n'


def _parameters(operation: Operation[Any]) -> Iterator[str]:
    subject = subject_of(operation)
    info = mi.type_info(operation.request_type)
    assert isinstance(info, mi.StructType)
    model = model_of(operation)
    own = {one.encode_name: one for one in info.fields if model is None or one.encode_name in _own(operation)}
    if subject is not None:
        kind = _kind(own[subject.field].type) if subject.field in own else "str"
        yield f"{subject.field}: {kind}" + ("" if subject.required else " = ...")
    rest = {name: one for name, one in own.items() if subject is None or name != subject.field}
    if rest or model is not None:
        yield "*"
    for name, one in rest.items():
        yield f"{name}: {_kind(one.type)}" + ("" if one.required else " = ...")
    if model is not None:
        # Arguments stand beside a function on the command line alone.
        known = {subject.field if subject is not None else "", *rest, *HIDDEN_FIELDS, "args"}
        yield from (f"{name}: Any = ..." for name in _spread(operation, model) if name not in known)
        yield "**others: Any"


def _own(operation: Operation[Any]) -> set[str]:
    return {one.encode_name for one in fields(operation.request_type)} - {operation.request_type.flattens[0]}


def _spread(operation: Operation[Any], model: type[Any]) -> Iterator[str]:
    """The fields of the model that an operation takes beside its own, and the short ways to say them."""
    short = [one.key for one in options_of(operation)] if model is Schedule else []
    named = [one.encode_name for one in fields(model)]
    return (name for name in dict.fromkeys([*short, *named]) if not keyword.iskeyword(name))


def _kind(info: mi.Type) -> str:
    if isinstance(info, mi.UnionType):
        return " | ".join(dict.fromkeys(" | ".join(_kind(one) for one in info.types).split(" | ")))
    if isinstance(info, mi.VarTupleType | mi.ListType):
        return f"Sequence[{_kind(info.item_type)}]"
    if isinstance(info, mi.StrType) and info.pattern in (AMOUNT_PATTERN, QUANTITY_PATTERN):
        return "str | float"
    return KINDS.get(type(info), "Any")


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
