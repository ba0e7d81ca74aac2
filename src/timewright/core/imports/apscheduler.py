"""Reads the jobs of APScheduler 3 and 4 from the JSON of our export script; nothing is unpickled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from timewright.core.imports.cron_text import WEEKDAYS, cron_problem, weekday_names
from timewright.core.imports.report import (
    Entry,
    Imported,
    ImportOptions,
    clean_name,
    collect,
    duration_text,
)
from timewright.core.input.input_errors import input_error

FORMAT = "timewright-apscheduler"
_RULE = "the JSON of the export script: timewright import apscheduler --script > apscheduler_export.py"
_FIX = "python apscheduler_export.py myapp.jobs:scheduler > jobs.json"
_NTH_DAY = re.compile(r"(1st|2nd|3rd|4th|5th|last) (\w{3})")
_WEEKDAY_PART = re.compile(r"(\*|\d|[a-z]{3})(?:-(\d|[a-z]{3}))?(?:/(\d+))?")
_BOUNDS = {"start_date": "start_at", "start_time": "start_at", "end_date": "end_at", "end_time": "end_at"}
_FREQUENCIES = {"years": "YEARLY", "months": "MONTHLY", "weeks": "WEEKLY", "days": "DAILY"}


class _Untranslatable(ValueError):
    """A trigger that Timewright cannot express."""


def import_apscheduler(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import the jobs; each calls the same function by its path."""
    entries = []
    for file, text in files.items():
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise input_error(file, text, f"is not JSON: {error}", rule=_RULE, fix=_FIX) from None
        jobs = data.get("jobs") if isinstance(data, Mapping) and data.get("format") == FORMAT else None
        if not isinstance(jobs, list) or not all(
            isinstance(job, Mapping) and isinstance(job.get("trigger"), Mapping) for job in jobs
        ):
            raise input_error(file, text, "is not an export of APScheduler", rule=_RULE, fix=_FIX)
        if data.get("version") != 1:
            raise input_error(
                f"{file} version", data.get("version"), "is not known", rule="version 1", fix=_FIX
            )
        entries += [_import_job(job, f"{file} jobs[{number}]", options) for number, job in enumerate(jobs)]
    return collect(entries)


def _import_job(job: Mapping[str, Any], place: str, options: ImportOptions) -> Entry:
    entry = Entry(clean_name(str(job.get("id", "")), fallback="job"), place=place)
    trigger = job["trigger"]
    try:
        entry.definition["trigger"] = _triggers(trigger, entry, options)
    except _Untranslatable as error:
        entry.drop_entry(
            "trigger", trigger.get("text") or trigger.get("fields") or trigger.get("type"), str(error)
        )
    _add_bounds(entry, trigger)
    _add_function(entry, job)
    _add_policies(entry, job)
    if job.get("id"):
        entry.add_kept("id", job["id"])
    if job.get("name"):
        entry.add_kept("name", job["name"], description=str(job["name"]))
    if job.get("metadata"):
        entry.add_kept("metadata", job["metadata"], metadata=dict(job["metadata"]))
    if job.get("paused"):
        entry.report_pause("paused", True)
    if job.get("executor") not in (None, "default", "threadpool"):
        entry.report_lost(
            "executor", job["executor"], "set isolation of the function: thread, loop or process"
        )
    known = ("id", "name", "function", "args", "kwargs", "trigger", "misfire_grace_time", "coalesce")
    entry.report_unknown_fields(job, (*known, "executor", "max_instances", "paused", "jitter", "metadata"))
    return entry


def _triggers(trigger: Mapping[str, Any], entry: Entry, options: ImportOptions) -> Any:
    kind = str(trigger.get("type"))
    if kind == "OrTrigger":
        entry.add_translated("trigger", kind, "a list of triggers")
        return [_triggers(one, entry, options) for one in trigger.get("triggers", ())]
    build = _BUILDERS.get(kind)
    if build is None:
        raise _Untranslatable(f"Timewright has no {kind}")
    found, shown = build(trigger, options)
    entry.add_translated("trigger", shown, found.get("expression") or found["kind"])
    known = ("type", "timezone", "fields", "seconds", "run_date", "run_time", "jitter", *_BOUNDS)
    entry.report_unknown_fields(trigger, known, prefix="trigger.")
    return found


def _cron(trigger: Mapping[str, Any], options: ImportOptions) -> tuple[dict[str, Any], str]:
    fields = {name: str(text) for name, text in dict(trigger.get("fields") or {}).items()}
    if fields.get("week", "*") != "*":
        raise _Untranslatable("weeks of the year have no cron field")
    day, weekday = fields.get("day", "*"), _weekday(fields.get("day_of_week", "*"))
    nth = [_NTH_DAY.fullmatch(part) for part in day.split(",")]
    if any(nth):
        if not all(nth) or weekday != "*":
            raise _Untranslatable("a weekday of the month cannot be combined with other days")
        parts = [f"{one[2].upper()}#{'L' if one[1] == 'last' else one[1][0]}" for one in nth if one]
        day, weekday = "*", ",".join(parts)
    day = day.replace("last", "L")
    both = day != "*" and weekday != "*"
    rest = [fields.get(name, default) for name, default in (("minute", "0"), ("hour", "0"))]
    found = [*rest, day, fields.get("month", "*").upper(), f"+{weekday}" if both else weekday]
    second, year = fields.get("second", "0"), fields.get("year", "*")
    if second != "0" or year != "*":
        found = [second, *found] + ([year] if year != "*" else [])
    expression = " ".join(found)
    zone = str(trigger.get("timezone") or options.zone)
    if problem := cron_problem(expression, zone=zone):
        raise _Untranslatable(problem)
    shown = ", ".join(f"{name}={text}" for name, text in fields.items() if text != "*")
    return {"kind": "cron", "expression": expression, "zone": zone}, shown


def _weekday(text: str) -> str:
    """Return weekdays as names; a number counts from Monday, which is 0."""
    days: list[int] = []
    for part in text.lower().split(","):
        match = _WEEKDAY_PART.fullmatch(part)
        if match is None:
            raise _Untranslatable(f"{text} is not a weekday")
        first = 0 if match[1] == "*" else _day_number(match[1])
        last = 6 if match[1] == "*" else _day_number(match[2] or match[1])
        days += range(first, last + 1, int(match[3] or 1))
    return weekday_names(days)


def _day_number(text: str) -> int:
    if text.isdigit() and int(text) < 7:
        return int(text)
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    raise _Untranslatable(f"{text} is not a weekday")


def _interval(trigger: Mapping[str, Any], _options: ImportOptions) -> tuple[dict[str, Any], str]:
    seconds = trigger.get("seconds")
    if not isinstance(seconds, int | float) or seconds < 1:
        raise _Untranslatable("intervals are at least 1s")
    anchor = trigger.get("start_date") or trigger.get("start_time")
    found = {"kind": "every", "interval": duration_text(seconds)}
    return found | ({"anchor": anchor} if anchor else {}), found["interval"]


def _date(trigger: Mapping[str, Any], _options: ImportOptions) -> tuple[dict[str, Any], str]:
    at = str(trigger.get("run_date") or trigger.get("run_time"))
    return {"kind": "once", "at": at}, at


def _calendar_interval(trigger: Mapping[str, Any], options: ImportOptions) -> tuple[dict[str, Any], str]:
    fields = dict(trigger.get("fields") or {})
    units = [unit for unit in _FREQUENCIES if fields.get(unit)]
    if len(units) != 1:
        raise _Untranslatable("an interval of several units")
    clock = {name: int(fields.get(name) or 0) for name in ("hour", "minute", "second")}
    start = str(trigger.get("start_date") or "2026-01-01")[:10]
    rule = f"FREQ={_FREQUENCIES[units[0]]};INTERVAL={int(fields[units[0]])}"
    anchor = f"{start}T{clock['hour']:02}:{clock['minute']:02}:{clock['second']:02}"
    zone = str(trigger.get("timezone") or options.zone)
    return {
        "kind": "rrule",
        "rule": rule,
        "zone": zone,
        "anchor": anchor,
    }, f"every {fields[units[0]]} {units[0]}"


_BUILDERS: dict[str, Callable[[Mapping[str, Any], ImportOptions], tuple[dict[str, Any], str]]] = {
    "CronTrigger": _cron,
    "IntervalTrigger": _interval,
    "DateTrigger": _date,
    "CalendarIntervalTrigger": _calendar_interval,
}


def _add_bounds(entry: Entry, trigger: Mapping[str, Any]) -> None:
    for key, field in _BOUNDS.items():
        is_anchor = field == "start_at" and trigger.get("type") != "CronTrigger"
        if trigger.get(key) and not is_anchor:
            entry.add_kept(f"trigger.{key}", trigger[key], field, **{field: str(trigger[key])})


def _add_function(entry: Entry, job: Mapping[str, Any]) -> None:
    path = str(job.get("function", ""))
    args = dict(job.get("kwargs") or {})
    if job.get("args"):
        entry.drop_entry("args", job["args"], "arguments without a name cannot be passed")
    for name, value in args.items():
        if isinstance(value, Mapping) and "python_object" in value:
            entry.drop_entry(f"kwargs.{name}", value["python_object"], "not a value of JSON")
    if args:
        entry.add_kept("kwargs", args, "arguments of the call")
    name = path.rpartition(":")[2] or path
    target = {"kind": "call", "name": name, **({"args": args} if args else {})}
    note = f"call {name}: register the function under this name (@app.task, in the program of --app)"
    entry.add_translated("function", path, note, target=target)


def _add_policies(entry: Entry, job: Mapping[str, Any]) -> None:
    runs = job.get("max_instances")
    overlap = "skip" if runs == 1 else "allow"
    if isinstance(runs, int) and runs > 1:
        note = "overlap: allow, with max_running; a further occurrence waits, where APScheduler skips it"
        entry.add_translated("max_instances", runs, note, max_running=runs)
    else:
        entry.add_translated("max_instances", runs, f"overlap: {overlap}")
    coalesce = str(job.get("coalesce", "latest"))
    catch_up = "all" if coalesce == "all" else "last"
    if coalesce == "earliest":
        entry.report_lost("coalesce", coalesce, "of several missed occurrences, the newest runs")
    else:
        entry.add_translated("coalesce", coalesce, f"catch_up: {catch_up}")
    grace = job.get("misfire_grace_time")
    window = None if grace is None else duration_text(grace)
    note = "no window" if window is None else "how late an occurrence may start: grace and catch_up_window"
    late = {"catch_up_window": window} | ({} if window is None else {"grace": window})
    entry.add_translated("misfire_grace_time", grace, note, **late)
    jitter = job.get("jitter") or job["trigger"].get("jitter")
    if jitter:
        entry.add_kept("jitter", jitter, jitter=duration_text(jitter))
    entry.definition |= {"overlap": overlap, "catch_up": catch_up, "retry": {"max_attempts": 1}}
