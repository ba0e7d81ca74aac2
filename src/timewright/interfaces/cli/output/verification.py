"""Prints the answer of `verify`: each promise, and the rows that violate one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.rows import format_instant, inline_data
from timewright.interfaces.cli.output.table import Column, Screen, escape_control, table, wrap
from timewright.interfaces.cli.output.times import parse_instant_or_none

JsonObject = Mapping[str, Any]

COLUMNS = (Column(""), Column("PROMISE", 12), Column("CHECKED", align_right=True), Column("VIOLATIONS", 10))


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
        return [f"· {one['promise']}", one["name"], "", one["not_checked"]]
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
    return f"{verdict}{unchecked}: {counts} of {answer['schedules']} schedules{since}{cut}"
