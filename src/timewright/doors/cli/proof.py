"""The checker's answer in lines: what was looked at, each promise, and the rows of whatever breaks one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.doors.cli.rows import flow, told_time
from timewright.doors.cli.table import Column, Screen, clean, paragraph, table
from timewright.doors.cli.times import instant_in

Plain = Mapping[str, Any]

COLUMNS = (Column(""), Column("PROMISE", 12), Column("LOOKED AT", right=True), Column("FOUND", 10))


def proof_page(answer: Plain, screen: Screen) -> list[str]:
    """Every promise with a mark, then what breaks any, with its rows."""
    lines = table(screen, COLUMNS, [_row(one) for one in answer["promises"]])
    for broken in answer["violations"]:
        lines += ["", *paragraph(screen, clean(f"✘ {broken['promise']}: {broken['message']}"))]
        for row in broken["rows"]:
            lines += paragraph(screen, clean(flow(row)))
    return [*lines, "", *paragraph(screen, _sum(answer, screen))]


def _row(one: Plain) -> list[str]:
    if one["not_checked"]:
        return [f"· {one['promise']}", one["name"], "", one["not_checked"]]
    mark = "✘" if one["broken"] else "✔" if one["looked_at"] else "·"
    found = f"{one['broken']} broken" if one["broken"] else ""
    return [f"{mark} {one['promise']}", one["name"], f"{one['looked_at']} {one['of_what']}", found]


def _sum(answer: Plain, screen: Screen) -> str:
    checked = [one for one in answer["promises"] if one["looked_at"] or one["broken"]]
    broken = sum(bool(one["broken"]) for one in checked)
    verdict = f"{broken} of {len(checked)} promises broken" if broken else f"{len(checked)} promises hold"
    rest = len(answer["promises"]) - len(checked)
    beside = f", {rest} had nothing to look at" if rest else ""
    looked = f"{answer['occurrences']} occurrences, {answer['runs']} runs, {answer['attempts']} ended leases"
    moment = instant_in(answer["since"])
    since = f", since {told_time(moment, screen)}" if moment is not None else ""
    cut = "; there are more, and only the newest were looked at" if answer["cut"] else ""
    return f"{verdict}{beside}: {looked} of {answer['schedules']} schedules{since}{cut}"
