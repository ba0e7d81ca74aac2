"""Schedules as YAML: `schedule get` and `list` print what `schedule put --file` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from timewright.core.input.strict_yaml import read_yaml
from timewright.errors import InvalidInput
from timewright.interfaces.cli.data_input import MAX_FILE_BYTES, read_data, read_text
from timewright.operations import Operation, OperationContext, operations
from timewright.operations.context import in_transaction
from timewright.operations.schedules.write_order import sort_by_dependency

AS_DEFINITIONS = frozenset({"schedule get", "schedule list"})


def definitions_in(
    operation: Operation[Any], answer: Mapping[str, Any], context: OperationContext
) -> dict[str, Any]:
    """Return the definitions of the schedules in an answer: one mapping for `get`, a section for `list`."""
    is_one = operation.name == "schedule get"
    names = [answer["schedule"]["name"]] if is_one else [row["name"] for row in answer["schedules"]]
    if not names:
        return {"schedules": []}
    file: dict[str, Any] = read_yaml(operations["export"](context, {"schedules": names})["text"])
    found: dict[str, Any] = file["schedules"][0] if is_one else file
    return found


def read_schedules(name: str) -> list[dict[str, Any]]:
    """Return the schedules of a file, or of standard input for `-`: one mapping, a list, or `schedules:`."""
    data = read_data(
        read_text(name, "file", max_bytes=MAX_FILE_BYTES), field="file", max_bytes=MAX_FILE_BYTES
    )
    if isinstance(data, Mapping) and "schedules" in data:
        if set(data) != {"schedules"}:
            other = next(key for key in data if key != "schedules")
            raise InvalidInput(
                f"file {name} also has {other!r}",
                field="file",
                value=str(other),
                rule="schedule put writes schedules and nothing else",
                fix=f"timewright plan {name}, then timewright apply {name}",
            )
        data = data["schedules"]
    found: list[Any] = data if isinstance(data, list) and data else [data]
    names = [one.get("name") for one in found if isinstance(one, dict)]
    if len(names) < len(found):
        raise _not_schedules(name, "something other than a mapping")
    counts = Counter(str(one) for one in names if one is not None)
    if twice := next((one for one, count in counts.items() if count > 1), None):
        raise _not_schedules(name, f"the name {twice!r} twice")
    return [dict(one) for one in sort_by_dependency(found)] if len(found) > 1 else found


def perform_all(
    operation: Operation[Any], context: OperationContext, requests: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Perform the requests of a file, in one transaction on a store; a server performs them one by one."""

    def perform(inner: OperationContext) -> list[dict[str, Any]]:
        return [operation(inner, one) for one in requests]

    return perform(context) if len(requests) == 1 or context.remote else in_transaction(context, perform)


def _not_schedules(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"file {name} has {what}",
        field="file",
        rule="a mapping with the fields of a schedule, or a list of them with different names",
        fix="{name: report, every: 1h, note: hello}",
    )
