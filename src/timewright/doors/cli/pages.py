"""A page for one thing: a schedule, a run, a calendar, an explanation, how something does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import fields

from timewright.core.encoding import plain
from timewright.core.forecast import Preview
from timewright.core.run import Attempt
from timewright.core.schedule import Schedule
from timewright.doors.cli.rows import (
    TALLY,
    cells_of,
    flow,
    shown,
    start_delay,
    state_of,
    tally_cells,
    told_time,
    took,
    why_of,
)
from timewright.doors.cli.table import TIE, Screen, pairs, paragraph, table
from timewright.doors.cli.times import away, full_time, instant_in, retold

Plain = Mapping[str, Any]

_ITSELF = {"id", "name", "namespace", "group", "description", "tags", "metadata", "revision", "created_at"}
_ITSELF |= {"created_by", "origin", "trigger", "target"}
_MAIN = {"http": "url", "call": "name", "shell": "command", "note": "text", "workflow": "workflow"}


def schedule_page(answer: Plain, screen: Screen) -> list[str]:
    """What a schedule says, where it stands, and what comes next."""
    schedule, standing = answer["schedule"], answer["standing"]
    said: list[tuple[str, str]] = [
        ("state", ": ".join(part for part in (standing["state"], standing["reason"]) if part)),
        ("until", shown(standing["paused_until"], screen)),
        ("when", answer["trigger"]),
        ("next", _times(answer["next"], screen)),
        ("because", retold(answer["decision"], now=screen.now, zone=screen.zone)),
        ("waits for", "\n".join(_awaited(one, screen) for one in answer["upstream"])),
        ("then", "\n".join(_after(one) for one in answer["downstream"])),
        ("what", _target(schedule["target"])),
        ("policies", "\n".join(f"{key}: {flow(value)}" for key, value in _changed(schedule))),
        ("group", schedule["group"] or ""),
        ("tags", ", ".join(schedule["tags"])),
        ("metadata", shown(schedule["metadata"], screen)),
        ("about", schedule["description"]),
        ("runs", _counts(answer)),
        ("last", shown(standing["last_finished_at"], screen)),
        (
            "revision",
            f"{schedule['revision']}, made by {schedule['created_by'] or 'nobody'} {_ago(schedule, screen)}",
        ),
    ]
    return [*paragraph(screen, f"{schedule['name']}   {schedule['id']}"), *pairs(screen, said)]


def run_page(answer: Plain, screen: Screen) -> list[str]:
    """What became of a run, and every attempt."""
    run = answer["run"]
    said = [
        ("state", ": ".join(part for part in (state_of(run), why_of(run, screen)) if part)),
        ("planned", shown(run["planned_at"], screen)),
        ("may fire", shown(run["fire_at"], screen) if run["fire_at"] != run["planned_at"] else ""),
        ("started", shown(run["started_at"], screen)),
        ("delay", start_delay(run)),
        ("took", took(run)),
        ("source", run["source"]),
        ("note", answer["note"]),
        ("reason", run["reason"] if run["error"] else ""),
        ("queue", run["queue"]),
        ("held by", run["holder"]),
        (
            "lease",
            f"{answer['lease_id']} until {shown(run['lease_until'], screen)}" if answer["lease_id"] else "",
        ),
        ("payload", "" if answer["payload"] is None else flow(answer["payload"])),
        ("backfill of", answer["backfill_of"]),
        ("parent", answer["parent"]),
        ("key", answer["key"]),
    ]
    head = "   ".join(part for part in (run["id"], run["schedule"]) if part)
    attempts = row_table(Attempt, answer["attempts"], screen) if answer["attempts"] else []
    return [*paragraph(screen, head), *pairs(screen, said), *attempts]


def explanation(answer: Plain, screen: Screen) -> list[str]:
    """Why something ran, did not, or will, and what would change that."""
    moment = instant_in(answer["at"])
    decision = answer["fate"] + (f" ({answer['reason']})" if answer["reason"] else "")
    said = [
        ("planned", _exactly(moment, screen) if moment is not None else ""),
        ("there", _there(answer, moment, screen)),
        ("decision", decision),
        ("note", answer["note"]),
        ("because", "\n".join(retold(one, now=screen.now, zone=screen.zone) for one in answer["because"])),
        ("attempts", "\n".join(map(_attempt, answer["attempts"]))),
        ("policy", "\n".join(f"{key}: {flow(value)}" for key, value in answer["policy"].items())),
        ("before", shown(answer["previous_at"], screen)),
        ("after", shown(answer["next_at"], screen)),
        ("change it", "\n".join(one["command"] for one in answer["remedies"])),
    ]
    headline = retold(answer["summary"], now=screen.now, zone=screen.zone)
    return [*paragraph(screen, headline), *pairs(screen, said)]


def calendar_page(answer: Plain, screen: Screen) -> list[str]:
    """What a calendar holds, and who uses it."""
    calendar = answer["calendar"]
    held = [
        (key, shown(calendar[key], screen))
        for key in ("zone", "dates", "yearly", "ranges", "weekly", "spans", "names")
    ]
    source = calendar["source"]
    read = f"{source['library']}, {source['first_year']} to {source['last_year']}" if source else ""
    held += [("read by", read), *((key, ", ".join(answer.get(key, ()))) for key in ("added", "removed"))]
    used = ("used by", ", ".join(answer.get("used_by", ())))
    head = f"{calendar['name']}   revision {calendar['revision']}"
    return [*paragraph(screen, head), *pairs(screen, [*held, used])]


def next_page(answer: Plain, screen: Screen) -> list[str]:
    """What comes next, one line each."""
    head = "   ".join(part for part in (answer["schedule"], answer["trigger"]) if part)
    rows = (
        row_table(Preview, answer["next"], screen) if answer["next"] else [screen.say("nothing is planned")]
    )
    return [*paragraph(screen, head), *rows]


def health_page(answer: Plain, screen: Screen) -> list[str]:
    """How a schedule does, over three windows."""
    said = [
        (key.replace("_", " "), shown(value, screen)) for key, value in answer.items() if key != "windows"
    ]
    windows = [tally_cells(name, row) for name, row in answer["windows"].items()]
    return [*pairs(screen, said, indent=0), *table(screen, TALLY, windows)]


def row_table(kind: type, rows: Sequence[Plain], screen: Screen) -> list[str]:
    """Rows of one kind as a table."""
    columns, cells = cells_of(kind, rows)
    return table(screen, columns, [cells(row, screen) for row in rows])


def _times(rows: Sequence[Plain], screen: Screen) -> str:
    """Instants below each other, all with seconds or all without, each with its note."""
    moments = [(m, _beside(row)) for row in rows if (m := instant_in(row["planned_at"])) is not None]
    seconds = any(moment.second for moment, _ in moments)
    told = ((told_time(moment, screen, seconds=seconds), note) for moment, note in moments)
    return "\n".join(f"{time}   {note}" if note else time for time, note in told)


def _beside(row: Plain) -> str:
    """Why an occurrence will not run, and what someone wrote beside it."""
    fate = f"{row['fate']}: {row['reason']}" if row["reason"] else ""
    return "; ".join(part for part in (fate, row["note"]) if part)


def _awaited(one: Plain, screen: Screen) -> str:
    last = f"last {shown(one['met_at'], screen)}" if one["met_at"] else "not so far"
    return f"{one['schedule']}: {one['words']} ({last})"


def _after(one: Plain) -> str:
    how = "runs after it" if one["kind"] == "after" else "needs it"
    return f"{one['schedule']} {how} ({one['on']})"


def _ago(schedule: Plain, screen: Screen) -> str:
    made = instant_in(schedule["created_at"])
    return away(made, now=screen.now) if made is not None else ""


def _counts(answer: Plain) -> str:
    standing = answer["standing"]
    counts = [(standing["runs"], "so far"), (standing["failures"], "failed in a row")]
    counts += [(answer["in_flight"], "under way"), (answer["held"], "held")]
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "none so far"


def _target(target: Plain) -> str:
    """What is done, on one line."""
    what = target.get(_MAIN.get(target["kind"], "payload"))
    text = " ".join(map(str, what)) if isinstance(what, list) else "" if what is None else flow(what)
    return " ".join(part for part in (target["kind"], target.get("method", ""), text) if part)


def _changed(schedule: Plain) -> Iterator[tuple[str, Any]]:
    """The policies that say something else than they would by themselves."""
    usual = {field.encode_name: flow(plain(field.default)) for field in fields(Schedule)}
    for key, value in schedule.items():
        if key not in _ITSELF and value not in (None, [], {}) and flow(value) != usual.get(key):
            yield key, value


def _attempt(one: Plain) -> str:
    lasted = f" after {took(one)}" if took(one) else ""
    return f"{one['number']}: {one['outcome']}{lasted}" + (f": {one['error']}" if one["error"] else "")


def _exactly(moment: datetime, screen: Screen) -> str:
    local = moment.astimezone(screen.zone)
    offset = full_time(moment, zone=screen.zone)[-6:]
    day = f"{local:%a %Y-%m-%d} {offset}".replace(" ", TIE)
    far = away(moment, now=screen.now).replace(" ", TIE)
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}   {day} ({far})"


def _there(answer: Plain, moment: datetime | None, screen: Screen) -> str:
    """The instant on the schedule's own clock, where that is not ours."""
    if moment is None or not answer["local"]:
        return ""
    there = datetime.fromisoformat(answer["local"])
    same = there.utcoffset() == moment.astimezone(screen.zone).utcoffset()
    return "" if same else f"{there:%a %Y-%m-%d %H:%M:%S} {there.isoformat()[-6:]}".replace(" ", TIE)
