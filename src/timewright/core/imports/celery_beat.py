"""Reads the schedules of Celery beat: a Python file with `beat_schedule`, or a django-celery-beat dump.

A Python file is parsed, never executed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from timewright.core.imports.celery_django import django_entries
from timewright.core.imports.celery_schedules import (
    DEFAULT_BROKER,
    NotLiteral,
    add_schedule,
    add_task,
    read_expression,
)
from timewright.core.imports.report import Entry, Imported, ImportOptions, clean_name, collect, source_error

_RULE = "a Python file that assigns beat_schedule, or the JSON of `manage.py dumpdata django_celery_beat`"
_SCHEDULES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE", "TIME_ZONE")
_BROKERS = ("broker_url", "BROKER_URL", "CELERY_BROKER_URL")


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
        raise source_error(file, text, f"is not JSON: {error}", rule=_RULE, fix="dump it again") from None
    return django_entries(file, rows, zone=options.zone, broker=DEFAULT_BROKER)


def _from_python(file: str, text: str, options: ImportOptions) -> list[Entry]:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise source_error(
            f"{file}:{line}", text, f"is not Python: {error}", rule=_RULE, fix="correct it"
        ) from None
    assigned = _assignments(module)
    found = next((assigned[name] for name in _SCHEDULES if name in assigned), None)
    if not isinstance(found, ast.Dict):
        raise source_error(
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
            raise source_error(
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
        raise source_error(place, name, "has no task or no schedule", rule=rule, fix=fix)
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
