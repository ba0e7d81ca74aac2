"""Prints findings, health, incidents, channels, pauses and the answer of `verify`; checks for migrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.core.alerts.incidents import Incident
from timewright.core.schedule.pauses import Pause
from timewright.interfaces.cli.output.errors import EXIT_DIFFERENCES
from timewright.interfaces.cli.output.rows import (
    ROWS,
    Row,
    cell,
    format_instant,
    format_value,
    inline_data,
    instant,
    value,
)
from timewright.interfaces.cli.output.table import (
    NBSP,
    Column,
    Screen,
    escape_control,
    key_values,
    table,
    wrap,
)
from timewright.interfaces.cli.output.times import (
    format_duration,
    parse_duration_or_none,
    parse_instant_or_none,
)
from timewright.interfaces.cli.session import Session, inspect_store, store_path
from timewright.interfaces.program import with_program
from timewright.operations.alerts.channels import ChannelDetail

JsonObject = Mapping[str, Any]

EXIT_FAILED = 1

COLUMNS = (Column(""), Column("PROMISE", 12), Column("CHECKED", align_right=True), Column("VIOLATIONS", 10))


_WINDOW_COLUMNS = (
    Column("WINDOW"),
    Column("RESULTS", 12),
    *(Column(title, align_right=True) for title in ("SUCCESS", "MEDIAN", "P95", "DELAY P95")),
)


def health_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the health of a schedule over three windows."""
    rows = [
        (key.replace("_", " "), format_value(value, screen))
        for key, value in answer.items()
        if key != "windows"
    ]
    windows = [_window_cells(name, row) for name, row in answer["windows"].items()]
    return [*key_values(screen, rows, indent=0), *table(screen, _WINDOW_COLUMNS, windows)]


def _window_cells(name: str, row: JsonObject) -> list[str]:
    """Return the cells of one health window."""
    rate = row["success_rate"]
    measured = [(row["duration"], "median"), (row["duration"], "p95"), (row["delay"], "p95")]
    spans = [parse_duration_or_none(spread[key]) for spread, key in measured]
    results = [f"{count} {state}" for state, count in sorted(row["outcomes"].items())]
    return [
        name,
        ", ".join(results) or "none",
        f"{rate:.0%}" if rate is not None else "",
        *(format_duration(span) if span is not None else "" for span in spans),
    ]


def findings_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return a line per finding, with its remedy."""
    lines: list[str] = []
    for one in answer["findings"]:
        remedy = f"{NBSP * 3}fix: {with_program(one['remedy'], screen.options)}" if one["remedy"] else ""
        severity = f"{one['severity']:<6}".replace(" ", NBSP)
        lines += wrap(screen, f"{severity}{one['sentence']}{remedy}", hang=6)
    return lines or ["ok    nothing was found"]


def overdue_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return a line per overdue item, with its remedy."""
    return findings_page({"findings": answer["late"]}, screen) if answer["late"] else ["nothing is overdue"]


def exit_code_for(operation: str, answer: JsonObject) -> int:
    """Return 1 if a check, a verification, the audit chain or a target test fails, 3 for differences."""
    if operation in ("doctor", "lint"):
        return EXIT_FAILED if answer["severity"] == "fail" else 0
    if operation == "verify":
        return 0 if answer["holds"] else EXIT_FAILED
    if operation == "audit verify":
        return 0 if answer["intact"] else EXIT_FAILED
    if operation == "schedule test" and answer["tried"]:
        return 0 if answer["outcome"]["kind"] == "succeeded" else EXIT_FAILED
    if operation in ("plan", "diff"):
        return EXIT_DIFFERENCES if answer["changed"] else 0
    return 0


def pending_migrations(session: Session) -> dict[str, Any] | None:
    """Return a finding if migrations are pending; checked without opening, which would apply them."""
    if session.given.get("server"):
        return None
    path = store_path(session.store_url)
    if path is not None and not path.exists():
        return None
    info = inspect_store(session.store_url)
    if not info.exists or not info.pending_migrations:
        return None
    finding = {
        "kind": "schema",
        "severity": "fail",
        "sentence": f"{info.engine}: the schema lacks migrations: {', '.join(info.pending_migrations)}",
        "remedy": "timewright backup FILE, then timewright migrate",
    }
    return {"severity": "fail", "findings": [finding]}


def _incident_state(row: Row, screen: Screen) -> str:
    if row["closed_at"]:
        return "closed"
    if row["acknowledged_at"]:
        return "acknowledged"
    return f"snoozed until {screen.clock(row['snoozed_until'])}" if row["snoozed_until"] else "open"


def _channel_kind(row: Row, _screen: Screen) -> str:
    return row["channel"]["to"]["kind"] if row["channel"] is not None else "unreadable"


def _channel_filters(row: Row, _screen: Screen) -> str:
    filters = ("events", "kinds", "severities", "schedules", "groups")
    return ", ".join(word for name in filters for word in (row["channel"] or {}).get(name, ()))


def _paused(row: Row, _screen: Screen) -> str:
    scope: str = row["scope"]
    return scope if scope == "installation" else f"{scope} {row['name'] or row['namespace']}"


# Registered here, so that every table of these types uses them.
ROWS |= {
    Incident: (
        instant("since", "SINCE"),
        cell("STATE", _incident_state),
        value("sentence", 20, title="INCIDENT"),
        # Whole, because an incident has no other name to acknowledge it by.
        value("id"),
    ),
    ChannelDetail: (
        value("name", 8),
        cell("SENDS TO", _channel_kind),
        cell("GETS", _channel_filters, 8),
        value("waiting", align_right=True),
        value("parked", align_right=True),
    ),
    Pause: (
        cell("PAUSED", _paused, 10),
        value("due"),
        instant("at", "SINCE"),
        cell("UNTIL", lambda row, screen: screen.clock(row["until"]) or "resumed"),
        value("actor", 6, title="BY"),
        value("reason", 10),
    ),
}


def verification_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return a table of all promises, then the violations with their rows."""
    lines = table(screen, COLUMNS, [_row(one) for one in answer["promises"]])
    for broken in answer["violations"]:
        lines += ["", *wrap(screen, escape_control(f"✘ {broken['promise']}: {broken['message']}"))]
        for row in broken["rows"]:
            lines += wrap(screen, escape_control(inline_data(row)))
    return [*lines, "", *wrap(screen, _summary(answer, screen))]


def _row(one: JsonObject) -> list[str]:
    if one["not_checked"]:
        return [f"· {one['promise']}", one["name"], one["not_checked"].partition(": ")[2], ""]
    mark = "✘" if one["broken"] else "✔" if one["checked"] else "·"
    found = f"{one['broken']} broken" if one["broken"] else ""
    return [f"{mark} {one['promise']}", one["name"], f"{one['checked']} {one['unit']}", found]


def _summary(answer: JsonObject, screen: Screen) -> str:
    checked = [one for one in answer["promises"] if one["checked"] or one["broken"]]
    broken = sum(bool(one["broken"]) for one in checked)
    verdict = f"{broken} of {len(checked)} promises broken" if broken else f"{len(checked)} promises hold"
    rest = len(answer["promises"]) - len(checked)
    unchecked = f", {rest} had nothing to check" if rest else ""
    counts = f"{answer['occurrences']} occurrences, {answer['runs']} runs, {answer['attempts']} ended leases"
    moment = parse_instant_or_none(answer["since"])
    since = f", since {format_instant(moment, screen)}" if moment is not None else ""
    cut = "; only the newest were checked" if answer["cut"] else ""
    schedules = f"{answer['schedules']} schedule{'' if answer['schedules'] == 1 else 's'}"
    return f"{verdict}{unchecked}: {counts} of {schedules}{since}{cut}"
