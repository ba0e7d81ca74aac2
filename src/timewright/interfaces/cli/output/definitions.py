"""Prints plans, drift, exported files and the schema of files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timewright.interfaces.cli.output.rows import format_value
from timewright.interfaces.cli.output.table import Screen, escape_control, wrap
from timewright.interfaces.cli.output.times import parse_instant_or_none, relative_time

JsonObject = Mapping[str, Any]

MARKS = {
    "created": "+",
    "updated": "~",
    "adopted": "~",
    "archived": "-",
    "removed": "-",
    "stays_archived": "!",
}
MAX_TIMES_SHOWN = 5


def plan_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return each change with its fields and what follows from it, then the sums."""
    lines = [line for one in answer["changes"] for line in _change_lines(one, screen)]
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in answer["counts"].items())
    lines.append(f"{counts or 'nothing'}   plan {answer['plan']}")
    return [part for line in lines for part in wrap(screen, escape_control(line))]


def drift_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return each definition that drifted, with the fields as declared and as they are now."""
    lines: list[str] = []
    for one in answer["definitions"]:
        at = parse_instant_or_none(one["at"] or "")
        by = f" by {one['actor']}" if one["actor"] else ""
        when = f" {relative_time(at, now=screen.now)}" if at is not None else ""
        why = f": {one['reason']}" if one["reason"] else ""
        lines.append(f"! {one['kind']} {one['name']}   {one['drift']}{by}{when}{why}   owner {one['owner']}")
        lines += _field_lines(one["fields"], screen)
    lines = lines or ["no drift: every owned definition is as declared"]
    return [part for line in lines for part in wrap(screen, escape_control(line))]


def export_page(answer: JsonObject, _screen: Screen) -> list[str]:
    """Return the text of the file as it is."""
    return str(answer["text"]).rstrip("\n").split("\n")


def schema_page(answer: JsonObject, _screen: Screen) -> list[str]:
    """Return the JSON Schema alone, to write it into a file."""
    return [json.dumps(answer["json_schema"], indent=2)]


def _change_lines(one: JsonObject, screen: Screen) -> Iterator[str]:
    moved = (
        f"   {one['owner_before']} → {one['owner']}" if one["owner_before"] not in ("", one["owner"]) else ""
    )
    word = one["change"].replace("_", " ")
    yield f"{MARKS[one['change']]} {one['kind']} {one['name']}   {word}{moved}"
    if one["change"] == "created":
        yield from (f"    {f['field']}: {format_value(f['after'], screen)}" for f in one["fields"])
    elif one["change"] == "updated":
        yield from _field_lines(one["fields"], screen)
    if one["next_before"] != one["next_after"]:
        before = f"{_times(one['next_before'], screen)} → " if one["next_before"] else ""
        yield f"    next     {before}{_times(one['next_after'], screen)}"
    if one["runs_now"]:
        yield f"    runs now {len(one['runs_now'])}: {_times(one['runs_now'], screen)}"
    if one["skips_now"]:
        yield f"    skips    {one['skips_now']} occurrences that are due now"
    for note in one["notes"]:
        yield f"    note     {note}"


def _field_lines(fields: Sequence[JsonObject], screen: Screen) -> Iterator[str]:
    for one in fields:
        before, after = (format_value(one[key], screen) or "(default)" for key in ("before", "after"))
        yield f"    {one['field']}: {before} → {after}"


def _times(moments: Sequence[str], screen: Screen) -> str:
    shown = [format_value(one, screen) for one in moments[:MAX_TIMES_SHOWN]]
    more = f", and {len(moments) - len(shown)} more" if len(moments) > len(shown) else ""
    return ", ".join(shown) + more if shown else "never"
