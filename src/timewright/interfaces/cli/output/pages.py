"""Pages of one object: schedule, run, explanation, calendar, health; and one-line summaries of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import fields, replace

from timewright.core.input.encoding import to_json_value
from timewright.core.run.run import Attempt
from timewright.core.schedule.forecast import Preview
from timewright.core.schedule.schedule import Schedule
from timewright.core.zones import load_zone
from timewright.interfaces.cli.output.rows import (
    cells_for,
    duration_of,
    format_instant,
    format_value,
    inline_data,
    reason_of,
    start_delay,
    state_with_mark,
)
from timewright.interfaces.cli.output.table import (
    NBSP,
    Screen,
    display_width,
    escape_control,
    key_values,
    progress_of,
    table,
    wrap,
)
from timewright.interfaces.cli.output.times import (
    full_time,
    has_zone,
    parse_instant_or_none,
    relative_time,
    time_in_zone,
)
from timewright.interfaces.program import with_program
from timewright.operations.schedules.upcoming import UpcomingOccurrence
from timewright.operations.views import RunSummary

JsonObject = Mapping[str, Any]

MAX_BACKFILL_ROWS = 10

_METADATA = {"id", "name", "namespace", "group", "description", "tags", "metadata", "revision", "created_at"}
_METADATA |= {"created_by", "origin", "owner", "trigger", "target"}
_MAIN_FIELD = {"http": "url", "call": "name", "shell": "command", "note": "text", "workflow": "workflow"}


def schedule_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the definition, progress and next occurrences of a schedule."""
    schedule, progress = answer["schedule"], answer["progress"]
    is_over = progress["state"] in ("finished", "archived")
    rows: list[tuple[str, str]] = [
        ("state", ": ".join(part for part in (progress["state"], progress["reason"]) if part)),
        ("paused by", answer["paused_by"]),
        ("until", "" if is_over else format_value(progress["paused_until"], screen)),
        ("trigger", screen.localize(answer["trigger"])),
        ("read as", answer.get("read_as", "")),
        ("next", _times(answer["next"], screen, zoned=has_zone(schedule["trigger"]))),
        ("reason", "" if is_over else screen.localize(answer["decision"])),
        ("waits for", "\n".join(_upstream_line(one, screen) for one in answer["upstream"])),
        ("downstream", "\n".join(_downstream_line(one) for one in answer["downstream"])),
        ("target", _target(schedule["target"])),
        ("policies", "\n".join(f"{key}: {inline_data(value)}" for key, value in _changed_policies(schedule))),
        ("owner", schedule["owner"]),
        ("group", schedule["group"] or ""),
        ("tags", ", ".join(schedule["tags"])),
        ("metadata", format_value(schedule["metadata"], screen)),
        ("description", schedule["description"]),
        ("runs", _counts(answer)),
        ("last run", format_value(progress["last_started_at"] or progress["last_finished_at"], screen)),
        ("revision", _revision(schedule, screen)),
    ]
    return [*wrap(screen, f"{schedule['name']}   {schedule['id']}"), *key_values(screen, rows)]


def run_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the state of a run and its attempts."""
    run = answer["run"]
    rows = [
        ("state", ": ".join(part for part in (state_with_mark(run), reason_of(run, screen)) if part)),
        ("planned", format_value(run["planned_at"], screen)),
        ("not before", format_value(run["fire_at"], screen) if run["fire_at"] != run["planned_at"] else ""),
        ("started", format_value(run["started_at"], screen)),
        ("start delay", start_delay(run)),
        ("duration", duration_of(run)),
        ("progress", progress_of(run)),
        ("checkpoint", "" if answer["checkpoint"] is None else inline_data(answer["checkpoint"])),
        ("triggered by", run["source"]),
        ("note", answer["note"]),
        ("reason", run["reason"] if run["error"] else ""),
        ("queue", run["queue"]),
        ("holder", run["holder"]),
        (
            "lease",
            f"{answer['lease_id']} until {format_value(run['lease_until'], screen)}"
            if answer["lease_id"]
            else "",
        ),
        ("payload", "" if answer["payload"] is None else inline_data(answer["payload"])),
        ("backfill of", answer["backfill_of"]),
        ("parent", answer["parent"]),
        ("external id", ", ".join(one["external_id"] for one in answer["external_ids"])),
        ("key", answer["key"]),
    ]
    head = "   ".join(part for part in (run["id"], run["schedule"]) if part)
    attempts = row_table(Attempt, answer["attempts"], screen) if answer["attempts"] else []
    return [*wrap(screen, head), *key_values(screen, rows), *attempts]


def explanation_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return why an occurrence ran, did not run or will run, and how to change that."""
    moment = parse_instant_or_none(answer["at"])
    decision = answer["status"] + (f" ({answer['reason']})" if answer["reason"] else "")
    rows = [
        ("planned", _exact_time(moment, screen) if moment is not None else ""),
        ("schedule time", _schedule_time(answer, moment, screen)),
        ("decision", decision),
        ("note", answer["note"]),
        (
            "because",
            "\n".join(screen.localize(one) for one in answer["because"]),
        ),
        ("attempts", "\n".join(map(_attempt, answer["attempts"]))),
        ("policy", "\n".join(f"{key}: {inline_data(value)}" for key, value in answer["policy"].items())),
        ("previous", format_value(answer["previous_at"], screen)),
        ("next", format_value(answer["next_at"], screen)),
        (
            "to change it",
            "\n".join(with_program(one["command"], screen.options) for one in answer["remedies"]),
        ),
    ]
    headline = screen.localize(answer["summary"])
    return [*wrap(screen, headline), *key_values(screen, rows)]


def calendar_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the entries of a calendar and the schedules that use it."""
    calendar = answer["calendar"]
    held = [
        (key, format_value(calendar[key], screen))
        for key in ("zone", "dates", "yearly", "ranges", "weekly", "spans", "names")
    ]
    source = calendar["source"]
    read = f"{source['library']}, {source['first_year']} to {source['last_year']}" if source else ""
    held += [("source", read), *((key, ", ".join(answer.get(key, ()))) for key in ("added", "removed"))]
    used = ("used by", ", ".join(answer.get("used_by", ())))
    head = f"{calendar['name']}   revision {calendar['revision']}"
    return [*wrap(screen, head), *key_values(screen, [*held, used])]


def next_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the next occurrences, one per line."""
    head = "   ".join(part for part in (answer["schedule"], answer["trigger"]) if part)
    rows = (
        row_table(Preview, answer["next"], screen)
        if answer["next"]
        else [screen.render("no next occurrence")]
    )
    return [*wrap(screen, head), *rows]


def upcoming_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return what starts next, one per line; in the zone that was asked for, else in the local one."""
    if answer["zone"]:
        screen = replace(screen, zone=load_zone(answer["zone"]))
    until = f"until {format_value(answer['until'], screen)}"
    hint = "more follows: use a larger --limit, --each 1, --tag or --group"
    more = wrap(screen, hint) if answer["more"] else []
    if not answer["occurrences"]:
        return more or wrap(screen, f"nothing is planned {until}")
    head = f"{until}{GAP}times in {answer['zone']}" if answer["zone"] else until
    return [*wrap(screen, head), *row_table(UpcomingOccurrence, answer["occurrences"], screen), *more]


def backfill_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return a new backfill on one line, and its first runs."""
    made, name, rows = answer["backfill"], answer["schedule"], answer["runs"][:MAX_BACKFILL_ROWS]
    if not answer["count"]:
        return wrap(screen, f"{name}   nothing to run: no occurrence in this span is selected")
    parts = [made["backfill"] if made else "", name, f"{answer['count']} run{'s' * (answer['count'] > 1)}"]
    if made:
        since, until = (format_value(made[key], screen) for key in ("since", "until"))
        parts.append(f"{since} to {until}")
    lines = [*wrap(screen, GAP.join(filter(None, parts))), *row_table(RunSummary, rows, screen)]
    left = answer["count"] - len(rows)
    return [*lines, *(wrap(screen, f"… and {left} more; -o json shows up to 1000") if left else [])]


def row_table(kind: type, rows: Sequence[JsonObject], screen: Screen) -> list[str]:
    """Format rows of one type as a table."""
    cells = cells_for(kind, rows)
    return table(
        screen, [one.column for one in cells], [[one.fill(row, screen) for one in cells] for row in rows]
    )


def _times(rows: Sequence[JsonObject], screen: Screen, *, zoned: bool) -> str:
    """Return the instants one per line, all with or all without seconds, each with its note."""
    moments = [(m, row) for row in rows if (m := parse_instant_or_none(row["planned_at"])) is not None]
    seconds = any(moment.second for moment, _ in moments)
    lines = (
        (
            format_instant(moment, screen, seconds=seconds),
            time_in_zone(row["local"], row["zone"] if zoned else "", screen_zone=screen.zone),
            _note_of(row),
        )
        for moment, row in moments
    )
    return "\n".join("   ".join(part for part in parts if part) for parts in lines)


def _note_of(row: JsonObject) -> str:
    """Return why an occurrence will not run, and its note."""
    verdict = f"{row['verdict']}: {row['reason']}" if row["reason"] else ""
    return "; ".join(part for part in (verdict, row["note"]) if part)


def _upstream_line(one: JsonObject, screen: Screen) -> str:
    last = f"last {format_value(one['met_at'], screen)}" if one["met_at"] else "not yet"
    return f"{one['schedule']}: {one['words']} ({last})"


def _downstream_line(one: JsonObject) -> str:
    how = "runs after it" if one["kind"] == "after" else "needs it"
    return f"{one['schedule']} {how} ({one['on']})"


def _revision(schedule: JsonObject, screen: Screen) -> str:
    author, ago = schedule["created_by"] or "unknown", screen.distance(schedule["created_at"])
    return f"{schedule['revision']}, created by {author} {ago}".rstrip()


def _counts(answer: JsonObject) -> str:
    progress = answer["progress"]
    counts = [(progress["runs"], "so far"), (progress["failures"], "failed in a row")]
    counts += [(answer["in_flight"], "in progress"), (answer["held"], "held")]
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "none"


def _target(target: JsonObject) -> str:
    """Return the target on one line."""
    what = target.get(_MAIN_FIELD.get(target["kind"], "payload"))
    text = " ".join(map(str, what)) if isinstance(what, list) else "" if what is None else inline_data(what)
    return " ".join(part for part in (target["kind"], target.get("method", ""), text) if part)


def _changed_policies(schedule: JsonObject) -> Iterator[tuple[str, Any]]:
    """Yield the policies that differ from their defaults."""
    defaults = {field.encode_name: inline_data(to_json_value(field.default)) for field in fields(Schedule)}
    for key, value in schedule.items():
        if key not in _METADATA and value not in (None, [], {}) and inline_data(value) != defaults.get(key):
            yield key, value


def _attempt(one: JsonObject) -> str:
    duration = f" after {duration_of(one)}" if duration_of(one) else ""
    return f"{one['number']}: {one['outcome']}{duration}" + (f": {one['error']}" if one["error"] else "")


def _exact_time(moment: datetime, screen: Screen) -> str:
    local = moment.astimezone(screen.zone)
    offset = full_time(moment, zone=screen.zone)[-6:]
    day = f"{local:%a %Y-%m-%d} {offset}".replace(" ", NBSP)
    distance = relative_time(moment, now=screen.now).replace(" ", NBSP)
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}   {day} ({distance})"


def _schedule_time(answer: JsonObject, moment: datetime | None, screen: Screen) -> str:
    """Return the instant in the schedule's zone, if its offset differs from the local one."""
    if moment is None or not answer["local"]:
        return ""
    local = datetime.fromisoformat(answer["local"])
    same = local.utcoffset() == moment.astimezone(screen.zone).utcoffset()
    return "" if same else f"{local:%a %Y-%m-%d %H:%M:%S} {local.isoformat()[-6:]}".replace(" ", NBSP)


MAX_NEXT_TIMES = 3
GAP = "   "
_TIME_WIDTH = len("14:02:05")


def schedule_line(answer: JsonObject, screen: Screen) -> list[str]:
    """Return `sch_…  hello   every 5s   next 14:02:05 (in 4 s), 14:02:10, 14:02:15`."""
    schedule, progress = answer["schedule"], answer["progress"]
    state = "" if progress["state"] == "active" else progress["state"]
    label, upcoming = _upcoming(answer, screen)
    # The answer to a pause says how its end was read, which the state shows.
    read_as = answer.get("read_as") if state != "paused" else ""
    trigger = screen.localize(read_as or answer["trigger"])
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
    when = f"planned {screen.short_time(run['planned_at'])}"
    parts = [
        run["id"],
        run["schedule"] or run["workflow"] or f"queue {run['queue']}",
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
    if not answer["next"]:
        return "", "no next occurrence"
    planned = [row["planned_at"] for row in answer["next"][:MAX_NEXT_TIMES]]
    first, *rest = [screen.short_time(one).replace(" ", NBSP) for one in planned]
    distance = screen.distance(planned[0])
    zone = answer["next"][0]["zone"] if has_zone(answer["schedule"]["trigger"]) else ""
    there = time_in_zone(answer["next"][0]["local"], zone, screen_zone=screen.zone)
    distance = f"{distance}; {there}" if there else distance
    distance = distance.replace(" ", NBSP)
    # Further times are shown only if they are today.
    return "next", ", ".join([f"{first} ({distance})", *(text for text in rest if len(text) == _TIME_WIDTH)])
