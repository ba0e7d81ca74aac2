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
        lines += heading(one, screen)
        for name, text in one["streams"].items():
            lines.append(screen.say(f"  {name}"))
            lines += [f"    {clean(line)}" for line in text.splitlines()]
        if not one["streams"]:
            silent = "nothing yet" if one["ended_at"] is None else "nothing"
            lines.append(screen.say(f"  it said {silent}"))
    return lines if answer["attempts"] else [*lines, screen.say("no attempt has begun yet")]


def heading(attempt: Plain, screen: Screen) -> list[str]:
    """`attempt 2   failed: exit 1`."""
    ended = f": {attempt['error']}" if attempt["error"] else ""
    return paragraph(screen, f"attempt {attempt['attempt']}   {attempt['outcome']}{ended}")


def feed_page(answer: Plain, screen: Screen) -> list[str]:
    """The text of a feed as it is, for a file that calendars read; on a terminal what it holds."""
    if screen.width is None:
        return str(answer["text"]).splitlines()
    more = ", and there is more" if answer["more"] else ""
    said = [
        ("events", f"{answer['events']}{more}"),
        ("schedules", str(answer["schedules"])),
        ("until", shown(answer["until"], screen)),
        ("its text", "goes into a file: > night.ics"),
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
