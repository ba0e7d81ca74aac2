"""Pages with output: attempts of a run, a calendar feed, and a target test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.rows import format_value
from timewright.interfaces.cli.output.table import Screen, escape_control, key_values, wrap

JsonObject = Mapping[str, Any]


def logs_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return each attempt with its result and output."""
    lines = wrap(screen, f"{answer['run']}   {answer['state']}")
    for one in answer["attempts"]:
        lines += attempt_heading(one, screen)
        for name, text in one["streams"].items():
            lines.append(screen.render(f"  {name}"))
            lines += [f"    {escape_control(line)}" for line in text.splitlines()]
        if not one["streams"]:
            text = "no output yet" if one["ended_at"] is None else "no output"
            lines.append(screen.render(f"  {text}"))
    return lines if answer["attempts"] else [*lines, screen.render("no attempt has started yet")]


def attempt_heading(attempt: JsonObject, screen: Screen) -> list[str]:
    """Return the heading of an attempt: `attempt 2   failed: exit 1`."""
    ended = f": {attempt['error']}" if attempt["error"] else ""
    return wrap(screen, f"attempt {attempt['attempt']}   {attempt['outcome']}{ended}")


def feed_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the feed itself for a file or pipe, or a summary for a terminal."""
    if screen.width is None:
        return str(answer["text"]).splitlines()
    more_text = " (more available)" if answer["more"] else ""
    rows = [
        ("events", f"{answer['events']}{more_text}"),
        ("schedules", str(answer["schedules"])),
        ("until", format_value(answer["until"], screen)),
        ("save it", "redirect to a file: > night.ics"),
    ]
    return [*wrap(screen, answer["content_type"]), *key_values(screen, rows)]


def target_test_page(answer: JsonObject, screen: Screen) -> list[str]:
    """Return the result of a target test, or why it was not run."""
    outcome = answer["outcome"] or {}
    rows = [
        ("target", answer["target"]),
        ("result", str(outcome.get("kind", "")).replace("_", " ") or f"not run: {answer['why']}"),
        ("error", outcome.get("error", "")),
        ("data", format_value(outcome.get("result"), screen)),
        ("duration", answer["took"] if answer["tried"] else ""),
    ]
    return [*wrap(screen, answer["schedule"]), *key_values(screen, rows)]
