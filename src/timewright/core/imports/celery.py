"""Reads the schedules of Celery beat: a Python file with `beat_schedule`, or a django-celery-beat dump.

A Python file is parsed, never executed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from timewright.core.imports.celery_entries import (
    CRONTAB_FIELDS,
    NotLiteral,
    add_crontab,
    add_schedule,
    add_task,
    read_expression,
)
from timewright.core.imports.report import Entry, Imported, ImportOptions, clean_name, collect
from timewright.core.input.input_errors import input_error

_RULE = "a Python file that assigns beat_schedule, or the JSON of `manage.py dumpdata django_celery_beat`"
_SCHEDULES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE", "TIME_ZONE")
_BROKERS = ("broker_url", "BROKER_URL", "CELERY_BROKER_URL")
DEFAULT_BROKER = "redis://localhost:6379/0"
_PERIODS = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
    "microseconds": timedelta(microseconds=1),
}
_DUMP_RULE = "rows with model, pk and fields, as dumpdata writes them"
_PREFIX = "django_celery_beat."
_KINDS = ("interval", "crontab", "solar", "clocked")
_IGNORED = ("last_run_at", "total_run_count", "date_changed", "no_changes")
_MESSAGE = ("queue", "exchange", "routing_key", "priority", "expire_seconds", "headers")
_KNOWN = (*_KINDS, *_IGNORED, *_MESSAGE, "name", "task", "args", "kwargs", "enabled", "one_off", "start_time")


def import_celery(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import entries of Celery beat; each becomes a schedule that sends the same task to the broker."""
    entries: list[Entry] = []
    for file, text in files.items():
        if text.lstrip()[:1] in ("[", "{"):
            entries += _from_dump(file, text, options)
        else:
            entries += _from_python(file, text, options)
    return collect(entries)


def _from_dump(file: str, text: str, options: ImportOptions) -> list[Entry]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise input_error(file, text, f"is not JSON: {error}", rule=_RULE, fix="dump it again") from None
    return django_entries(file, rows, zone=_default_zone(options), broker=DEFAULT_BROKER)


def _from_python(file: str, text: str, options: ImportOptions) -> list[Entry]:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise input_error(
            f"{file}:{line}", text, f"is not Python: {error}", rule=_RULE, fix="correct it"
        ) from None
    pairs = list(_pairs(module))
    if not any(name is not None for name, _ in pairs):
        raise input_error(
            file,
            text,
            "assigns no dictionary to beat_schedule",
            rule=_RULE,
            fix="app.conf.beat_schedule = {…}",
        )
    assigned = _assignments(module)
    zone = _literal(next((assigned[name] for name in _ZONES if name in assigned), None))
    broker = _literal(next((assigned[name] for name in _BROKERS if name in assigned), None))
    settings = _settings(file, zone=zone, default=_default_zone(options), broker=broker)
    address, used_zone = broker_without_password(broker), zone or _default_zone(options)
    return [settings, *(_from_pair(one, file, zone=used_zone, broker=address) for one in pairs)]


def _default_zone(options: ImportOptions) -> str:
    """Return the zone of crontabs that name none: Celery takes UTC, not that of the machine."""
    return options.zone if options.is_zone_given else "UTC"


def _pairs(module: ast.Module) -> Iterator[tuple[str | None, ast.expr]]:
    """Return what a file adds to beat_schedule: a name, None if it is not known, and the value."""
    nodes = [one for one in ast.walk(module) if isinstance(one, ast.stmt | ast.Call)]
    for node in sorted(nodes, key=lambda one: (one.lineno, one.col_offset)):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript) and _last_name(target.value) in _SCHEDULES:
                    yield _literal(target.slice) or None, node.value
                elif _last_name(target) in _SCHEDULES:
                    yield from _dictionary(node.value)
        elif isinstance(node, ast.Call) and _last_name(node.func) == "add_periodic_task":
            given = next((_literal(word.value) for word in node.keywords if word.arg == "name"), "")
            yield given or ast.unparse(node.args[1] if len(node.args) > 1 else node)[:60], node
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update"
        ):
            added = [pair for one in _arguments(node) for pair in _dictionary(one)]
            is_schedule = _last_name(node.func.value) in _SCHEDULES
            for name, value in added:
                if is_schedule:
                    yield name, value
                elif name in _SCHEDULES:
                    yield from _dictionary(value)


def _arguments(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of `update`, those by keyword as one dictionary."""
    words = [word for word in call.keywords if word.arg]
    named = ast.Dict(keys=[ast.Constant(word.arg) for word in words], values=[word.value for word in words])
    return [*call.args, named] if words else list(call.args)


def _dictionary(node: ast.expr) -> list[tuple[str | None, ast.expr]]:
    """Return the pairs of `{…}` or `dict(…)`; of anything else one pair without a name."""
    if isinstance(node, ast.Call) and _last_name(node.func) == "dict" and not node.args:
        return [(word.arg, word.value) for word in node.keywords]
    if not isinstance(node, ast.Dict):
        return [(None, node)]
    return [(_literal(key) or None, value) for key, value in zip(node.keys, node.values, strict=True)]


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _from_pair(pair: tuple[str | None, ast.expr], file: str, *, zone: str, broker: str) -> Entry:
    name, node = pair
    place = f"{file}:{node.lineno}"
    if name is not None and isinstance(node, ast.Dict):
        return _entry(name, node, place, zone=zone, broker=broker)
    text = ast.unparse(node)[:60]
    entry = Entry(clean_name(name or text, fallback="task"), place=place)
    if isinstance(node, ast.Call) and _last_name(node.func) == "add_periodic_task":
        fix = "write it as an entry of beat_schedule"
        entry.drop_entry(
            "add_periodic_task", text, f"the name of its task is only known when the program runs; {fix}"
        )
    else:
        entry.drop_entry("beat_schedule", text, f"{text} is only known when the program runs")
    return entry


def _settings(file: str, *, zone: str, default: str, broker: str) -> Entry:
    entry = Entry(file.rpartition("/")[2], place=file)
    entry.is_report_only = True
    if zone:
        entry.add_kept("timezone", zone, "the zone of crontab schedules")
    else:
        entry.add_translated("timezone", default, "the file names no timezone; Celery takes UTC")
    if not broker:
        entry.report_missing_setting(
            "broker_url", f"not in the file; {DEFAULT_BROKER} is used, change target.url"
        )
    elif broker_without_password(broker) != broker:
        note = "its password is not copied; store it as a secret, and set options.password: secret://NAME"
        entry.report_lost("broker_url", broker_without_password(broker), note)
    else:
        entry.add_kept("broker_url", broker)
    return entry


def broker_without_password(broker: str) -> str:
    """Return the address of a broker without its user and password; a default if there is none."""
    if not broker:
        return DEFAULT_BROKER
    parts = urlsplit(broker)
    return broker.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if "@" in parts.netloc else broker


def _entry(name: str, node: ast.Dict, place: str, *, zone: str, broker: str) -> Entry:
    entry = Entry(clean_name(name, fallback="task"), place=place)
    fields = {_literal(key) or "**": value for key, value in zip(node.keys, node.values, strict=True)}
    values: dict[str, Any] = {}
    for key, value in fields.items():
        try:
            values[key] = read_expression(value)
        except NotLiteral as error:
            if key in ("task", "schedule"):
                entry.drop_entry(key, ast.unparse(value)[:60], str(error))
                return entry
            entry.report_lost(key, ast.unparse(value)[:60], str(error))
            if key in ("args", "kwargs"):
                entry.is_lost = True
    if not isinstance(values.get("task"), str) or "schedule" not in values:
        rule, fix = "task and schedule", "{'task': 'app.poll', 'schedule': 60.0}"
        raise input_error(place, name, "has no task or no schedule", rule=rule, fix=fix)
    add_schedule(entry, values["schedule"], zone=zone, relative=bool(values.get("relative")))
    options = values.get("options") or {}
    add_task(entry, values["task"], values.get("args"), values.get("kwargs"), options, broker=broker)
    if "relative" in values:
        entry.add_translated("relative", values["relative"], "anchor of the interval")
    entry.report_unknown_fields(values, ("task", "schedule", "args", "kwargs", "options", "relative"))
    return entry


def _assignments(module: ast.Module) -> dict[str, ast.expr]:
    """Return what is assigned to names, attributes and keywords of `conf.update(…)`, by the last name."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                found[_last_name(target)] = node.value
        elif isinstance(node, ast.Call) and re.search(
            r"\.update$|^Celery$|\.Celery$", ast.unparse(node.func)
        ):
            found |= {name: value for one in _arguments(node) for name, value in _dictionary(one) if name}
            if "broker" in found:
                found.setdefault("broker_url", found["broker"])
    return found


def _literal(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def django_entries(file: str, rows: Any, *, zone: str, broker: str) -> list[Entry]:
    """Return the periodic tasks of a dump."""
    if not isinstance(rows, list) or not all(
        isinstance(row, Mapping) and isinstance(row.get("fields"), Mapping) and "model" in row for row in rows
    ):
        raise input_error(
            file, rows, "is not a dump", rule=_DUMP_RULE, fix="manage.py dumpdata django_celery_beat"
        )
    tables: dict[tuple[str, Any], Mapping[str, Any]] = {}
    for row in rows:
        tables[str(row["model"]).removeprefix(_PREFIX), row.get("pk")] = row["fields"]
    settings = Entry(file.rpartition("/")[2], place=file)
    settings.report_missing_setting(
        "broker_url", f"a dump does not name it; {broker} is used, change target.url"
    )
    entries = [settings]
    for (model, key), fields in tables.items():
        place = f"{file} {model} {key}"
        if model == "periodictask":
            entries.append(_task(fields, tables, place, zone=zone, broker=broker))
        elif model not in ("periodictasks", *(f"{kind}schedule" for kind in _KINDS)):
            entry = Entry(model, place=place)
            entry.drop_entry("model", model, "not a model of django-celery-beat")
            entries.append(entry)
    return entries


def _task(
    fields: Mapping[str, Any],
    tables: Mapping[tuple[str, Any], Mapping[str, Any]],
    place: str,
    *,
    zone: str,
    broker: str,
) -> Entry:
    entry = Entry(clean_name(str(fields.get("name", "")), fallback="task"), place=place)
    kind = next((one for one in _KINDS if fields.get(one) is not None), "")
    row = tables.get((f"{kind}schedule", fields.get(kind)))
    if not kind or row is None:
        entry.drop_entry(kind or "schedule", fields.get(kind), "its schedule is not in the dump")
        return entry
    _add_schedule(entry, kind, row, zone=zone)
    options = {key: fields[key] for key in _MESSAGE if fields.get(key) not in (None, "", "{}")}
    if "expire_seconds" in options:
        options["expires"] = options.pop("expire_seconds")
    args, kwargs = _json(entry, "args", fields), _json(entry, "kwargs", fields)
    add_task(entry, str(fields.get("task", "")), args, kwargs, options, broker=broker)
    if fields.get("description"):
        entry.add_kept("description", fields["description"], description=str(fields["description"]))
    if fields.get("one_off"):
        entry.add_translated("one_off", True, "max_runs: 1", max_runs=1)
    if fields.get("start_time"):
        entry.add_kept("start_time", fields["start_time"], "start_at", start_at=fields["start_time"])
    if fields.get("expires"):
        entry.add_kept("expires", fields["expires"], "end_at", end_at=fields["expires"])
    if fields.get("enabled") is False:
        entry.report_pause("enabled", False)
    for key in ("last_run_at", "total_run_count"):
        if fields.get(key):
            entry.report_lost(key, fields[key], "history is not imported; what was due before is not run")
    entry.report_unknown_fields(fields, (*_KNOWN, "description", "expires"))
    return entry


def _add_schedule(entry: Entry, kind: str, row: Mapping[str, Any], *, zone: str) -> None:
    if kind == "interval":
        every, period = row.get("every"), row.get("period")
        if not isinstance(every, int) or period not in _PERIODS:
            entry.drop_entry("interval", dict(row), f"not a number of {', '.join(_PERIODS)}")
            return
        add_schedule(entry, every * _PERIODS[period], zone=zone)
        entry.report_unknown_fields(row, ("every", "period"), prefix="interval.")
    elif kind == "crontab":
        fields = {key: row.get(key, "*") for key in CRONTAB_FIELDS}
        add_crontab(entry, fields, zone=str(row.get("timezone") or zone), field="crontab")
        entry.report_unknown_fields(row, (*CRONTAB_FIELDS, "timezone"), prefix="crontab.")
    elif kind == "clocked":
        at = row.get("clocked_time")
        entry.add_kept("clocked", at, "once", trigger={"kind": "once", "at": at})
    else:
        entry.drop_entry(kind, dict(row), "Timewright has no solar trigger")


def _json(entry: Entry, field: str, fields: Mapping[str, Any]) -> Any:
    text = fields.get(field) or ""
    try:
        return json.loads(text) if isinstance(text, str) and text else text or None
    except ValueError:
        entry.drop_entry(field, text, "not JSON")
        return None
