"""`run list --follow`: prints runs as they end, and the progress of those that report it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from timewright.errors import TimewrightError
from timewright.interfaces.cli.output.rows import duration_of, start_delay, state_with_mark
from timewright.interfaces.cli.output.table import (
    Screen,
    current_screen,
    display_width,
    escape_control,
    progress_of,
    truncate,
)
from timewright.interfaces.cli.output.times import clock_time, parse_instant_or_none
from timewright.interfaces.cli.session import Session, serialize
from timewright.operations import OperationContext, operations

POLL_INTERVAL_S = 0.5
INITIAL_ROWS = 10
PAGE_ROWS = 200
MAX_WATCHED_RUNS = 50

Row = Mapping[str, Any]
_UNFINISHED = frozenset({"ready", "held", "leased"})


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
            (row for row in rows if row["state"] in _UNFINISHED), key=lambda row: row["state"] != "leased"
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
    moment = parse_instant_or_none(row["planned_at"]) or screen.now
    state = "↻ will retry" if row["state"] == "ready" else state_with_mark(row)
    delay = f"start delay {start_delay(row)}" if start_delay(row) else ""
    # `attempts` counts failures, so a success is one more.
    number = row["attempts"] + (row["state"] == "succeeded")
    attempt = f"attempt {number}" if number else ""
    detail = row["error"] or row["reason"] or row["outcome_label"] or progress_of(row)
    name = row["schedule"] or f"queue {row['queue']}"
    text = f"{name}: {detail}" if detail else name
    when = clock_time(moment, now=screen.now, zone=screen.zone)
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
    return row["state"] not in _UNFINISHED or (row["state"] == "ready" and row["attempts"] > 0)
