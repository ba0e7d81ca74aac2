# ruff: noqa: BLE001, SLF001, T201 - a script for the environment of the user
"""Print the jobs of an APScheduler program as JSON, for `timewright import apscheduler`.

Run it where your program runs, because only there its job stores can be read. It needs nothing of Timewright:

    python apscheduler_export.py myapp.jobs:scheduler > jobs.json

It works with APScheduler 3 and 4. Nothing is started, and no job is changed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from datetime import date, datetime, timedelta
from typing import Any

FORMAT = "timewright-apscheduler"
INTERVAL_FIELDS = ("years", "months", "weeks", "days", "hour", "minute", "second")


def export(scheduler: Any) -> dict[str, Any]:
    """Return the jobs of a scheduler as plain data."""
    is_new = hasattr(scheduler, "get_schedules")
    jobs = (
        [_schedule(one, _tasks(scheduler)) for one in scheduler.get_schedules()]
        if is_new
        else [_job(one) for one in scheduler.get_jobs()]
    )
    return {"format": FORMAT, "version": 1, "apscheduler": 4 if is_new else 3, "jobs": jobs}


def _job(job: Any) -> dict[str, Any]:
    """Return a job of version 3."""
    arguments, unnamed = _named(job.func, job.args, job.kwargs)
    return {
        "id": job.id,
        "name": job.name,
        "function": job.func_ref or _path(job.func),
        "kwargs": arguments,
        "args": unnamed,
        "trigger": _trigger(job.trigger),
        "misfire_grace_time": job.misfire_grace_time,
        "coalesce": "latest" if job.coalesce else "all",
        "max_instances": job.max_instances,
        "executor": job.executor,
        "paused": getattr(job, "next_run_time", "none") is None,
    }


def _tasks(scheduler: Any) -> dict[str, Any]:
    return {task.id: task for task in scheduler.get_tasks()}


def _schedule(schedule: Any, tasks: Any) -> dict[str, Any]:
    """Return a schedule of version 4."""
    task = tasks.get(schedule.task_id)
    path = (task.func if task else None) or schedule.task_id
    arguments, unnamed = _named(_load(path), schedule.args, schedule.kwargs)
    return {
        "id": schedule.id,
        "function": path,
        "kwargs": arguments,
        "args": unnamed,
        "trigger": _trigger(schedule.trigger),
        "misfire_grace_time": _seconds(schedule.misfire_grace_time),
        "coalesce": schedule.coalesce.name,
        "max_instances": getattr(task, "max_running_jobs", None),
        "jitter": _seconds(schedule.max_jitter),
        "executor": schedule.job_executor,
        "metadata": _plain(schedule.metadata),
        "paused": schedule.paused,
    }


def _trigger(trigger: Any) -> dict[str, Any]:
    """Return a trigger by the name of its class; one that is not known has only that name and its text."""
    kind = type(trigger).__name__
    found: dict[str, Any] = {"type": kind}
    zone = getattr(trigger, "timezone", None)
    if zone is not None:
        found["timezone"] = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    for name in ("start_date", "end_date", "start_time", "end_time", "run_date", "run_time", "jitter"):
        if getattr(trigger, name, None) is not None:
            found[name] = _plain(getattr(trigger, name))
    if kind == "CronTrigger":
        fields = getattr(trigger, "fields", None) or trigger._fields
        found["fields"] = {field.name: str(field) for field in fields}
    elif kind == "IntervalTrigger":
        found["seconds"] = (getattr(trigger, "interval", None) or trigger._interval).total_seconds()
    elif kind == "CalendarIntervalTrigger":
        found["fields"] = {name: getattr(trigger, name, 0) for name in INTERVAL_FIELDS}
        at = getattr(trigger, "_time", None)
        if at is not None:
            found["fields"].update(hour=at.hour, minute=at.minute, second=at.second)
    elif kind in ("OrTrigger", "AndTrigger"):
        found["triggers"] = [_trigger(one) for one in trigger.triggers]
    elif kind != "DateTrigger":
        found["text"] = str(trigger)
    return found


def _named(function: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments by name, and those that have none."""
    try:
        names = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        names = []
    named, unnamed = {}, []
    for number, value in enumerate(args or ()):
        has_name = number < len(names) and names[number].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if has_name:
            named[names[number].name] = _plain(value)
        else:
            unnamed.append(_plain(value))
    named.update({key: _plain(value) for key, value in dict(kwargs or {}).items()})
    return named, unnamed


def _load(path: str) -> Any:
    try:
        module, _, name = path.partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except Exception:
        return None


def _path(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', function)}"


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _plain(value: Any) -> Any:
    """Return a value as JSON can say it; other objects become their text, marked as such."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return {"python_object": repr(value)[:200]}


def main() -> None:
    """Load `module:name` and print its jobs."""
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit(
            "usage: python apscheduler_export.py module:name, a scheduler or a function that returns one"
        )
    sys.path.insert(0, "")
    found = _load(sys.argv[1])
    if found is None:
        sys.exit(f"{sys.argv[1]} cannot be imported")
    if callable(found) and not hasattr(found, "add_job") and not hasattr(found, "add_schedule"):
        found = found()
    if hasattr(found, "get_schedules"):
        if inspect.iscoroutinefunction(found.get_schedules):
            print(json.dumps(_export_async(found), indent=2))
            return
        with found:
            print(json.dumps(export(found), indent=2))
        return
    if not found.running:
        # Paused: the job stores are opened, and nothing runs.
        found.start(paused=True)
    print(json.dumps(export(found), indent=2))
    found.shutdown(wait=False)


def _export_async(scheduler: Any) -> dict[str, Any]:
    """Return the schedules of an AsyncScheduler of version 4."""
    import anyio

    async def read() -> dict[str, Any]:
        async with scheduler:
            tasks = {task.id: task for task in await scheduler.get_tasks()}
            schedules = [_schedule(one, tasks) for one in await scheduler.get_schedules()]
        return {"format": FORMAT, "version": 1, "apscheduler": 4, "jobs": schedules}

    return anyio.run(read)


if __name__ == "__main__":
    main()
