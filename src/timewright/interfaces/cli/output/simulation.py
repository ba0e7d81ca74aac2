"""The report of a simulation: as lines for a terminal, and as one HTML page with pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from html import escape
from typing import Any

from timewright.core.moments import parse_instant
from timewright.core.run.simulation import SimulatedLimit, SimulatedSchedule, SimulationReport
from timewright.interfaces.cli.output.table import Column, Screen, table, wrap
from timewright.interfaces.cli.output.times import format_duration, full_time

WITHOUT_SCHEDULE = "(workflow steps)"
MAX_SHOWN = 50
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 160, 46, 22

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;
color:#1b2430;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}th,td{text-align:left;padding:.25rem .6rem;
border-bottom:1px solid #dde3ea}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#5a6675}.facts b{font-size:1.4rem}
.facts span{display:inline-block;margin-right:2rem}
@media(prefers-color-scheme:dark){body{background:#12171d;color:#dbe3ec}th,td{border-color:#2b3542}
svg text{fill:#93a1b1}}
"""


def report_lines(report: SimulationReport, screen: Screen) -> list[str]:
    """Return the report as lines: a summary, the schedules, and the limits that made runs wait."""
    lines = wrap(screen, _summary(report, screen.zone))
    columns = [
        Column("schedule"),
        Column("runs", align_right=True),
        Column("skipped"),
        Column("delayed", align_right=True),
        Column("p95 delay", align_right=True),
        Column("max delay", align_right=True),
        Column("busy", align_right=True, optional=True),
    ]
    lines += ["", *table(screen, columns, [_schedule_row(one) for one in _worst(report)])]
    if len(report.schedules) > MAX_SHOWN:
        lines.append(f"… and {len(report.schedules) - MAX_SHOWN} more schedules; -o json has all")
    waited = [one for one in report.limits if one.delayed or one.peak]
    if waited:
        titles = [
            Column("limit"),
            *(Column(name, align_right=True) for name in ("capacity", "peak", "delayed", "max delay")),
        ]
        lines += ["", *table(screen, titles, [_limit_row(one) for one in waited])]
    if report.rows:
        lines += ["", *_run_lines(report, screen)]
    return lines


def replay_lines(report: Mapping[str, Any], screen: Screen) -> list[str]:
    """Return what a replay decided differently, and the hints of the span with the ids that it takes."""
    found = report["differences"]
    since, until = (full_time(parse_instant(report[name]), zone=screen.zone) for name in ("since", "until"))
    lines = [f"{since} to {until}: {report['decisions']} decisions again, {len(found)} of them differ"]
    rows = [
        (
            one["schedule"],
            full_time(parse_instant(one["planned_at"]), zone=screen.zone),
            one["recorded"] or "nothing",
            one["replayed"] or "nothing",
        )
        for one in found[:MAX_SHOWN]
    ]
    if rows:
        columns = [Column("schedule"), Column("planned"), Column("recorded"), Column("decided now")]
        lines += ["", *table(screen, columns, rows)]
    if len(found) > MAX_SHOWN:
        lines.append(f"… and {len(found) - MAX_SHOWN} more; -o json has all")
    hints = [
        (one["id"], one["kind"], one["actor"], "left out" if one["left_out"] else "", one["reason"])
        for one in report["hints"][:MAX_SHOWN]
    ]
    if hints:
        names = ("hint", "kind", "by", "replay", "reason")
        lines += ["", *table(screen, [Column(name) for name in names], hints)]
    return lines


def html_report(report: SimulationReport, *, zone: tzinfo) -> str:
    """Return one page without references to other files: a summary, pictures and tables."""
    facts = {
        "runs": report.runs,
        "skipped": sum(report.skipped.values()),
        "started late": report.delayed,
        "at the same time": report.peak,
    }
    shown = "".join(f"<span><b>{value:,}</b> {escape(name)}</span>" for name, value in facts.items())
    reasons = ", ".join(f"{count:,} {escape(reason)}" for reason, count in report.skipped.items())
    pictures = "".join(
        f"<h2>{title}</h2>{_bars(report, [getattr(one, field) for one in report.periods], color, zone)}"
        for title, field, color in (
            ("Starts", "starts", "#2f6fd0"),
            ("Running at the same time", "peak", "#2e8b57"),
            ("Started late", "delayed", "#c77d0a"),
            ("Skipped", "skipped", "#b3373f"),
        )
        if any(getattr(one, field) for one in report.periods)
    )
    schedules = _html_table(
        ("schedule", "runs", "skipped", "delayed", "p95 delay", "max delay", "busy"),
        [_schedule_row(one) for one in report.schedules],
    )
    limits = _html_table(
        ("limit", "capacity", "peak", "delayed", "max delay"),
        [_limit_row(one) for one in report.limits],
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Simulation</title><style>{_STYLE}</style></head><body><h1>Simulation</h1>"
        f"<p>{escape(full_time(report.since, zone=zone))} to {escape(full_time(report.until, zone=zone))}</p>"
        f'<p class="facts">{shown}</p>'
        + (f"<p>Skipped: {reasons}.</p>" if reasons else "")
        + "".join(
            f"<p>Outage: {escape(full_time(a, zone=zone))} to {escape(full_time(b, zone=zone))}</p>"
            for a, b in report.outages
        )
        + pictures
        + (f"<h2>Limits</h2>{limits}" if report.limits else "")
        + f"<h2>Schedules</h2>{schedules}</body></html>\n"
    )


def limit_name(key: str) -> str:
    """Return a limit as people name it: `queue mail`, `limit bank-api`, `workers`."""
    kind, sign, rest = key.partition(":")
    return f"{kind} {rest.partition('/')[2]}" if sign else key


def _summary(report: SimulationReport, zone: tzinfo) -> str:
    skipped = ", ".join(f"{count} {reason}" for reason, count in report.skipped.items()) or "0"
    span = f"{full_time(report.since, zone=zone)} to {full_time(report.until, zone=zone)}"
    late = f"{report.delayed} started late, at most {report.peak} at the same time"
    return f"{span}: {report.runs} runs, skipped: {skipped}; {late}"


def _worst(report: SimulationReport) -> list[SimulatedSchedule]:
    """The schedules with the most skips and delays first."""

    def weight(one: SimulatedSchedule) -> tuple[int, str]:
        return -sum(one.skipped.values()) - one.delayed, one.schedule

    return sorted(report.schedules, key=weight)[:MAX_SHOWN]


def _schedule_row(one: SimulatedSchedule) -> tuple[str, ...]:
    skipped = ", ".join(f"{count} {reason}" for reason, count in one.skipped.items())
    delays = (_length(one.p95_delay), _length(one.max_delay))
    name = one.schedule or WITHOUT_SCHEDULE
    return (name, str(one.runs), skipped, str(one.delayed or ""), *delays, _length(one.busy))


def _limit_row(one: SimulatedLimit) -> tuple[str, ...]:
    capacity, delay = str(one.capacity or ""), _length(one.max_delay)
    return limit_name(one.limit), capacity, str(one.peak), str(one.delayed), delay


def _run_lines(report: SimulationReport, screen: Screen) -> list[str]:
    columns = [Column(name) for name in ("planned", "schedule", "state", "delay", "waited for")]
    rows = [
        (
            full_time(one.planned_at, zone=screen.zone, seconds=True),
            one.schedule or WITHOUT_SCHEDULE,
            f"{one.state}: {one.reason}" if one.reason else one.state,
            _length(one.delay),
            limit_name(one.waited_for),
        )
        for one in report.rows
    ]
    more = [f"… and {report.more_rows} more decisions"] if report.more_rows else []
    return [*table(screen, columns, rows), *more]


def _length(length: timedelta | None) -> str:
    return format_duration(length) if length else ""


def _html_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        marks = [
            "" if number == 0 or title == "skipped" else ' class="n"' for number, title in enumerate(titles)
        ]
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', titles)}</tr></thead><tbody>{body}</tbody></table>"


def _bars(report: SimulationReport, values: Sequence[int], color: str, zone: tzinfo) -> str:
    """Return a bar chart of one value for each period, with outages shaded and the highest value marked."""
    top, width = max(values), (WIDTH - LEFT) / max(len(values), 1)
    plot = HEIGHT - BOTTOM

    def x(moment: datetime) -> float:
        share = (moment - report.since) / (report.until - report.since)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT)

    shades = "".join(
        _rect(x(a), 0, max(x(b) - x(a), 1), plot, 'fill="#888" opacity=".25"') for a, b in report.outages
    )
    bars = "".join(
        _rect(
            LEFT + i * width,
            plot - plot * value / top,
            max(width - 0.5, 0.5),
            plot * value / top,
            f'fill="{color}"',
            title=f"{full_time(report.periods[i].at, zone=zone)}: {value}",
        )
        for i, value in enumerate(values)
        if value
    )
    instants = (
        (report.since, "start"),
        (report.since + (report.until - report.since) / 2, "middle"),
        (report.until, "end"),
    )
    marks = "".join(_text(x(at), HEIGHT - 6, anchor, full_time(at, zone=zone)) for at, anchor in instants)
    scale = _text(LEFT - 6, 11, "end", str(top)) + _text(LEFT - 6, plot, "end", "0")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{shades}{bars}{scale}{marks}</svg>'


def _rect(x: float, y: float, width: float, height: float, style: str, *, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}>{inner}</rect>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
