"""The export script reads a scheduler of APScheduler 3 or 4; stand-ins have the attributes it reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from timewright.core.imports import ImportOptions, import_files
from timewright.interfaces.cli.process.apscheduler_export import export

NOW = datetime(2026, 11, 17, tzinfo=UTC)


class CronTrigger:
    """The attributes of both versions that the script reads."""

    def __init__(self, **fields: str) -> None:
        names = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
        self.fields = [_Field(name, fields.get(name, "*")) for name in names]
        self.timezone = SimpleNamespace(key="Europe/Berlin")


class IntervalTrigger:
    """An interval of version 4."""

    _interval = timedelta(minutes=5)
    start_time = NOW


class _Field:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text

    def __str__(self) -> str:
        return self._text


def work(first: int, second: int = 2) -> None:
    """A function with names for its arguments."""


def read(scheduler: Any) -> dict[str, dict[str, Any]]:
    """The schedules that are imported from the export of a scheduler."""
    text = json.dumps(export(scheduler))
    found = import_files("apscheduler", {"jobs.json": text}, ImportOptions(), now=NOW)
    return {one["name"]: one for one in found.schedules}


def test_jobs_of_version_3_are_exported_with_named_arguments() -> None:
    job = SimpleNamespace(
        id="nightly",
        name="work",
        func=work,
        func_ref="app:work",
        args=(7,),
        kwargs={"second": 8},
        trigger=CronTrigger(hour="3", minute="0", second="0"),
        misfire_grace_time=60,
        coalesce=True,
        max_instances=1,
        executor="default",
        next_run_time=NOW,
    )
    found = read(SimpleNamespace(get_jobs=lambda: [job]))["nightly"]
    assert found["trigger"] == {"kind": "cron", "expression": "0 3 * * *", "zone": "Europe/Berlin"}
    assert found["target"] == {"kind": "call", "name": "work", "args": {"first": 7, "second": 8}}


def test_schedules_of_version_4_are_exported_with_their_task() -> None:
    path = f"{__name__}:work"
    schedule = SimpleNamespace(
        id="poll",
        task_id="t",
        args=(),
        kwargs={"first": 1},
        trigger=IntervalTrigger(),
        misfire_grace_time=timedelta(minutes=2),
        coalesce=SimpleNamespace(name="all"),
        max_jitter=timedelta(seconds=9),
        job_executor="threadpool",
        metadata={"team": "data"},
        paused=False,
    )
    task = SimpleNamespace(id="t", func=path, max_running_jobs=1)
    scheduler = SimpleNamespace(get_schedules=lambda: [schedule], get_tasks=lambda: [task])
    found = read(scheduler)["poll"]
    assert (found["trigger"]["interval"], found["catch_up"], found["catch_up_window"]) == ("5m", "all", "2m")
    assert (found["jitter"], found["metadata"]) == ("9s", {"team": "data"})
