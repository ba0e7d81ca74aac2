"""Importers: pure functions from files of other schedulers to definitions and a report for every field."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from timewright.core.imports.apscheduler import import_apscheduler
from timewright.core.imports.celery import import_celery
from timewright.core.imports.crontab import import_crontab, import_system_crontab
from timewright.core.imports.github_actions import import_github_actions
from timewright.core.imports.kubernetes import import_kubernetes
from timewright.core.imports.report import (
    ENTRY_LOST,
    Fidelity,
    FieldReport,
    Imported,
    ImportOptions,
    not_imported,
)
from timewright.core.imports.systemd_timers import import_systemd
from timewright.core.input.decode import decode_schedule
from timewright.core.input.input_errors import input_error
from timewright.core.moments import format_instant
from timewright.core.recurrence.triggers import Once
from timewright.errors import TimewrightError

Importer = Callable[[Mapping[str, str], ImportOptions], Imported]

IMPORTERS: dict[str, Importer] = {
    "crontab": import_crontab,
    "system-crontab": import_system_crontab,
    "systemd": import_systemd,
    "kubernetes": import_kubernetes,
    "celery": import_celery,
    "apscheduler": import_apscheduler,
    "github-actions": import_github_actions,
}

__all__ = ["IMPORTERS", "Fidelity", "FieldReport", "ImportOptions", "Imported", "import_files"]


def import_files(
    source: str,
    files: Mapping[str, str],
    options: ImportOptions,
    *,
    now: datetime,
) -> Imported:
    """Import files of one kind, each by its name; raises one error if one of them cannot be read.

    A schedule that Timewright would refuse, such as one whose only instant has passed, is reported as lost.
    """
    found = IMPORTERS[source](files, options)
    schedules: list[dict[str, Any]] = []
    refused: dict[str, FieldReport] = {}
    for draft in found.schedules:
        try:
            _check(draft, now=now)
            schedules.append(draft)
        except TimewrightError as error:
            note = f"{error.message}; {ENTRY_LOST}"
            name = draft["name"]
            refused[name] = FieldReport(entry=name, field=error.field or "", status=Fidelity.LOST, note=note)
    if not found.schedules and not any(ENTRY_LOST in one.note for one in found.fields):
        shown = ", ".join(files)
        rule, fix = "at least one schedule", f"a file of {source} with schedules"
        raise input_error("file", shown, "has no schedule", rule=rule, fix=fix)
    fields = [one for one in found.fields if one.entry not in refused]
    for name, reason in refused.items():
        fields += [reason, *not_imported(one for one in found.fields if one.entry == name)]
    return Imported(schedules=tuple(schedules), fields=tuple(fields))


def _check(draft: Mapping[str, Any], *, now: datetime) -> None:
    """Raise if Timewright would refuse the schedule, or if its only instant has passed."""
    trigger = decode_schedule(draft, id="sch_import", now=now).trigger
    if isinstance(trigger, Once) and trigger.at <= now:
        rule, fix = "an instant in the future", "leave it out"
        raise input_error("trigger.at", format_instant(trigger.at), "has passed", rule=rule, fix=fix)
