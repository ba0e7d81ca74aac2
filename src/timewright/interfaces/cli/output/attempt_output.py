"""Pages with output: attempts of a run, also while it runs, a calendar feed, a target test."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.rows import format_value
from timewright.interfaces.cli.output.table import Screen, current_screen, escape_control, key_values, wrap
from timewright.interfaces.cli.session import Session, serialize
from timewright.operations import OperationContext, operations

JsonObject = Mapping[str, Any]

POLL_INTERVAL_S = 0.5
OUTPUT_STREAM = "output"
_UNFINISHED = frozenset({"ready", "held", "leased"})


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


class OutputFollower:
    """Polls the output of one run and remembers which headings were printed."""

    def __init__(self, context: OperationContext, request: JsonObject) -> None:
        self._context = context
        self._request = dict(request)
        self._started: set[int] = set()
        self._ended: set[int] = set()
        self._partial_line = ""
        self.is_finished = False

    def poll(self) -> JsonObject:
        """Fetch the output since the last call."""
        answer = operations["run logs"](self._context, self._request)
        self.is_finished = answer["state"] not in _UNFINISHED
        # Stay with this run, even if its schedule starts another.
        self._request |= {"run": answer["run"], "after": answer["cursor"]}
        return answer

    def lines(self, answer: JsonObject) -> list[str]:
        """Return the output as lines; an incomplete last line waits for its rest."""
        screen, lines = current_screen(self._context.now()), []
        for one in answer["attempts"]:
            if one["fence"] not in self._started:
                self._started.add(one["fence"])
                lines += attempt_heading({**one, "outcome": "", "error": ""}, screen)
            ended, was_printed = one["ended_at"] is not None, one["fence"] in self._ended
            for name, text in one["streams"].items():
                # The other streams come with every answer after the end; print them once.
                lines += (
                    self._complete_lines(text, ended=ended)
                    if name == OUTPUT_STREAM or not was_printed
                    else []
                )
            if ended and not was_printed:
                self._ended.add(one["fence"])
                lines += [*self._complete_lines("", ended=True), *attempt_heading(one, screen)]
        return lines

    def _complete_lines(self, text: str, *, ended: bool) -> list[str]:
        *lines, rest = (self._partial_line + text).split("\n")
        if ended and rest:
            lines, rest = [*lines, rest], ""
        self._partial_line = rest
        return [f"  {escape_control(line)}" for line in lines]


def follow_output(session: Session, context: OperationContext, request: JsonObject) -> None:
    """Print the output of a run, polling twice a second, until it ends or is interrupted."""
    follower, pause = OutputFollower(context, request), threading.Event()
    while True:
        answer = follower.poll()
        if session.output == "table":
            session.print(follower.lines(answer))
        elif follower.is_finished or any(one["streams"] for one in answer["attempts"]):
            session.print([serialize(answer, "json", compact=True)])
        if follower.is_finished:
            return
        pause.wait(POLL_INTERVAL_S)
