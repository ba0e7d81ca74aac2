"""Table columns of each row type, and the formatting of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from timewright.core.calendars import Calendar
from timewright.core.run.leasing import WaitingRun
from timewright.core.run.run import Attempt
from timewright.core.schedule.decision import Candidate
from timewright.core.schedule.forecast import Preview
from timewright.interfaces.cli.output.table import NBSP, Column, Screen, progress_of
from timewright.interfaces.cli.output.times import (
    format_duration,
    full_time,
    parse_instant_or_none,
    relative_time,
    shorten_duration,
    time_in_zone,
)
from timewright.operations.health.doctor import InstanceSummary
from timewright.operations.queues.leases import LeaseDetail
from timewright.operations.queues.limits import LimitSummary
from timewright.operations.queues.queues import EntrySummary, QueueSummary
from timewright.operations.runs.runs import TrendSeries
from timewright.operations.schedules.pause_archive import RevisionSummary
from timewright.operations.schedules.reminders import Reminder
from timewright.operations.schedules.upcoming import UpcomingOccurrence
from timewright.operations.views import RunSummary, ScheduleSummary
from timewright.operations.workflows.waits import PendingAnswer
from timewright.ports import AuditEntry

Row = Mapping[str, Any]
Fill = Callable[[Row, Screen], str]
MIN_ID_WIDTH = 12

MARKS = {
    "succeeded": "✔",
    "failed": "✘",
    "parked": "‖",
    "skipped": "·",
    "cancelled": "·",
    "leased": "▸",
    "ready": "◦",
    "held": "◦",
}


class Cell(Struct, frozen=True):
    """A column of a row type, and how its cell is filled."""

    column: Column
    fill: Fill


def cell(title: str, fill: Fill, min_width: int = 0, **layout: bool) -> Cell:
    """Return a column whose cell is made from the whole row."""
    return Cell(Column(title, min_width, **layout), fill)


def value(key: str, min_width: int = 0, *, title: str = "", **layout: bool) -> Cell:
    """Return a column with a field as it is, by default under the name of the field."""
    title = title or key.replace("_", " ").upper()
    return cell(title, lambda row, _: "" if row[key] is None else str(row[key]), min_width, **layout)


def instant(key: str, title: str) -> Cell:
    """Return a column with an instant, as short as it can be."""
    return cell(title, lambda row, screen: screen.clock(row[key]))


def sentence(key: str, title: str, min_width: int) -> Cell:
    """Return a column with a text, whose instants are shown in the zone of the terminal."""
    return cell(title, lambda row, screen: screen.localize(row[key]), min_width)


def state_with_mark(row: Row) -> str:
    """Return a state with its sign."""
    state = str(row["state"])
    return f"{MARKS[state]} {state}" if state in MARKS else state


def duration_of(row: Row) -> str:
    """Return the duration of a run or attempt, if it has ended."""
    started = parse_instant_or_none(row.get("started_at"))
    ended = parse_instant_or_none(row.get("finished_at") or row.get("ended_at"))
    return format_duration(ended - started) if started and ended and ended >= started else ""


def start_delay(row: Row) -> str:
    """Return the delay between the planned and the actual start."""
    started, fire_at = parse_instant_or_none(row.get("started_at")), parse_instant_or_none(row.get("fire_at"))
    return format_duration(started - fire_at) if started and fire_at and started >= fire_at else ""


def reason_of(row: Row, screen: Screen) -> str:
    """Return the error, reason, progress or result label of a run."""
    text = str(row["error"] or row["reason"] or row["outcome_label"] or progress_of(row)).replace("\n", " ")
    if row["dropped"]:
        text = f"{text}: {row['dropped']} up to {screen.clock(row['last_of'])}"
    return text


def format_value(value: Any, screen: Screen) -> str:
    """Format any value of an answer."""
    moment = parse_instant_or_none(value)
    if moment is not None:
        return format_instant(moment, screen)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {_format_nested(inner, screen)}" for key, inner in value.items() if not _is_empty(inner)
        )
    if isinstance(value, list):
        return ", ".join(_format_nested(inner, screen) for inner in value)
    return "" if value is None else shorten_duration(str(value))


def format_instant(moment: datetime, screen: Screen, *, seconds: bool = False) -> str:
    """Format an instant with its distance; a line can wrap between the two."""
    full = full_time(moment, zone=screen.zone, seconds=seconds)
    return f"{full.replace(' ', NBSP)} ({relative_time(moment, now=screen.now).replace(' ', NBSP)})"


def _format_nested(value: Any, screen: Screen) -> str:
    """Format a nested value: an instant as a time, objects and lists in brackets."""
    if isinstance(value, Mapping):
        return f"{{{format_value(value, screen)}}}"
    if isinstance(value, list):
        return f"[{format_value(value, screen)}]"
    return screen.clock(value) or format_value(value, screen)


def _is_empty(value: Any) -> bool:
    return (
        value is None
        or value in ("", [], {})
        or (isinstance(value, Mapping) and all(map(_is_empty, value.values())))
    )


def inline_data(value: Any) -> str:
    """Format data on one line without quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {inline_data(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline_data, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def cells_for(kind: type, rows: Sequence[Row]) -> Sequence[Cell]:
    """Return the columns of a row type and how to fill them; an unlisted type shows its scalar values."""
    if kind in ROWS:
        return ROWS[kind]
    keys = [key for key in (rows[0] if rows else {}) if not isinstance(rows[0][key], Mapping | list)]
    return [_scalar(key) for key in keys]


def _scalar(key: str) -> Cell:
    def fill(row: Row, screen: Screen) -> str:
        return screen.clock(row[key]) or format_value(row[key], screen)

    return cell(key.replace("_", " ").upper(), fill, 8, is_id=key == "id" or key.endswith("_id"))


def _next(value: Any, screen: Screen, there: str = "") -> str:
    """An instant and its distance; `there` is its time in another zone, the only one where space is short."""
    if not screen.distance(value):
        return ""
    shown = there if there and screen.is_narrow else screen.clock(value)
    after = f" = {there}" if there and not screen.is_narrow else ""
    return f"{shown} ({screen.distance(value)}){after}"


def _schedule_state(row: Row, _screen: Screen) -> str:
    if row["paused_by"] and row["state"] == "active":
        return f"paused: {row['paused_by']}"
    return ": ".join(filter(None, (row["state"], row["reason"])))


def _schedule_next(row: Row, screen: Screen) -> str:
    if row["state"] == "paused":
        until = _next(row["paused_until"], screen)
        return f"after {until}" if until else ""
    there = time_in_zone(row["next_local"], row["zone"], screen_zone=screen.zone)
    return _next(row["next_at"], screen, there)


def _schedule_last(row: Row, screen: Screen) -> str:
    last = screen.clock(row["last_run_at"]) if screen.is_narrow else _next(row["last_run_at"], screen)
    return f"{MARKS.get(row['last_state'], '')} {last}".strip()


def _work_name(row: Row, _screen: Screen) -> str:
    return row["schedule"] or row["workflow"] or (f"queue {row['queue']}" if row["queue"] else "")


def _preview_there(row: Row, screen: Screen) -> str:
    return time_in_zone(row["local"], row["zone"], screen_zone=screen.zone)


def _preview_result(row: Row, _screen: Screen) -> str:
    result = "" if row["verdict"] in ("fire", "run") else f"{row['verdict']}: {row['reason']}".rstrip(": ")
    manual = "manual" if row["source"] == "manual" else ""
    return "; ".join(part for part in (result, manual, row["note"]) if part)


def _payload(row: Row, _screen: Screen) -> str:
    return "" if row["payload"] is None else inline_data(row["payload"])


def _entries(state: str) -> Cell:
    return cell(state.upper(), lambda row, _: str(row["counts"].get(state, 0)), align_right=True)


def _calendar_contents(row: Row, _screen: Screen) -> str:
    parts = [f"{len(row[key])} {key}" for key in ("dates", "yearly", "ranges", "weekly", "spans") if row[key]]
    return ", ".join(parts) or "empty"


def _attempt_status(row: Row, _screen: Screen) -> str:
    free = not row["charged"] and row["outcome"] != "succeeded"
    return f"{row['outcome']} (uncharged)" if free else str(row["outcome"])


def _attempt_result(row: Row, _screen: Screen) -> str:
    return (
        row["error"] or row["outcome_label"] or ("" if row["result"] is None else inline_data(row["result"]))
    )


def _trend(title: str, pick: Callable[[list[float]], float]) -> Cell:
    def fill(row: Row, _screen: Screen) -> str:
        return f"{pick([point['value'] for point in row['points']]):g}"

    return cell(title, fill, align_right=True)


_RUN_STATE = cell("STATE", lambda row, _: state_with_mark(row))
_IN = cell("IN", lambda row, screen: screen.distance(row["planned_at"]))
_SCHEDULE_TIME = cell("SCHEDULE TIME", _preview_there, 12)
ROWS: dict[type, Sequence[Cell]] = {
    ScheduleSummary: (
        value("name", 14),
        cell("STATE", _schedule_state, 8),
        sentence("trigger", "TRIGGER", 12),
        value("target", optional=True),
        cell("NEXT", _schedule_next),
        value("runs", align_right=True, optional=True),
        cell("LAST RUN", _schedule_last, optional=True),
        cell("FAILURES", lambda row, _: str(row["failures"] or ""), align_right=True),
    ),
    RunSummary: (
        instant("planned_at", "PLANNED"),
        _RUN_STATE,
        cell("SCHEDULE", _work_name, 8),
        cell("DURATION", lambda row, _: duration_of(row), align_right=True, optional=True),
        cell("REASON", reason_of, 6),
        value("id", MIN_ID_WIDTH, title="RUN", is_id=True),
    ),
    Preview: (
        cell("TIME", lambda row, screen: screen.short_time(row["planned_at"])),
        _IN,
        _SCHEDULE_TIME,
        cell("RESULT", _preview_result, 8),
    ),
    UpcomingOccurrence: (
        instant("planned_at", "TIME"),
        _IN,
        value("schedule", 14),
        _SCHEDULE_TIME,
        cell("RESULT", lambda row, screen: screen.localize(_preview_result(row, screen)), 8),
    ),
    AuditEntry: (
        instant("at", "TIME"),
        value("actor", 5),
        value("action"),
        value("subject", 12),
        value("reason", 8),
    ),
    EntrySummary: (
        instant("planned_at", "PLANNED"),
        _RUN_STATE,
        cell("PAYLOAD", _payload, 12),
        cell("REASON", reason_of, 6),
        value("id", MIN_ID_WIDTH, title="RUN", is_id=True),
    ),
    QueueSummary: (
        value("queue", 10),
        *map(_entries, ("ready", "held", "leased", "parked")),
        cell("IN USE", lambda row, _: f"{row['in_flight']} of {row['max_running']}"),
    ),
    LimitSummary: (value("limit", 10), value("allows", 20), value("in_flight", title="IN USE")),
    Calendar: (
        value("name", 10, title="CALENDAR"),
        value("zone"),
        cell("CONTENTS", _calendar_contents, 10),
        value("revision", align_right=True),
    ),
    RevisionSummary: (
        value("revision", align_right=True),
        instant("at", "TIME"),
        value("actor", 5),
        cell("CHANGED", lambda row, _: ", ".join(row["changed"]), 10),
        value("reason", 8),
    ),
    LeaseDetail: (
        value("run", MIN_ID_WIDTH, is_id=True),
        value("fence", align_right=True),
        instant("lease_until", "UNTIL"),
        value("lease", 8, is_id=True),
        cell("PAYLOAD", _payload, 8),
    ),
    WaitingRun: (
        value("run_id", MIN_ID_WIDTH, title="RUN", is_id=True),
        value("reason"),
        value("blocked_by", 8),
        instant("until", "UNTIL"),
    ),
    Attempt: (
        value("number", title="ATTEMPT"),
        cell("STATUS", _attempt_status),
        instant("leased_at", "STARTED"),
        cell("DURATION", lambda row, _: duration_of(row), align_right=True),
        value("holder", 8, is_id=True),
        cell("RESULT", _attempt_result, 10),
    ),
    Reminder: (
        value("name", 10),
        value("text", 12),
        sentence("when", "TRIGGER", 10),
        cell("NEXT", lambda row, screen: _next(row["next_at"], screen) or row["state"]),
    ),
    InstanceSummary: (
        value("instance", MIN_ID_WIDTH, is_id=True),
        value("state"),
        value("host", 6),
        instant("seen_at", "LAST SEEN"),
        cell("IN PROGRESS", lambda row, _: f"{row['under_way']} of {row['capacity']}", optional=True),
        cell("ADMITS", lambda row, _: "leader" if row["leads"] else row["shard"] or "", optional=True),
    ),
    TrendSeries: (
        value("field", 10, title="NUMBER"),
        _trend("RESULTS", len),
        _trend("LATEST", lambda values: values[-1]),
        _trend("MIN", min),
        _trend("MAX", max),
    ),
    Candidate: (
        cell("TIME", lambda row, screen: screen.clock(row["at"]) or "none"),
        value("source"),
        value("why", 10, title="REASON"),
    ),
    PendingAnswer: (
        value("question", 12),
        cell("STEP", lambda row, _: f"{row['workflow']}.{row['step']}", 8),
        value("to", optional=True),
        cell("UNTIL", lambda row, screen: format_value(row["until"], screen), 8),
        value("run"),
    ),
}
