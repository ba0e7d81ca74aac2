"""One-line summaries of a changed schedule or run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.rows import ROWS, format_value, reason_of, state_with_mark
from timewright.interfaces.cli.output.table import (
    NBSP,
    Column,
    Screen,
    display_width,
    escape_control,
    key_values,
    wrap,
)
from timewright.interfaces.cli.output.times import (
    has_zone,
    localize_times,
    parse_instant_or_none,
    relative_time,
    short_time,
    time_in_zone,
)
from timewright.operations.workflows.waits import PendingAnswer

JsonObject = Mapping[str, Any]

MAX_NEXT_TIMES = 3
GAP = "   "
_TIME_WIDTH = len("14:02:05")


def schedule_line(answer: JsonObject, screen: Screen) -> list[str]:
    """Return `sch_…  hello   every 5s   next 14:02:05 (in 4 s), 14:02:10, 14:02:15`."""
    schedule, progress = answer["schedule"], answer["progress"]
    state = "" if progress["state"] == "active" else progress["state"]
    label, upcoming = _upcoming(answer, screen)
    trigger = localize_times(answer.get("read_as") or answer["trigger"], now=screen.now, zone=screen.zone)
    # One line if it fits, with fewer times if needed; else a block.
    for shown_next in (upcoming, upcoming.partition(", ")[0]):
        parts = [schedule["id"], schedule["name"], trigger, state, f"{label} {shown_next}".strip()]
        line = GAP.join(escape_control(part) for part in parts if part)
        if screen.width is None or display_width(line) <= screen.width:
            return [screen.render(line)]
    head = wrap(screen, GAP.join(parts[:2]))
    return [
        *head,
        *key_values(screen, [("trigger", trigger), ("state", state), (label or "reason", upcoming)]),
    ]


def change_line(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the line of a schedule, with the kind of change."""
    first, *rest = schedule_line(answer["detail"], screen)
    line = f"{answer['change']}{GAP}{first}"
    fits = not rest and (screen.width is None or display_width(line) <= screen.width)
    return [line] if fits else [answer["change"], first, *rest]


def run_line(answer: JsonObject, screen: Screen) -> list[str]:
    """Return `run_…  hello   ◦ ready   planned 14:02:05`."""
    run = answer["run"]
    planned = parse_instant_or_none(run["planned_at"]) or screen.now
    when = f"planned {short_time(planned, now=screen.now, zone=screen.zone)}"
    parts = [
        run["id"],
        run["schedule"] or f"queue {run['queue']}",
        state_with_mark(run),
        reason_of(run, screen),
        when,
    ]
    return wrap(screen, GAP.join(part for part in parts if part))


def _upcoming(answer: JsonObject, screen: Screen) -> tuple[str, str]:
    """Return the label and text of the next occurrences, or why there are none."""
    progress = answer["progress"]
    if progress["state"] == "paused" and progress["paused_until"]:
        return "until", format_value(progress["paused_until"], screen)
    if progress["state"] != "active":
        return "", progress["reason"]
    moments = [
        m
        for row in answer["next"][:MAX_NEXT_TIMES]
        if (m := parse_instant_or_none(row["planned_at"])) is not None
    ]
    if not moments:
        return "", "no next occurrence"
    first, *rest = [
        short_time(moment, now=screen.now, zone=screen.zone).replace(" ", NBSP) for moment in moments
    ]
    distance = relative_time(moments[0], now=screen.now)
    zone = answer["next"][0]["zone"] if has_zone(answer["schedule"]["trigger"]) else ""
    there = time_in_zone(answer["next"][0]["local"], zone, screen_zone=screen.zone)
    distance = f"{distance}; {there}" if there else distance
    distance = distance.replace(" ", NBSP)
    # Further times are shown only if they are today.
    return "next", ", ".join([f"{first} ({distance})", *(text for text in rest if len(text) == _TIME_WIDTH)])


def _pending_answer(row: Mapping[str, Any], screen: Screen) -> list[str]:
    until = format_value(row["until"], screen) if row["until"] else ""
    return [row["question"], f"{row['workflow']}.{row['step']}", row["to"], until, row["run"]]


ROWS[PendingAnswer] = (
    (
        Column("QUESTION", 12),
        Column("STEP", 8),
        Column("TO", optional=True),
        Column("UNTIL", 8),
        Column("RUN"),
    ),
    _pending_answer,
)
