"""One line for what was done: which thing, how it stands, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.doors.cli.rows import shown, state_of, why_of
from timewright.doors.cli.table import TIE, Screen, clean, columns_of, pairs, paragraph
from timewright.doors.cli.times import away, instant_in, next_time

Plain = Mapping[str, Any]

SHOWN_NEXT = 3
GAP = "   "
_TODAY = len("14:02:05")


def schedule_line(answer: Plain, screen: Screen) -> list[str]:
    """`sch_…  hello   every 5s   next 14:02:05 (in 4 s), 14:02:10, 14:02:15`."""
    schedule, standing = answer["schedule"], answer["standing"]
    state = "" if standing["state"] == "active" else standing["state"]
    label, coming = _coming(answer, screen)
    # On one line, if need be with fewer of the next times; else in a block.
    for shown_next in (coming, coming.partition(", ")[0]):
        parts = [schedule["id"], schedule["name"], answer["trigger"], state, f"{label} {shown_next}".strip()]
        line = GAP.join(clean(part) for part in parts if part)
        if screen.width is None or columns_of(line) <= screen.width:
            return [screen.say(line)]
    head = paragraph(screen, GAP.join(parts[:2]))
    return [
        *head,
        *pairs(screen, [("when", answer["trigger"]), ("state", state), (label or "reason", coming)]),
    ]


def kept_line(answer: Plain, screen: Screen) -> list[str]:
    """The same, with what putting it changed."""
    first, *rest = schedule_line(answer["kept"], screen)
    line = f"{answer['change']}{GAP}{first}"
    fits = not rest and (screen.width is None or columns_of(line) <= screen.width)
    return [line] if fits else [answer["change"], first, *rest]


def run_line(answer: Plain, screen: Screen) -> list[str]:
    """`run_…  hello   ◦ ready   planned 14:02:05`."""
    run = answer["run"]
    planned = instant_in(run["planned_at"]) or screen.now
    when = f"planned {next_time(planned, now=screen.now, zone=screen.zone)}"
    parts = [run["id"], run["schedule"] or f"queue {run['queue']}", state_of(run), why_of(run, screen), when]
    return paragraph(screen, GAP.join(part for part in parts if part))


def _coming(answer: Plain, screen: Screen) -> tuple[str, str]:
    """What comes next, and what to call it."""
    standing = answer["standing"]
    if standing["state"] == "paused" and standing["paused_until"]:
        return "until", shown(standing["paused_until"], screen)
    if standing["state"] != "active":
        return "", standing["reason"]
    moments = [m for row in answer["next"][:SHOWN_NEXT] if (m := instant_in(row["planned_at"])) is not None]
    if not moments:
        return "", "nothing is planned"
    first, *rest = [
        next_time(moment, now=screen.now, zone=screen.zone).replace(" ", TIE) for moment in moments
    ]
    far = away(moments[0], now=screen.now).replace(" ", TIE)
    # Days are told one at a time; times of today show their rhythm.
    return "next", ", ".join([f"{first} ({far})", *(text for text in rest if len(text) == _TODAY)])
