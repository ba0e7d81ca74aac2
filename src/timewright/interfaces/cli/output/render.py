"""Renders answers: a line for a change, a table for a list, a page for one object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields

from timewright.interfaces.cli.output.doctor import (
    findings_page,
    health_page,
    overdue_page,
    verification_page,
)
from timewright.interfaces.cli.output.follow import feed_page, logs_page, target_test_page
from timewright.interfaces.cli.output.pages import (
    backfill_page,
    calendar_page,
    change_line,
    explanation_page,
    next_page,
    row_table,
    run_line,
    run_page,
    schedule_line,
    schedule_page,
    upcoming_page,
)
from timewright.interfaces.cli.output.rows import ROWS, format_value
from timewright.interfaces.cli.output.table import Screen, escape_control, key_values, wrap
from timewright.operations import Operation, views
from timewright.operations.calendars import calendars
from timewright.operations.definitions import export, plan
from timewright.operations.explain import explain
from timewright.operations.health import doctor, lint, overdue, verify
from timewright.operations.queues import lease_results, leases
from timewright.operations.registry import ListRequest
from timewright.operations.runs import logs, runs
from timewright.operations.schedules import approvals, backfills, manual_runs, queries, upcoming, writes
from timewright.settings import is_loopback

MARKS = {
    "created": "+",
    "updated": "~",
    "adopted": "~",
    "archived": "-",
    "removed": "-",
    "stays_archived": "!",
}
MAX_TIMES_SHOWN = 5


def plan_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return each change with its fields and what follows from it, then the sums."""
    lines = [line for one in answer["changes"] for line in _change_lines(one, screen)]
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in answer["counts"].items())
    lines.append(f"{counts or 'nothing'}   plan {answer['plan']}")
    return [part for line in lines for part in wrap(screen, escape_control(line))]


def drift_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return each definition that drifted, with the fields as declared and as they are now."""
    lines: list[str] = []
    for one in answer["definitions"]:
        by = f" by {one['actor']}" if one["actor"] else ""
        when = f" {screen.distance(one['at'])}" if one["at"] else ""
        why = f": {one['reason']}" if one["reason"] else ""
        lines.append(f"! {one['kind']} {one['name']}   {one['drift']}{by}{when}{why}   owner {one['owner']}")
        lines += _field_lines(one["fields"], screen)
    lines = lines or ["no drift: every owned definition is as declared"]
    return [part for line in lines for part in wrap(screen, escape_control(line))]


def export_page(answer: JsonObject, _screen: Screen) -> list[str]:
    """Return the text of the file as it is."""
    return str(answer["text"]).rstrip("\n").split("\n")


def schema_page(answer: JsonObject, _screen: Screen) -> list[str]:
    """Return the JSON Schema alone, to write it into a file."""
    return [json.dumps(answer["json_schema"], indent=2)]


def _change_lines(one: JsonObject, screen: Screen) -> Iterator[str]:
    moved = (
        f"   {one['owner_before']} → {one['owner']}" if one["owner_before"] not in ("", one["owner"]) else ""
    )
    word = one["change"].replace("_", " ")
    yield f"{MARKS[one['change']]} {one['kind']} {one['name']}   {word}{moved}"
    if one["change"] == "created":
        yield from (f"    {f['field']}: {format_value(f['after'], screen)}" for f in one["fields"])
    elif one["change"] == "updated":
        yield from _field_lines(one["fields"], screen)
    if one["next_before"] != one["next_after"]:
        before = f"{_times(one['next_before'], screen)} → " if one["next_before"] else ""
        yield f"    next     {before}{_times(one['next_after'], screen)}"
    if one["runs_now"]:
        yield f"    runs now {len(one['runs_now'])}: {_times(one['runs_now'], screen)}"
    if one["skips_now"]:
        yield f"    skips    {one['skips_now']} occurrences that are due now"
    for note in one["notes"]:
        yield f"    note     {note}"


def _field_lines(fields: Sequence[JsonObject], screen: Screen) -> Iterator[str]:
    for one in fields:
        before, after = (format_value(one[key], screen) or "(default)" for key in ("before", "after"))
        yield f"    {one['field']}: {before} → {after}"


def _times(moments: Sequence[str], screen: Screen) -> str:
    shown = [format_value(one, screen) for one in moments[:MAX_TIMES_SHOWN]]
    more = f", and {len(moments) - len(shown)} more" if len(moments) > len(shown) else ""
    return ", ".join(shown) + more if shown else "never"


JsonObject = Mapping[str, Any]
Renderer = Callable[[JsonObject, Screen], list[str]]

NAME_FIELDS = (
    *("name", "id", "backfill", "run", "queue", "limit", "instance", "provider"),
    *("planned_at", "at", "schedule"),
)
_RENDERERS: dict[type, Renderer] = {
    views.ScheduleDetail: schedule_line,
    views.RunDetail: run_line,
    writes.PutScheduleResult: change_line,
    lease_results.ReportedRun: run_line,
    calendars.CalendarDetail: calendar_page,
    calendars.DeletedCalendar: calendar_page,
    calendars.RefreshedCalendar: calendar_page,
    explain.Explanation: explanation_page,
    queries.NextOccurrences: next_page,
    queries.ScheduleHealth: health_page,
    upcoming.Upcoming: upcoming_page,
    doctor.DoctorReport: findings_page,
    lint.LintReport: findings_page,
    overdue.OverdueReport: overdue_page,
    logs.RunLogs: logs_page,
    upcoming.ScheduleFeed: feed_page,
    backfills.BackfillResult: backfill_page,
    manual_runs.TargetTestResult: target_test_page,
    verify.VerificationResult: verification_page,
    plan.FilePlan: plan_page,
    export.DriftReport: drift_page,
    export.ExportedFile: export_page,
    plan.FileSchema: schema_page,
}
_EMPTY_TEXT: dict[type, str] = {
    approvals.ApprovalList: "nothing waits for a person",
    leases.DrainResult: "no entries",
    runs.Trends: "no numbers in the results",
}
# Not shown: unreadable rows are printed as notes, and `behind` is for charts.
_HIDDEN_FIELDS = ("unreadable", "behind", "warnings")
_READ_RENDERERS: dict[type, Renderer] = {views.ScheduleDetail: schedule_page, views.RunDetail: run_page}


def answer_lines(operation: Operation[Any], answer: JsonObject, screen: Screen) -> list[str]:
    """Return an answer as lines; an answer without a renderer is shown generically."""
    renderers = {**_RENDERERS, **_READ_RENDERERS} if operation.read_only else _RENDERERS
    renderer = renderers.get(operation.answer_type)
    return (
        renderer(answer, screen)
        if renderer is not None
        else _render_generic(operation.answer_type, answer, screen)
    )


def answer_names(answer: JsonObject) -> list[str]:
    """Return only the names or ids in an answer; for a new key its token, which is shown once."""
    if isinstance(answer.get("token"), str):
        return [escape_control(answer["token"])]
    inner = next(
        (answer[key] for key in ("detail", "run", "schedule", "calendar") if _is_part(answer.get(key))), None
    )
    if inner is not None:
        return answer_names(inner)
    lists = [value for value in answer.values() if isinstance(value, list) and value and _is_part(value[0])]
    rows = lists[0] if lists else [answer]
    return [escape_control(name) for row in rows if (name := _name(row))]


def answer_notes(operation: Operation[Any], answer: JsonObject) -> Iterator[str]:
    """Yield notes about an answer."""
    if answer.get("cursor") and issubclass(operation.request_type, ListRequest):
        yield f"note: more rows: --cursor {answer['cursor']}"
    for row in answer.get("unreadable", ()):
        yield f"note: {row['name'] or row['id']} is unreadable ({row['id']}): {row['error']}"
    for warning in answer.get("detail", answer).get("warnings", ()):
        yield f"note: {warning}"
    if operation.name == "channel test":
        yield f"note: see whether it arrived: timewright run get {answer['run']}"
    if operation.name not in ("schedule create", "schedule put", "schedule update"):
        return
    target = answer.get("detail", answer)["schedule"]["target"]
    if target["kind"] == "http" and is_loopback(urlsplit(target["url"]).hostname or ""):
        yield "note: HTTP targets may call this machine (setting local), but not private networks"


def _render_generic(kind: type[Struct], answer: JsonObject, screen: Screen) -> list[str]:
    """Return the single values as pairs, then each list as a table."""
    found = {one.encode_name: _row_type(one.type) for one in fields(kind) if one.name not in _HIDDEN_FIELDS}
    answer = {key: value for key, value in answer.items() if key not in _HIDDEN_FIELDS}
    rows = {key: row for key, row in found.items() if row is not None}
    lists = [key for key in rows if isinstance(answer[key], list)]
    single = {key: value for key, value in answer.items() if key not in rows and key != "cursor"}
    # Beside a list, leave out values that are false.
    values = [(key, value) for key, value in single.items() if not rows or value is not False]
    lines = key_values(
        screen, [(key.replace("_", " "), format_value(value, screen)) for key, value in values], indent=0
    )
    found_any = False
    for key, row in rows.items():
        held = answer[key] if key in lists else [answer[key]]
        if held:
            found_any = True
            lines += [screen.render(key.replace("_", " "))] if len(rows) > 1 else []
            lines += row_table(row, held, screen)
    nothing = [screen.render(_EMPTY_TEXT.get(kind) or f"no {' and no '.join(lists)}".replace("_", " "))]
    return lines if found_any or not lists else [*lines, *nothing]


def _row_type(annotation: Any) -> type | None:
    """Return the row type of a field that is a row or a list of rows."""
    if annotation in ROWS:
        row: type = annotation
        return row
    inner = get_args(annotation)
    if get_origin(annotation) is not tuple or not inner or not isinstance(inner[0], type):
        return None
    return inner[0] if issubclass(inner[0], Struct) else None


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping)


def _name(row: JsonObject) -> str:
    return next((str(row[key]) for key in NAME_FIELDS if isinstance(row.get(key), str) and row[key]), "")
