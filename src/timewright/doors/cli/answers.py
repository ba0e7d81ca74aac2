"""Answers as words: a line for what was done, a table for what was found, a page for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from timewright.doors.cli.doctor import findings_page
from timewright.doors.cli.lines import kept_line, run_line, schedule_line
from timewright.doors.cli.outputs import feed_page, logs_page, trial_page
from timewright.doors.cli.pages import (
    calendar_page,
    explanation,
    health_page,
    next_page,
    row_table,
    run_page,
    schedule_page,
)
from timewright.doors.cli.proof import proof_page
from timewright.doors.cli.rows import ROWS, shown
from timewright.doors.cli.table import Screen, clean, pairs
from timewright.operations import (
    Operation,
    answers,
    calendars,
    doctor,
    drafts,
    explain,
    feeds,
    leases,
    outputs,
    overdue,
    schedules,
    trends,
    trials,
    verify,
    views,
)
from timewright.operations.registry import Listing
from timewright.settings import Settings

Plain = Mapping[str, Any]
View = Callable[[Plain, Screen], list[str]]

NAMED_BY = ("name", "id", "run", "queue", "limit", "instance", "provider", "planned_at", "at", "schedule")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_LINES: dict[type, View] = {
    views.ScheduleDetail: schedule_line,
    views.RunDetail: run_line,
    drafts.Kept: kept_line,
    answers.Ended: run_line,
    calendars.Kept: calendar_page,
    calendars.Deleted: calendar_page,
    calendars.Refreshed: calendar_page,
    explain.Explanation: explanation,
    schedules.Nexts: next_page,
    schedules.Health: health_page,
    doctor.Findings: findings_page,
    outputs.Outputs: logs_page,
    feeds.Feed: feed_page,
    trials.Tested: trial_page,
    verify.Verified: proof_page,
}
_NOTHING: dict[type, str] = {
    overdue.Overdue: "nothing is overdue",
    leases.Drained: "nothing was drained",
    trends.Trends: "no numbers in its results",
}
# What cannot be read is told in a note beside the answer; an hour in sixty pieces is for a picture.
_NOT_HERE = ("unreadable", "behind")
_PAGES: dict[type, View] = {views.ScheduleDetail: schedule_page, views.RunDetail: run_page}


def lines_of(operation: Operation[Any], answer: Plain, screen: Screen) -> list[str]:
    """An answer as lines for a person; one nobody described is shown as it is built."""
    views_here = {**_LINES, **_PAGES} if operation.reads_only else _LINES
    view = views_here.get(operation.answer)
    return view(answer, screen) if view is not None else _whatever(operation.answer, answer, screen)


def names_in(answer: Plain) -> list[str]:
    """The names or ids of what an answer holds, and nothing else."""
    inner = next(
        (answer[key] for key in ("kept", "run", "schedule", "calendar") if _is_part(answer.get(key))), None
    )
    if inner is not None:
        return names_in(inner)
    lists = [value for value in answer.values() if isinstance(value, list) and value and _is_part(value[0])]
    rows = lists[0] if lists else [answer]
    return [clean(name) for row in rows if (name := _name(row))]


def notes_of(operation: Operation[Any], answer: Plain, settings: Settings) -> Iterator[str]:
    """What is good to know about an answer, besides the answer."""
    if answer.get("cursor") and issubclass(operation.request, Listing):
        yield f"note: there is more: --cursor {answer['cursor']}"
    for lost in answer.get("unreadable", ()):
        yield f"note: {lost['name'] or lost['id']} cannot be read ({lost['id']}): {lost['why']}"
    for warning in answer.get("kept", answer).get("warnings", ()):
        yield f"note: {warning}"
    if operation.name not in ("schedule create", "schedule put", "schedule update"):
        return
    target = answer.get("kept", answer)["schedule"]["target"]
    if target["kind"] == "shell" and not settings.shell:
        yield "note: shell targets are off here; whoever runs it must allow them: timewright up --shell"
    if target["kind"] == "http" and any(f"//{host}" in target["url"] for host in _LOCAL):
        yield "note: this machine may be called, because the setting local is on; private networks may not"


def _whatever(kind: type[Struct], answer: Plain, screen: Screen) -> list[str]:
    """Any answer: its single values as pairs, then each of its lists as a table."""
    found = {one.encode_name: _row_type(one.type) for one in fields(kind) if one.name not in _NOT_HERE}
    answer = {key: value for key, value in answer.items() if key not in _NOT_HERE}
    rows = {key: row for key, row in found.items() if row is not None}
    lists = [key for key in rows if isinstance(answer[key], list)]
    single = {key: value for key, value in answer.items() if key not in rows and key != "cursor"}
    # Beside a list, what is not so goes without saying.
    said = [(key, value) for key, value in single.items() if not rows or value is not False]
    lines = pairs(screen, [(key.replace("_", " "), shown(value, screen)) for key, value in said], indent=0)
    found_any = False
    for key, row in rows.items():
        held = answer[key] if key in lists else [answer[key]]
        if held:
            found_any = True
            lines += [screen.say(key.replace("_", " "))] if len(rows) > 1 else []
            lines += row_table(row, held, screen)
    nothing = [screen.say(_NOTHING.get(kind) or f"no {' and no '.join(lists)}".replace("_", " "))]
    return lines if found_any or not lists else [*lines, *nothing]


def _row_type(annotation: Any) -> type | None:
    """The kind of row in a list of rows, or of one row that is part of an answer."""
    if annotation in ROWS:
        row: type = annotation
        return row
    inner = get_args(annotation)
    if get_origin(annotation) is not tuple or not inner or not isinstance(inner[0], type):
        return None
    return inner[0] if issubclass(inner[0], Struct) else None


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping)


def _name(row: Plain) -> str:
    return next((str(row[key]) for key in NAMED_BY if isinstance(row.get(key), str) and row[key]), "")
