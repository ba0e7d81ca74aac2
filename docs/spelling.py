# ruff: noqa: INP001 - pages are no package; the folder is one only to import these two files
"""Types, defaults and tables in plain words, for the generated pages."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec import inspect as kinds
from msgspec.structs import FieldInfo, fields

from timewright.core.input.encoding import to_json_value

WORDS: dict[type[kinds.Type], str] = {
    kinds.StrType: "text",
    kinds.IntType: "whole number",
    kinds.FloatType: "number",
    kinds.BoolType: "true or false",
    kinds.TimeDeltaType: "duration",
    kinds.DateTimeType: "instant",
    kinds.DateType: "day",
    kinds.TimeType: "time of day",
    kinds.DictType: "object",
    kinds.NoneType: "nothing",
}


def table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table, each cell on one line."""
    cells = [[flat(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *cells])


def matrix(found: Mapping[Any, StrEnum], states: type[StrEnum], events: type[StrEnum]) -> str:
    """A transition table: a row a state, a column an event, in the cell the state after it."""
    rows = [(code(state), *(str(found.get((state, event), "")) for event in events)) for state in states]
    return table("", *(code(event) for event in events), rows=rows)


def field_table(cls: type[Struct], *, link: bool = True) -> str:
    """Its own fields, then those of its family; one that only gathers another model's fields is left out."""
    gathers = (getattr(cls, "flattens", None) or ("",))[0]
    own = vars(cls).get("__annotations__", {})
    listed = sorted((f for f in fields(cls) if f.name != gathers), key=lambda f: f.name not in own)
    rows = [(code(f.encode_name), kind(f.type, link=link), default(f)) for f in listed]
    return f"\n\n{table('field', 'type', 'default', rows=rows)}" if rows else ""


def part(cls: type[Struct]) -> str:
    """A section about one struct."""
    return f"### {title(cls)}\n\n{first(cls)}{field_table(cls)}"


def parts(whole: type[Struct]) -> Iterator[type[Struct]]:
    """Every struct that this one is made of, each once."""
    waiting, seen = [whole], {whole}
    while waiting:
        new = [c for f in fields(waiting.pop(0)) for c in _structs(kinds.type_info(f.type)) if c not in seen]
        yield from dict.fromkeys(new)
        waiting += dict.fromkeys(new)
        seen.update(new)


def kind(type_: Any, *, link: bool = True) -> str:
    """A type in plain words."""
    info = type_ if isinstance(type_, kinds.Type) else kinds.type_info(type_)
    if isinstance(info, kinds.UnionType):
        return " or ".join(kind(one, link=link) for one in info.types)
    if isinstance(info, kinds.StructType):
        return f"[{title(info.cls)}](#{slug(title(info.cls))})" if link else code(title(info.cls))
    if isinstance(info, kinds.EnumType):
        return " · ".join(code(member.value) for member in info.cls)
    if isinstance(info, kinds.LiteralType):
        return " · ".join(map(code, info.values))
    if isinstance(info, kinds.VarTupleType | kinds.ListType):
        return f"list of {kind(info.item_type, link=link)}"
    return WORDS.get(type(info), "anything") + _bounds(info)


def default(field: FieldInfo) -> str:
    """What holds when a field is left out."""
    if field.required:
        return "*required*"
    value = to_json_value(field.default_factory() if field.default is NODEFAULT else field.default)
    if isinstance(value, dict):
        return ", ".join(f"{name} `{_spelled(one)}`" for name, one in value.items() if one is not None) or "–"
    return code(_spelled(value)) if value not in (None, "", []) else "–"


def field_sentences(cls: type[Struct]) -> dict[str, str]:
    """The text that follows each field in the source."""
    (struct,) = (node for node in ast.parse(inspect.getsource(cls)).body if isinstance(node, ast.ClassDef))
    return {
        ast.unparse(field.target): str(ast.literal_eval(text.value))
        for field, text in zip(struct.body, struct.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def title(cls: type[Struct]) -> str:
    """What a struct is called where it is written: its tag, or its own name."""
    return str(cls.__struct_config__.tag or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower())


def first(thing: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").splitlines()[0]


def slug(text: str) -> str:
    """What a heading is linked by."""
    return text.replace(" ", "-")


def code(text: object) -> str:
    """A word as it is written."""
    return f"`{text}`"


def flat(text: str) -> str:
    """The same on one line."""
    return " ".join(text.split())


def _structs(info: kinds.Type) -> Iterator[type[Struct]]:
    if isinstance(info, kinds.StructType):
        yield info.cls
    for inner in (*getattr(info, "types", ()), getattr(info, "item_type", None)):
        if inner is not None:
            yield from _structs(inner)


def _bounds(info: kinds.Type) -> str:
    low, high, unit = getattr(info, "ge", None), getattr(info, "le", None), ""
    if isinstance(info, kinds.StrType):
        low, high, unit = info.min_length, info.max_length, " characters"
    if high is None:
        return "" if low is None else f" ({low} or more{unit})"
    return f" (at most {high}{unit})" if low is None else f" ({low} to {high}{unit})"


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "…"))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
