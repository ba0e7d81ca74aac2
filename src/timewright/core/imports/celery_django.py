"""Reads the JSON of `manage.py dumpdata django_celery_beat`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from timewright.core.imports.celery_schedules import CRONTAB_FIELDS, add_crontab, add_schedule, add_task
from timewright.core.imports.report import Entry, clean_name, source_error

_PERIODS = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
    "microseconds": timedelta(microseconds=1),
}
_RULE = "rows with model, pk and fields, as dumpdata writes them"
_PREFIX = "django_celery_beat."
_KINDS = ("interval", "crontab", "solar", "clocked")
_IGNORED = ("last_run_at", "total_run_count", "date_changed", "no_changes")
_MESSAGE = ("queue", "exchange", "routing_key", "priority", "expire_seconds", "headers")
_KNOWN = (*_KINDS, *_IGNORED, *_MESSAGE, "name", "task", "args", "kwargs", "enabled", "one_off", "start_time")


def django_entries(file: str, rows: Any, *, zone: str, broker: str) -> list[Entry]:
    """Return the periodic tasks of a dump."""
    if not isinstance(rows, list) or not all(
        isinstance(row, Mapping) and isinstance(row.get("fields"), Mapping) and "model" in row for row in rows
    ):
        raise source_error(
            file, rows, "is not a dump", rule=_RULE, fix="manage.py dumpdata django_celery_beat"
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
        fix = f"pause it after `apply`: timewright schedule pause {entry.name}"
        entry.lost("enabled", False, f"a pause is not part of a definition; {fix}")
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
