"""Builds entries of Celery beat: their expressions, times and tasks."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.imports.cron_text import cron_problem, normalize_fields
from timewright.core.imports.report import Entry
from timewright.core.moments import format_duration

CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
# The order of the positional arguments of `crontab`.
_POSITIONAL = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_OPTIONS = ("queue", "priority", "expires")


class NotLiteral(ValueError):
    """An expression that is not a literal, or a call that this importer does not know."""


class CeleryCall(Struct, frozen=True):
    """A call such as `crontab(hour=3)`, not executed: its name and arguments."""

    name: str
    args: tuple[Any, ...]
    fields: dict[str, Any]


def read_expression(node: ast.expr) -> Any:
    """Return the value of a literal, a `timedelta`, or a call; nothing is executed."""
    if isinstance(node, ast.Dict):
        if any(key is None for key in node.keys):
            raise NotLiteral("** is only known when the program runs")
        keys = [read_expression(key) for key in node.keys if key is not None]
        return dict(zip(keys, (read_expression(value) for value in node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [read_expression(one) for one in node.elts]
    if isinstance(node, ast.Call):
        return _read_call(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = read_expression(node.left), read_expression(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise NotLiteral(f"{ast.unparse(node)[:60]} is only known when the program runs") from None


def _read_call(node: ast.Call) -> Any:
    name = ast.unparse(node.func).rpartition(".")[2]
    args = tuple(read_expression(one) for one in node.args)
    fields = {word.arg or "**": read_expression(word.value) for word in node.keywords}
    if name == "timedelta":
        try:
            return timedelta(*args, **fields)
        except (TypeError, OverflowError) as error:
            raise NotLiteral(f"not a timedelta: {error}") from None
    if name in ("crontab", "schedule", "solar", "clocked"):
        return CeleryCall(name, args, fields)
    if name in ("set", "list", "tuple", "range") and all(isinstance(one, int) for one in args) and args:
        return list(range(*args)) if name == "range" else list(args)
    raise NotLiteral(f"{name}(…) is only known when the program runs")


def add_schedule(entry: Entry, value: Any, *, zone: str, relative: bool = False) -> None:
    """Add the trigger of an entry."""
    if isinstance(value, CeleryCall) and value.name == "schedule":
        fields = {**dict(zip(("run_every", "relative"), value.args, strict=False)), **value.fields}
        relative = relative or bool(fields.get("relative"))
        value = fields.get("run_every")
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = timedelta(seconds=value)
    if isinstance(value, timedelta):
        interval = format_duration(value)
        trigger: dict[str, Any] = {"kind": "every", "interval": interval}
        note = "every, in steps from the creation of the schedule"
        if relative and value >= timedelta(seconds=1):
            trigger["anchor"] = "2000-01-01T00:00:00Z"
            note = "every, in steps from a full hour, because it is relative"
        entry.add_translated("schedule", interval, note, trigger=trigger)
    elif isinstance(value, CeleryCall) and value.name == "crontab":
        given = {**dict(zip(_POSITIONAL, value.args, strict=False)), **value.fields}
        add_crontab(entry, given, zone=zone, field="schedule")
    elif isinstance(value, CeleryCall):
        entry.drop_entry("schedule", value.name, f"Timewright has no {value.name} trigger")
    else:
        entry.drop_entry("schedule", value, "not a schedule that this importer knows")


def add_crontab(entry: Entry, given: Mapping[str, Any], *, zone: str, field: str) -> None:
    """Add a cron trigger from the fields of a Celery crontab, where all fields must match."""
    texts = [_field_text(given.get(name, "*")) for name in CRONTAB_FIELDS]
    expression, notes = normalize_fields(texts, and_days=True)
    if problem := cron_problem(expression, zone=zone):
        entry.drop_entry(field, " ".join(texts), problem)
        return
    trigger = {"kind": "cron", "expression": expression, "zone": zone}
    note = "; ".join([f"cron {expression}", *notes])
    entry.add_translated(field, " ".join(texts), note, trigger=trigger)
    entry.report_unknown_fields(given, CRONTAB_FIELDS, prefix=f"{field}.")


def add_task(entry: Entry, task: str, args: Any, kwargs: Any, options: Any, *, broker: str) -> None:
    """Add the target that sends the task, and report the options of the message."""
    entry.add_kept("task", task)
    payload = list(args) if args else dict(kwargs) if kwargs else None
    if args and kwargs:
        entry.drop_entry("args", list(args), "positional and keyword arguments together; give all by keyword")
        return
    if payload is not None:
        entry.add_kept("args" if args else "kwargs", payload, "the payload")
    sent: dict[str, Any] = {}
    for key, value in (options if isinstance(options, Mapping) else {}).items():
        if key == "expires" and hasattr(value, "total_seconds"):
            value = value.total_seconds()  # noqa: PLW2901 - the same value as a number
        if key in _OPTIONS and isinstance(value, str | int | float):
            entry.add_kept(f"options.{key}", value)
            sent[key] = value
        else:
            entry.report_lost(f"options.{key}", value, f"of a message, only {', '.join(_OPTIONS)} can be set")
    target: dict[str, Any] = {"kind": "publish", "to": "celery", "url": broker, "name": task}
    target |= {"payload": payload} if payload is not None else {}
    entry.definition |= {"target": {**target, **({"options": sent} if sent else {})}}
    policies = {"overlap": "allow", "catch_up": "last", "catch_up_window": None, "retry": {"max_attempts": 1}}
    note = "beat sends an overdue task once when it starts, and does not wait: catch_up: last, overlap: allow"
    entry.add_translated("(behaviour)", "", note, **policies)


def _field_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in sorted(value, key=str))
    return str(value).replace(" ", "")
