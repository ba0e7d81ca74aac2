"""The rows of lists: which columns each kind of row has, and how a value is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from timewright.core.calendars import Calendar
from timewright.core.decision import Candidate
from timewright.core.forecast import Preview
from timewright.core.leasing import Waiting
from timewright.core.run import Attempt
from timewright.doors.cli.table import TIE, Column, Screen
from timewright.doors.cli.times import (
    away,
    brief,
    clock_time,
    duration_in,
    full_time,
    instant_in,
    measured,
    next_time,
    retold,
)
from timewright.operations.instances import InstanceRow
from timewright.operations.leases import LeaseRow
from timewright.operations.limits import LimitRow
from timewright.operations.queues import QueueRow
from timewright.operations.reminders import Reminder
from timewright.operations.revisions import RevisionRow
from timewright.operations.trends import Series
from timewright.operations.views import RunRow, ScheduleRow
from timewright.ports import Entry

Row = Mapping[str, Any]
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


def state_of(row: Row) -> str:
    """A state with its mark."""
    state = str(row["state"])
    return f"{MARKS[state]} {state}" if state in MARKS else state


def took(row: Row) -> str:
    """How long a run took, as far as it is known."""
    started, ended = (
        instant_in(row.get("started_at")),
        instant_in(row.get("finished_at") or row.get("ended_at")),
    )
    return brief(ended - started) if started and ended and ended >= started else ""


def start_delay(row: Row) -> str:
    """How long after it might have a run began."""
    started, fire_at = instant_in(row.get("started_at")), instant_in(row.get("fire_at"))
    return brief(started - fire_at) if started and fire_at and started >= fire_at else ""


def why_of(row: Row, screen: Screen) -> str:
    """What there is to say about how a run ended or why it waits."""
    said = str(row["error"] or row["reason"] or row["word"]).replace("\n", " ")
    if row["dropped"]:
        said = f"{said}: {row['dropped']} up to {_clock(row['last_of'], screen)}"
    return said


def shown(value: Any, screen: Screen) -> str:
    """Any value of an answer, in words."""
    moment = instant_in(value)
    if moment is not None:
        return told_time(moment, screen)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}: {_inside(inner, screen)}" for key, inner in value.items() if not _empty(inner)
        )
    if isinstance(value, list):
        return ", ".join(_inside(inner, screen) for inner in value)
    return "" if value is None else measured(str(value))


def told_time(moment: datetime, screen: Screen, *, seconds: bool = False) -> str:
    """An instant with everything, and how far it is; a line is broken between the two."""
    full = full_time(moment, zone=screen.zone, seconds=seconds)
    return f"{full.replace(' ', TIE)} ({away(moment, now=screen.now).replace(' ', TIE)})"


def _inside(value: Any, screen: Screen) -> str:
    """A value inside another: an instant only by its clock, a part in brackets."""
    if isinstance(value, Mapping):
        return f"{{{shown(value, screen)}}}"
    if isinstance(value, list):
        return f"[{shown(value, screen)}]"
    return _clock(value, screen) or shown(value, screen)


def _empty(value: Any) -> bool:
    return (
        value is None
        or value in ("", [], {})
        or (isinstance(value, Mapping) and all(map(_empty, value.values())))
    )


def flow(value: Any) -> str:
    """Data on one line, without the quotes that only a parser needs."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def cells_of(kind: type, rows: Sequence[Row]) -> tuple[Sequence[Column], Cells]:
    """The columns of a kind of row and how to fill them; one nobody described shows its plain values."""
    if kind in ROWS:
        return ROWS[kind]
    keys = [key for key in (rows[0] if rows else {}) if not isinstance(rows[0][key], Mapping | list)]
    columns = [Column(key.replace("_", " ").upper(), 8) for key in keys]
    return columns, lambda row, screen: [_clock(row[key], screen) or shown(row[key], screen) for key in keys]


def _clock(value: Any, screen: Screen) -> str:
    moment = instant_in(value)
    return clock_time(moment, now=screen.now, zone=screen.zone) if moment is not None else ""


def _next(value: Any, screen: Screen) -> str:
    moment = instant_in(value)
    return f"{_clock(value, screen)} ({away(moment, now=screen.now)})" if moment is not None else ""


def _schedule(row: Row, screen: Screen) -> list[str]:
    state = row["state"] if not row["reason"] else f"{row['state']}: {row['reason']}"
    upcoming = row["paused_until"] if row["state"] == "paused" else row["next_at"]
    failing = str(row["failures"]) if row["failures"] else ""
    return [
        row["name"],
        state,
        row["trigger"],
        row["target"],
        _next(upcoming, screen),
        str(row["runs"]),
        failing,
    ]


def _run(row: Row, screen: Screen) -> list[str]:
    name = row["schedule"] or (f"queue {row['queue']}" if row["queue"] else "")
    return [_clock(row["planned_at"], screen), state_of(row), name, took(row), why_of(row, screen), row["id"]]


def _preview(row: Row, screen: Screen) -> list[str]:
    moment = instant_in(row["planned_at"])
    assert moment is not None
    there = datetime.fromisoformat(row["local"])
    same = there.utcoffset() == moment.astimezone(screen.zone).utcoffset()
    fate = "" if row["fate"] in ("fire", "run") else f"{row['fate']}: {row['reason']}".rstrip(": ")
    by_hand = "by hand" if row["source"] == "manual" else ""
    fate = "; ".join(part for part in (fate, by_hand, row["note"]) if part)
    return [
        next_time(moment, now=screen.now, zone=screen.zone),
        away(moment, now=screen.now),
        "" if same else f"{there:%a %H:%M:%S} {row['zone']}",
        fate,
    ]


def _entry(row: Row, screen: Screen) -> list[str]:
    return [_clock(row["at"], screen), row["actor"], row["action"], row["subject"], row["reason"]]


def _queue(row: Row, _screen: Screen) -> list[str]:
    counts = row["counts"]
    ceiling = f"{row['in_flight']} of {row['max_concurrent']}"
    return [row["queue"], *(str(counts.get(s, 0)) for s in ("ready", "held", "leased", "parked")), ceiling]


def _limit(row: Row, _screen: Screen) -> list[str]:
    return [row["limit"], f"{row['in_flight']} of {row['most']}", str(row["available"])]


def _calendar(row: Row, _screen: Screen) -> list[str]:
    parts = [f"{len(row[key])} {key}" for key in ("dates", "yearly", "ranges", "weekly", "spans") if row[key]]
    return [row["name"], row["zone"], ", ".join(parts) or "nothing", str(row["revision"])]


def _revision(row: Row, screen: Screen) -> list[str]:
    return [
        str(row["revision"]),
        _clock(row["at"], screen),
        row["actor"],
        ", ".join(row["changed"]),
        row["reason"],
    ]


def _lease(row: Row, screen: Screen) -> list[str]:
    payload = "" if row["payload"] is None else flow(row["payload"])
    return [row["run"], str(row["fence"]), _clock(row["lease_until"], screen), row["lease"], payload]


def _waiting(row: Row, screen: Screen) -> list[str]:
    return [row["run_id"], row["reason"], row["gate"], _clock(row["until"], screen)]


def _attempt(row: Row, screen: Screen) -> list[str]:
    said = row["error"] or row["word"] or ("" if row["result"] is None else flow(row["result"]))
    free = not row["charged"] and row["outcome"] != "succeeded"
    outcome = f"{row['outcome']} (uncharged)" if free else row["outcome"]
    return [str(row["number"]), outcome, _clock(row["leased_at"], screen), took(row), row["holder"], said]


def _reminder(row: Row, screen: Screen) -> list[str]:
    when = retold(row["when"], now=screen.now, zone=screen.zone)
    return [row["name"], row["text"], when, _next(row["next_at"], screen) or row["state"]]


def _instance(row: Row, screen: Screen) -> list[str]:
    busy = f"{row['under_way']} of {row['capacity']}"
    part = "leader" if row["leads"] else row["shard"] or ""
    return [row["instance"], row["state"], row["host"], _clock(row["seen_at"], screen), busy, part]


def _series(row: Row, _screen: Screen) -> list[str]:
    values = [point["value"] for point in row["points"]]
    return [row["field"], str(len(values)), *(f"{one:g}" for one in (values[-1], min(values), max(values)))]


def _candidate(row: Row, screen: Screen) -> list[str]:
    return [_clock(row["at"], screen) or "nothing", row["source"], row["why"]]


def tally_cells(name: str, row: Row) -> list[str]:
    """A window of history in numbers."""
    rate = row["success_rate"]
    measured = [(row["duration"], "median"), (row["duration"], "p95"), (row["delay"], "p95")]
    spans = [duration_in(spread[key]) for spread, key in measured]
    ended = [f"{count} {state}" for state, count in sorted(row["outcomes"].items())]
    return [
        name,
        ", ".join(ended) or "nothing",
        f"{rate:.0%}" if rate is not None else "",
        *(brief(span) if span is not None else "" for span in spans),
    ]


TALLY = (
    Column("LAST"),
    Column("ENDED", 12),
    Column("GOOD", right=True),
    Column("MEDIAN", right=True),
    Column("P95", right=True),
    Column("DELAY P95", right=True),
)
ROWS: dict[type, tuple[Sequence[Column], Cells]] = {
    ScheduleRow: (
        (
            Column("NAME", 14),
            Column("STATE", 8),
            Column("WHEN", 12),
            Column("WHAT", spare=True),
            Column("NEXT"),
            Column("RUNS", right=True, spare=True),
            Column("FAILING", right=True),
        ),
        _schedule,
    ),
    RunRow: (
        (
            Column("PLANNED"),
            Column("STATE"),
            Column("SCHEDULE", 8),
            Column("TOOK", right=True, spare=True),
            Column("WHY", 6),
            Column("RUN"),
        ),
        _run,
    ),
    Preview: ((Column("WHEN"), Column("IN"), Column("THERE", 12), Column("FATE", 8)), _preview),
    Entry: (
        (Column("WHEN"), Column("WHO", 5), Column("DID"), Column("SUBJECT", 12), Column("WHY", 8)),
        _entry,
    ),
    QueueRow: (
        (
            Column("QUEUE", 10),
            *(Column(title, right=True) for title in ("READY", "HELD", "LEASED", "PARKED")),
            Column("IN USE"),
        ),
        _queue,
    ),
    LimitRow: ((Column("LIMIT", 10), Column("IN USE"), Column("FREE", right=True)), _limit),
    Calendar: (
        (Column("CALENDAR", 10), Column("ZONE"), Column("HOLDS", 10), Column("REVISION", right=True)),
        _calendar,
    ),
    RevisionRow: (
        (
            Column("REVISION", right=True),
            Column("WHEN"),
            Column("WHO", 5),
            Column("CHANGED", 10),
            Column("WHY", 8),
        ),
        _revision,
    ),
    LeaseRow: (
        (
            Column("RUN"),
            Column("FENCE", right=True),
            Column("UNTIL"),
            Column("LEASE", 8),
            Column("PAYLOAD", 8),
        ),
        _lease,
    ),
    Waiting: ((Column("RUN"), Column("WAITS"), Column("FOR", 8), Column("UNTIL")), _waiting),
    Attempt: (
        (
            Column("ATTEMPT"),
            Column("ENDED"),
            Column("BEGAN"),
            Column("TOOK", right=True),
            Column("BY", 8),
            Column("SAID", 10),
        ),
        _attempt,
    ),
    Reminder: (
        (Column("NAME", 10), Column("TEXT", 12), Column("WHEN", 10), Column("NEXT")),
        _reminder,
    ),
    InstanceRow: (
        (
            Column("INSTANCE"),
            Column("STATE"),
            Column("HOST", 6),
            Column("SEEN"),
            Column("UNDER WAY", spare=True),
            Column("PART", spare=True),
        ),
        _instance,
    ),
    Series: (
        (Column("NUMBER", 10), *(Column(t, right=True) for t in ("RESULTS", "NEWEST", "LEAST", "MOST"))),
        _series,
    ),
    Candidate: ((Column("LOST"), Column("SOURCE"), Column("WHY", 10)), _candidate),
}
