# ruff: noqa: INP001 - pages are no package; the folder is one only to import these files
"""Writes the stub of the resource methods from the list of operations: `.venv/bin/python -m docs.verbs`.

Resources find their methods at run time, which type checkers and editors cannot follow; they read the stub. A
test compares it with the operations.
"""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Any

from timewright.interfaces.python.resources import PLURALS
from timewright.interfaces.python.signatures import parameters_of
from timewright.operations import Operation, operations

FILE = (
    Path(__file__).resolve().parents[1]
    / "src"
    / "timewright"
    / "interfaces"
    / "python"
    / "resource_methods.pyi"
)

HEAD = '''# fmt: off
# ruff: noqa: A002, E501, I001, PYI021 - one method a line, its summary below it
"""The methods of every resource, for editors and type checkers. Written by docs/verbs.py."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypedDict
'''

# Parameters of the decorator itself, and fields that only an operation has.
NOT_IN_DECORATOR = frozenset({"name", "trigger", "dry_run", "revision", "force"})


def text() -> str:
    """The whole file."""
    resources = (_resource(noun, is_async=flag) for flag in (False, True) for noun in PLURALS)
    attributes = (_attributes(is_async=flag) for flag in (False, True))
    return "\n".join([HEAD + _answer_imports(), _schedule_fields(), *resources, *attributes])


def _answer_imports() -> str:
    """Import the answer types, by module."""
    types = {one.answer_type for one in operations if one.noun.partition(" ")[0] in PLURALS}
    modules = sorted({one.__module__ for one in types})
    names = {module: sorted(one.__name__ for one in types if one.__module__ == module) for module in modules}
    return "\n" + "".join(f"from {module} import {', '.join(names[module])}\n" for module in modules)


def _schedule_fields() -> str:
    """Write the fields of `@app.schedule` as a TypedDict."""
    fields = [one for one in parameters_of(operations["schedule put"]) if one.name not in NOT_IN_DECORATOR]
    lines = [f"    {one.name}: {one.type_name}\n" for one in fields]
    head = 'class ScheduleFields(TypedDict, total=False):\n    """The fields of `@app.schedule`."""\n\n'
    return "".join([head, "    args: Mapping[str, Any]\n", *lines])


def _resource(noun: str, *, is_async: bool) -> str:
    name = f"{'Async' if is_async else ''}{PLURALS[noun].capitalize()}"
    methods = [one for one in operations if one.noun and one.name.split()[0] == noun]
    return f"class {name}:\n" + "".join(_method(one, is_async=is_async) for one in methods)


def _attributes(*, is_async: bool) -> str:
    """Write the class with one attribute per resource, from which schedulers inherit their types."""
    prefix = "Async" if is_async else ""
    lines = [f"    {plural}: {prefix}{plural.capitalize()}\n" for plural in PLURALS.values()]
    return f"class {prefix}TypedResources:\n" + "".join(lines)


def _method(operation: Operation[Any], *, is_async: bool) -> str:
    name = "_".join(operation.name.split()[1:]).replace("-", "_")
    name = f"{name}_" if keyword.iskeyword(name) else name
    found = parameters_of(operation)
    texts = [f"{one.name}: {one.type_name}" + ("" if one.required else " = ...") for one in found]
    first = sum(one.by_position for one in found)
    keywords = ["*", *texts[first:]] if texts[first:] else []
    before = "async def" if is_async else "def"
    taken = ", ".join(["self", *texts[:first], *keywords])
    answer = operation.answer_type.__name__
    return f'    {before} {name}({taken}) -> {answer}:\n        """{operation.summary}"""\n'


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
