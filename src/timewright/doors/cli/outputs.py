"""What work said, on a screen: the kept output of attempts, and what came of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.doors.cli.rows import shown
from timewright.doors.cli.table import Screen, clean, pairs, paragraph

Plain = Mapping[str, Any]


def logs_page(answer: Plain, screen: Screen) -> list[str]:
    """Each attempt with its end, then what it said, line by line as it was said."""
    lines = paragraph(screen, f"{answer['run']}   {answer['state']}")
    for one in answer["attempts"]:
        ended = f": {one['error']}" if one["error"] else ""
        lines += paragraph(screen, f"attempt {one['attempt']}   {one['outcome']}{ended}")
        for name, text in one["streams"].items():
            lines.append(screen.say(f"  {name}"))
            lines += [f"    {clean(line)}" for line in text.splitlines()]
        if not one["streams"]:
            lines.append(screen.say("  it said nothing"))
    return lines if answer["attempts"] else [*lines, screen.say("no attempt has ended yet")]


def feed_page(answer: Plain, screen: Screen) -> list[str]:
    """What a feed holds; the text itself is for programs."""
    more = ", and there is more" if answer["more"] else ""
    said = [
        ("events", f"{answer['events']}{more}"),
        ("schedules", str(answer["schedules"])),
        ("until", shown(answer["until"], screen)),
        ("its text", "-o json has it as text"),
    ]
    return [*paragraph(screen, answer["content_type"]), *pairs(screen, said)]


def trial_page(answer: Plain, screen: Screen) -> list[str]:
    """How a trial ended, or why there was none."""
    outcome = answer["outcome"] or {}
    said = [
        ("target", answer["target"]),
        ("ended", str(outcome.get("kind", "")).replace("_", " ") or f"not tried: {answer['why']}"),
        ("error", outcome.get("error", "")),
        ("result", shown(outcome.get("result"), screen)),
        ("took", answer["took"] if answer["tried"] else ""),
    ]
    return [*paragraph(screen, answer["schedule"]), *pairs(screen, said)]
