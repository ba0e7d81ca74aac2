"""Table columns of each row type, and the formatting of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from timewright.core.calendars import Calendar
from timewright.core.run.leasing import WaitingRun
from timewright.core.run.run import Attempt
from timewright.core.schedule.decision import Candidate
from timewright.core.schedule.forecast import Preview
from timewright.interfaces.cli.output.table import NBSP, Column, Screen, progress_of
from timewright.interfaces.cli.output.times import (
    clock_time,
    format_duration,
    full_time,
    localize_times,
    parse_instant_or_none,
    relative_time,
    short_time,
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
from timewright.operations.views import RunSummary, ScheduleSummary
from timewright.ports import AuditEntry

Row = Mapping[str, Any]
MIN_ID_WIDTH = 12
Cells = Callable[[Row, Screen], Sequence[str]]

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
        text = f"{text}: {row['dropped']} up to {_clock(row['last_of'], screen)}"
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
    return _clock(value, screen) or format_value(value, screen)


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


def columns_for(kind: type, rows: Sequence[Row]) -> tuple[Sequence[Column], Cells]:
    """Return the columns of a row type and how to fill them; an unlisted type shows its scalar values."""
    if kind in ROWS:
        return ROWS[kind]
    keys = [key for key in (rows[0] if rows else {}) if not isinstance(rows[0][key], Mapping | list)]
    columns = [
        Column(key.replace("_", " ").upper(), 8, is_id=key == "id" or key.endswith("_id")) for key in keys
    ]
    return columns, lambda row, screen: [
        _clock(row[key], screen) or format_value(row[key], screen) for key in keys
    ]


def _clock(value: Any, screen: Screen) -> str:
    moment = parse_instant_or_none(value)
    return clock_time(moment, now=screen.now, zone=screen.zone) if moment is not None else ""


def _next(value: Any, screen: Screen, there: str = "") -> str:
    """An instant and its distance; `there` is its time in another zone, the only one where space is short."""
    moment = parse_instant_or_none(value)
    if moment is None:
        return ""
    shown = there if there and screen.is_narrow else _clock(value, screen)
    after = f" = {there}" if there and not screen.is_narrow else ""
    return f"{shown} ({relative_time(moment, now=screen.now)}){after}"


def _schedule(row: Row, screen: Screen) -> list[str]:
    is_held = row["paused_by"] and row["state"] == "active"
    upcoming = row["paused_until"] if row["state"] == "paused" else row["next_at"]
    there = time_in_zone(row["next_local"], row["zone"], screen_zone=screen.zone)
    last = (_clock if screen.is_narrow else _next)(row["last_run_at"], screen)
    return [
        row["name"],
        f"paused: {row['paused_by']}" if is_held else ": ".join(filter(None, (row["state"], row["reason"]))),
        localize_times(row["trigger"], now=screen.now, zone=screen.zone),
        row["target"],
        _next(upcoming, screen, there),
        str(row["runs"]),
        f"{MARKS.get(row['last_state'], '')} {last}".strip(),
        str(row["failures"] or ""),
    ]


def _run(row: Row, screen: Screen) -> list[str]:
    name = row["schedule"] or row["workflow"] or (f"queue {row['queue']}" if row["queue"] else "")
    return [
        _clock(row["planned_at"], screen),
        state_with_mark(row),
        name,
        duration_of(row),
        reason_of(row, screen),
        row["id"],
    ]


def _preview(row: Row, screen: Screen) -> list[str]:
    moment = parse_instant_or_none(row["planned_at"])
    assert moment is not None
    result = "" if row["verdict"] in ("fire", "run") else f"{row['verdict']}: {row['reason']}".rstrip(": ")
    manual = "manual" if row["source"] == "manual" else ""
    result = "; ".join(part for part in (result, manual, row["note"]) if part)
    return [
        short_time(moment, now=screen.now, zone=screen.zone),
        relative_time(moment, now=screen.now),
        time_in_zone(row["local"], row["zone"], screen_zone=screen.zone),
        result,
    ]


def _entry(row: Row, screen: Screen) -> list[str]:
    return [_clock(row["at"], screen), row["actor"], row["action"], row["subject"], row["reason"]]


def _queue(row: Row, _screen: Screen) -> list[str]:
    counts = row["counts"]
    ceiling = f"{row['in_flight']} of {row['max_running']}"
    return [row["queue"], *(str(counts.get(s, 0)) for s in ("ready", "held", "leased", "parked")), ceiling]


def _queue_entry(row: Row, screen: Screen) -> list[str]:
    cells = [_clock(row["planned_at"], screen), state_with_mark(row), _payload(row)]
    return [*cells, reason_of(row, screen), row["id"]]


def _payload(row: Row) -> str:
    return "" if row["payload"] is None else inline_data(row["payload"])


def _limit(row: Row, _screen: Screen) -> list[str]:
    return [row["limit"], row["allows"], str(row["in_flight"])]


def _calendar(row: Row, _screen: Screen) -> list[str]:
    parts = [f"{len(row[key])} {key}" for key in ("dates", "yearly", "ranges", "weekly", "spans") if row[key]]
    return [row["name"], row["zone"], ", ".join(parts) or "empty", str(row["revision"])]


def _revision(row: Row, screen: Screen) -> list[str]:
    return [
        str(row["revision"]),
        _clock(row["at"], screen),
        row["actor"],
        ", ".join(row["changed"]),
        row["reason"],
    ]


def _lease(row: Row, screen: Screen) -> list[str]:
    return [row["run"], str(row["fence"]), _clock(row["lease_until"], screen), row["lease"], _payload(row)]


def _waiting(row: Row, screen: Screen) -> list[str]:
    return [row["run_id"], row["reason"], row["blocked_by"], _clock(row["until"], screen)]


def _attempt(row: Row, screen: Screen) -> list[str]:
    result = (
        row["error"] or row["outcome_label"] or ("" if row["result"] is None else inline_data(row["result"]))
    )
    free = not row["charged"] and row["outcome"] != "succeeded"
    outcome = f"{row['outcome']} (uncharged)" if free else row["outcome"]
    return [
        str(row["number"]),
        outcome,
        _clock(row["leased_at"], screen),
        duration_of(row),
        row["holder"],
        result,
    ]


def _reminder(row: Row, screen: Screen) -> list[str]:
    when = localize_times(row["when"], now=screen.now, zone=screen.zone)
    return [row["name"], row["text"], when, _next(row["next_at"], screen) or row["state"]]


def _instance(row: Row, screen: Screen) -> list[str]:
    busy = f"{row['under_way']} of {row['capacity']}"
    part = "leader" if row["leads"] else row["shard"] or ""
    return [row["instance"], row["state"], row["host"], _clock(row["seen_at"], screen), busy, part]


def _series(row: Row, _screen: Screen) -> list[str]:
    values = [point["value"] for point in row["points"]]
    return [row["field"], str(len(values)), *(f"{one:g}" for one in (values[-1], min(values), max(values)))]


def _candidate(row: Row, screen: Screen) -> list[str]:
    return [_clock(row["at"], screen) or "none", row["source"], row["why"]]


_RUN_ID = Column("RUN", MIN_ID_WIDTH, is_id=True)
ROWS: dict[type, tuple[Sequence[Column], Cells]] = {
    ScheduleSummary: (
        (
            Column("NAME", 14),
            Column("STATE", 8),
            Column("TRIGGER", 12),
            Column("TARGET", optional=True),
            Column("NEXT"),
            Column("RUNS", align_right=True, optional=True),
            Column("LAST RUN", optional=True),
            Column("FAILURES", align_right=True),
        ),
        _schedule,
    ),
    RunSummary: (
        (
            Column("PLANNED"),
            Column("STATE"),
            Column("SCHEDULE", 8),
            Column("DURATION", align_right=True, optional=True),
            Column("REASON", 6),
            _RUN_ID,
        ),
        _run,
    ),
    Preview: ((Column("TIME"), Column("IN"), Column("SCHEDULE TIME", 12), Column("RESULT", 8)), _preview),
    AuditEntry: (
        (Column("TIME"), Column("ACTOR", 5), Column("ACTION"), Column("SUBJECT", 12), Column("REASON", 8)),
        _entry,
    ),
    EntrySummary: (
        (
            Column("PLANNED"),
            Column("STATE"),
            Column("PAYLOAD", 12),
            Column("REASON", 6),
            _RUN_ID,
        ),
        _queue_entry,
    ),
    QueueSummary: (
        (
            Column("QUEUE", 10),
            *(Column(title, align_right=True) for title in ("READY", "HELD", "LEASED", "PARKED")),
            Column("IN USE"),
        ),
        _queue,
    ),
    LimitSummary: ((Column("LIMIT", 10), Column("ALLOWS", 20), Column("IN USE")), _limit),
    Calendar: (
        (
            Column("CALENDAR", 10),
            Column("ZONE"),
            Column("CONTENTS", 10),
            Column("REVISION", align_right=True),
        ),
        _calendar,
    ),
    RevisionSummary: (
        (
            Column("REVISION", align_right=True),
            Column("TIME"),
            Column("ACTOR", 5),
            Column("CHANGED", 10),
            Column("REASON", 8),
        ),
        _revision,
    ),
    LeaseDetail: (
        (
            _RUN_ID,
            Column("FENCE", align_right=True),
            Column("UNTIL"),
            Column("LEASE", 8, is_id=True),
            Column("PAYLOAD", 8),
        ),
        _lease,
    ),
    WaitingRun: (
        (_RUN_ID, Column("REASON"), Column("BLOCKED BY", 8), Column("UNTIL")),
        _waiting,
    ),
    Attempt: (
        (
            Column("ATTEMPT"),
            Column("STATUS"),
            Column("STARTED"),
            Column("DURATION", align_right=True),
            Column("HOLDER", 8, is_id=True),
            Column("RESULT", 10),
        ),
        _attempt,
    ),
    Reminder: (
        (Column("NAME", 10), Column("TEXT", 12), Column("TRIGGER", 10), Column("NEXT")),
        _reminder,
    ),
    InstanceSummary: (
        (
            Column("INSTANCE", MIN_ID_WIDTH, is_id=True),
            Column("STATE"),
            Column("HOST", 6),
            Column("LAST SEEN"),
            Column("IN PROGRESS", optional=True),
            Column("ADMITS", optional=True),
        ),
        _instance,
    ),
    TrendSeries: (
        (
            Column("NUMBER", 10),
            *(Column(t, align_right=True) for t in ("RESULTS", "LATEST", "MIN", "MAX")),
        ),
        _series,
    ),
    Candidate: ((Column("TIME"), Column("SOURCE"), Column("REASON", 10)), _candidate),
}
