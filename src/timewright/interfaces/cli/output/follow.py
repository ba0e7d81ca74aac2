"""The output of attempts, of a feed and of a target test; and runs and output as they come, with --follow."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from timewright.core.run.run import UNFINISHED_STATES
from timewright.errors import TimewrightError
from timewright.interfaces.cli.output.rows import duration_of, format_value, start_delay, state_with_mark
from timewright.interfaces.cli.output.table import (
    Screen,
    current_screen,
    display_width,
    escape_control,
    key_values,
    progress_of,
    truncate,
    wrap,
)
from timewright.interfaces.cli.session import Session, serialize
from timewright.operations import OperationContext, operations

JsonObject = Mapping[str, Any]

POLL_INTERVAL_S = 0.5
OUTPUT_STREAM = "output"


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
        self.is_finished = answer["state"] not in UNFINISHED_STATES
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


INITIAL_ROWS = 10
PAGE_ROWS = 200
MAX_WATCHED_RUNS = 50

Row = Mapping[str, Any]


class RunFollower:
    """Finds the runs that have ended or reported progress since the last poll."""

    def __init__(self, context: OperationContext, request: Mapping[str, Any]) -> None:
        self._context = context
        self._request = {**request, "limit": PAGE_ROWS}
        self._initial_rows = int(request.get("limit", INITIAL_ROWS))
        self._printed: dict[str, str] = {}
        self._in_progress: list[str] = []
        self._has_polled = False

    def poll(self) -> list[Row]:
        """Return the runs that have ended or reported progress since the last call, oldest first."""
        page = operations["run list"](self._context, self._request)["runs"]
        rows = [*self._left_page({row["id"] for row in page}), *reversed(page)]
        changed = [row for row in rows if self._printed.get(row["id"]) != _stage(row)]
        self._printed = {row["id"]: _stage(row) for row in rows}
        # Watch running runs first; waiting ones may take long.
        unfinished = sorted(
            (row for row in rows if row["state"] in UNFINISHED_STATES),
            key=lambda row: row["state"] != "leased",
        )
        self._in_progress = [row["id"] for row in unfinished[:MAX_WATCHED_RUNS]]
        ended = [row for row in changed if _has_ended(row) or progress_of(row)]
        had_polled, self._has_polled = self._has_polled, True
        return ended if had_polled else ended[-self._initial_rows :]

    def _left_page(self, seen: set[str]) -> Iterator[Row]:
        """Yield the watched runs that are no longer on the first page."""
        for run_id in self._in_progress:
            if run_id not in seen:
                try:
                    yield operations["run get"](self._context, {"run": run_id})["run"]
                except TimewrightError:
                    continue


def follow_runs(session: Session, context: OperationContext, request: Mapping[str, Any]) -> None:
    """Print runs as they end, polling twice a second, until interrupted."""
    follower, pause = RunFollower(context, request), threading.Event()
    while True:
        for row in follower.poll():
            session.print(_format_row(row, session, context))
        pause.wait(POLL_INTERVAL_S)


def _format_row(row: Row, session: Session, context: OperationContext) -> list[str]:
    if session.output == "json":
        return [serialize(row, "json", compact=True)]
    if session.output == "yaml":
        return ["---", serialize(row, "yaml")]
    return [row["id"]] if session.quiet else [followed_run_line(row, current_screen(context.now()))]


def followed_run_line(row: Row, screen: Screen) -> str:
    """Return the line of a run: `14:02:05  ✔ succeeded  attempt 1   12 ms   start delay 3 ms   hello`."""
    state = "↻ will retry" if row["state"] == "ready" else state_with_mark(row)
    delay = f"start delay {start_delay(row)}" if start_delay(row) else ""
    # `attempts` counts failures, so a success is one more.
    number = row["attempts"] + (row["state"] == "succeeded")
    attempt = f"attempt {number}" if number else ""
    detail = row["error"] or row["reason"] or row["outcome_label"] or progress_of(row)
    name = row["schedule"] or f"queue {row['queue']}"
    text = f"{name}: {detail}" if detail else name
    when = screen.clock(row["planned_at"])
    mark, _, word = state.partition(" ")
    blank = " " * max(10 - display_width(word), 0)
    rest = f"{attempt:<9}  {duration_of(row):>6}   {delay:<18}   " if attempt else ""
    start = f"{when}  {mark} {word}{blank} {rest}"
    available = max((screen.width or 10_000) - display_width(start) - 1, 8)
    line = (
        f"{when}  {screen.style_mark(mark)} {word}{blank} {rest}{truncate(escape_control(text), available)}"
    )
    return screen.render(line.rstrip())


def _stage(row: Row) -> str:
    return f"{row['state']} {row['attempts']} {progress_of(row)}"


def _has_ended(row: Row) -> bool:
    return row["state"] not in UNFINISHED_STATES or (row["state"] == "ready" and row["attempts"] > 0)
