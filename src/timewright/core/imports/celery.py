"""Reads the schedules of Celery beat: a Python file with `beat_schedule`, or a django-celery-beat dump.

A Python file is parsed, never executed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.core.imports.cron_text import cron_problem, normalize_fields
from timewright.core.imports.report import Entry, Imported, ImportOptions, clean_name, collect
from timewright.core.input.input_errors import input_error
from timewright.core.moments import format_duration

_RULE = "a Python file that assigns beat_schedule, or the JSON of `manage.py dumpdata django_celery_beat`"
_SCHEDULES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE", "TIME_ZONE")
_BROKERS = ("broker_url", "BROKER_URL", "CELERY_BROKER_URL")
CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
# The order of the positional arguments of `crontab`.
_POSITIONAL = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
DEFAULT_BROKER = "redis://localhost:6379/0"
_OPTIONS = ("queue", "priority", "expires")
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
    return django_entries(file, rows, zone=options.zone, broker=DEFAULT_BROKER)


def _from_python(file: str, text: str, options: ImportOptions) -> list[Entry]:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise input_error(
            f"{file}:{line}", text, f"is not Python: {error}", rule=_RULE, fix="correct it"
        ) from None
    assigned = _assignments(module)
    found = next((assigned[name] for name in _SCHEDULES if name in assigned), None)
    if not isinstance(found, ast.Dict):
        raise input_error(
            file,
            text,
            "assigns no dictionary to beat_schedule",
            rule=_RULE,
            fix="app.conf.beat_schedule = {…}",
        )
    zone = _literal(next((assigned[name] for name in _ZONES if name in assigned), None)) or options.zone
    broker = _literal(next((assigned[name] for name in _BROKERS if name in assigned), None))
    entries = [_settings(file, zone=zone, is_zone_given=zone != options.zone, broker=broker)]
    for key, value in zip(found.keys, found.values, strict=True):
        place = f"{file}:{value.lineno}"
        name = _literal(key)
        if not name or not isinstance(value, ast.Dict):
            raise input_error(
                place,
                ast.unparse(value)[:60],
                "is not an entry",
                rule="a name and a dictionary",
                fix="'poll': {'task': 'app.poll', 'schedule': 60.0}",
            )
        entries.append(_entry(name, value, place, zone=zone, broker=broker_without_password(broker)))
    return entries


def _settings(file: str, *, zone: str, is_zone_given: bool, broker: str) -> Entry:
    entry = Entry(file.rpartition("/")[2], place=file)
    entry.is_lost = True
    note = (
        "the zone of crontab schedules" if is_zone_given else "the file names no timezone; Celery takes UTC"
    )
    (entry.kept if is_zone_given else entry.translated)("timezone", zone, note)
    if not broker:
        entry.lose_setting("broker_url", f"not in the file; {DEFAULT_BROKER} is used, change target.url")
    elif broker_without_password(broker) != broker:
        note = "its password is not copied; store it as a secret, and set options.password: secret://NAME"
        entry.lost("broker_url", broker_without_password(broker), note)
    else:
        entry.kept("broker_url", broker)
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
                entry.lose_entry(key, ast.unparse(value)[:60], str(error))
                return entry
            entry.lost(key, ast.unparse(value)[:60], str(error))
            if key in ("args", "kwargs"):
                entry.is_lost = True
    if not isinstance(values.get("task"), str) or "schedule" not in values:
        rule, fix = "task and schedule", "{'task': 'app.poll', 'schedule': 60.0}"
        raise input_error(place, name, "has no task or no schedule", rule=rule, fix=fix)
    add_schedule(entry, values["schedule"], zone=zone, relative=bool(values.get("relative")))
    options = values.get("options") or {}
    add_task(entry, values["task"], values.get("args"), values.get("kwargs"), options, broker=broker)
    if "relative" in values:
        entry.translated("relative", values["relative"], "anchor of the interval")
    entry.lose_unknown(values, ("task", "schedule", "args", "kwargs", "options", "relative"))
    return entry


def _assignments(module: ast.Module) -> dict[str, ast.expr]:
    """Return what is assigned to names, attributes and keywords of `conf.update(…)`, by the last name."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                found[str(getattr(target, "attr", None) or getattr(target, "id", ""))] = node.value
        elif isinstance(node, ast.Call) and re.search(
            r"\.update$|^Celery$|\.Celery$", ast.unparse(node.func)
        ):
            found |= {word.arg: word.value for word in node.keywords if word.arg}
            if "broker" in found:
                found.setdefault("broker_url", found["broker"])
    return found


def _literal(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# ------------------------------------------------------------------------- a dump of django-celery-beat


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
    settings.lose_setting("broker_url", f"a dump does not name it; {broker} is used, change target.url")
    entries = [settings]
    for (model, key), fields in tables.items():
        place = f"{file} {model} {key}"
        if model == "periodictask":
            entries.append(_task(fields, tables, place, zone=zone, broker=broker))
        elif model not in ("periodictasks", *(f"{kind}schedule" for kind in _KINDS)):
            entry = Entry(model, place=place)
            entry.lose_entry("model", model, "not a model of django-celery-beat")
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
        entry.lose_entry(kind or "schedule", fields.get(kind), "its schedule is not in the dump")
        return entry
    _add_schedule(entry, kind, row, zone=zone)
    options = {key: fields[key] for key in _MESSAGE if fields.get(key) not in (None, "", "{}")}
    if "expire_seconds" in options:
        options["expires"] = options.pop("expire_seconds")
    args, kwargs = _json(entry, "args", fields), _json(entry, "kwargs", fields)
    add_task(entry, str(fields.get("task", "")), args, kwargs, options, broker=broker)
    if fields.get("description"):
        entry.kept("description", fields["description"], description=str(fields["description"]))
    if fields.get("one_off"):
        entry.translated("one_off", True, "max_runs: 1", max_runs=1)
    if fields.get("start_time"):
        entry.kept("start_time", fields["start_time"], "start_at", start_at=fields["start_time"])
    if fields.get("expires"):
        entry.kept("expires", fields["expires"], "end_at", end_at=fields["expires"])
    if fields.get("enabled") is False:
        entry.lose_pause("enabled", False)
    for key in ("last_run_at", "total_run_count"):
        if fields.get(key):
            entry.lost(key, fields[key], "history is not imported; what was due before is not run")
    entry.lose_unknown(fields, (*_KNOWN, "description", "expires"))
    return entry


def _add_schedule(entry: Entry, kind: str, row: Mapping[str, Any], *, zone: str) -> None:
    if kind == "interval":
        every, period = row.get("every"), row.get("period")
        if not isinstance(every, int) or period not in _PERIODS:
            entry.lose_entry("interval", dict(row), f"not a number of {', '.join(_PERIODS)}")
            return
        add_schedule(entry, every * _PERIODS[period], zone=zone)
        entry.lose_unknown(row, ("every", "period"), prefix="interval.")
    elif kind == "crontab":
        fields = {key: row.get(key, "*") for key in CRONTAB_FIELDS}
        add_crontab(entry, fields, zone=str(row.get("timezone") or zone), field="crontab")
        entry.lose_unknown(row, (*CRONTAB_FIELDS, "timezone"), prefix="crontab.")
    elif kind == "clocked":
        at = row.get("clocked_time")
        entry.kept("clocked", at, "once", trigger={"kind": "once", "at": at})
    else:
        entry.lose_entry(kind, dict(row), "Timewright has no solar trigger")


def _json(entry: Entry, field: str, fields: Mapping[str, Any]) -> Any:
    text = fields.get(field) or ""
    try:
        return json.loads(text) if isinstance(text, str) and text else text or None
    except ValueError:
        entry.lose_entry(field, text, "not JSON")
        return None


# -------------------------------------------------------------------------------------------- schedules


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
        entry.translated("schedule", interval, note, trigger=trigger)
    elif isinstance(value, CeleryCall) and value.name == "crontab":
        given = {**dict(zip(_POSITIONAL, value.args, strict=False)), **value.fields}
        add_crontab(entry, given, zone=zone, field="schedule")
    elif isinstance(value, CeleryCall):
        entry.lose_entry("schedule", value.name, f"Timewright has no {value.name} trigger")
    else:
        entry.lose_entry("schedule", value, "not a schedule that this importer knows")


def add_crontab(entry: Entry, given: Mapping[str, Any], *, zone: str, field: str) -> None:
    """Add a cron trigger from the fields of a Celery crontab, where all fields must match."""
    texts = [_field_text(given.get(name, "*")) for name in CRONTAB_FIELDS]
    expression, notes = normalize_fields(texts, and_days=True)
    if problem := cron_problem(expression, zone=zone):
        entry.lose_entry(field, " ".join(texts), problem)
        return
    trigger = {"kind": "cron", "expression": expression, "zone": zone}
    note = "; ".join([f"cron {expression}", *notes])
    entry.translated(field, " ".join(texts), note, trigger=trigger)
    entry.lose_unknown(given, CRONTAB_FIELDS, prefix=f"{field}.")


def add_task(entry: Entry, task: str, args: Any, kwargs: Any, options: Any, *, broker: str) -> None:
    """Add the target that sends the task, and report the options of the message."""
    entry.kept("task", task)
    payload = list(args) if args else dict(kwargs) if kwargs else None
    if args and kwargs:
        entry.lose_entry("args", list(args), "positional and keyword arguments together; give all by keyword")
        return
    if payload is not None:
        entry.kept("args" if args else "kwargs", payload, "the payload")
    sent: dict[str, Any] = {}
    for key, value in (options if isinstance(options, Mapping) else {}).items():
        if key == "expires" and hasattr(value, "total_seconds"):
            value = value.total_seconds()  # noqa: PLW2901 - the same value as a number
        if key in _OPTIONS and isinstance(value, str | int | float):
            entry.kept(f"options.{key}", value)
            sent[key] = value
        else:
            entry.lost(f"options.{key}", value, f"of a message, only {', '.join(_OPTIONS)} can be set")
    target: dict[str, Any] = {"kind": "publish", "to": "celery", "url": broker, "name": task}
    target |= {"payload": payload} if payload is not None else {}
    entry.definition |= {"target": {**target, **({"options": sent} if sent else {})}}
    policies = {"overlap": "allow", "catch_up": "last", "catch_up_window": None, "retry": {"max_attempts": 1}}
    note = "beat sends an overdue task once when it starts, and does not wait: catch_up: last, overlap: allow"
    entry.translated("(behaviour)", "", note, **policies)


def _field_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in sorted(value, key=str))
    return str(value).replace(" ", "")
