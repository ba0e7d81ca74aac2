"""Following runs: what ended is told as it ends, one line each, until someone has seen enough."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from timewright.doors.cli.rows import start_delay, state_of, took
from timewright.doors.cli.session import Session, as_text
from timewright.doors.cli.table import Screen, clean, columns_of, fitted, screen_at
from timewright.doors.cli.times import clock_time, instant_in
from timewright.errors import TimewrightError
from timewright.operations import Context, operations

EVERY_SECONDS = 0.5
SHOWN_AT_FIRST = 10
PAGE = 200
MOST_WATCHED = 50

Row = Mapping[str, Any]
_UNSETTLED = frozenset({"ready", "held", "leased"})


class Followed:
    """Which runs were told about, and which are still to end."""

    def __init__(self, context: Context, request: Mapping[str, Any]) -> None:
        self._context = context
        self._request = {**request, "limit": PAGE}
        self._first = int(request.get("limit", SHOWN_AT_FIRST))
        self._told: dict[str, str] = {}
        self._watched: list[str] = []
        self._began = False

    def news(self) -> list[Row]:
        """The runs that came to rest since the last look, oldest first."""
        page = operations["run list"](self._context, self._request)["runs"]
        rows = [*self._left_behind({row["id"] for row in page}), *reversed(page)]
        fresh = [row for row in rows if self._told.get(row["id"]) != _stage(row)]
        self._told = {row["id"]: _stage(row) for row in rows}
        # Those that are under way end next; what waits in a line may wait for long.
        unsettled = sorted(
            (row for row in rows if row["state"] in _UNSETTLED), key=lambda row: row["state"] != "leased"
        )
        self._watched = [row["id"] for row in unsettled[:MOST_WATCHED]]
        settled = [row for row in fresh if _is_news(row)]
        began, self._began = self._began, True
        return settled if began else settled[-self._first :]

    def _left_behind(self, seen: set[str]) -> Iterator[Row]:
        """Runs that were under way and have left the page meanwhile."""
        for run_id in self._watched:
            if run_id not in seen:
                try:
                    yield operations["run get"](self._context, {"run": run_id})["run"]
                except TimewrightError:
                    continue


def follow(session: Session, context: Context, request: Mapping[str, Any]) -> None:
    """Tell about runs as they end, looking twice a second, until interrupted."""
    followed, pause = Followed(context, request), threading.Event()
    while True:
        for row in followed.news():
            session.say(_told(row, session, context))
        pause.wait(EVERY_SECONDS)


def _told(row: Row, session: Session, context: Context) -> list[str]:
    if session.output == "json":
        return [as_text(row, "json", compact=True)]
    if session.output == "yaml":
        return ["---", as_text(row, "yaml")]
    return [row["id"]] if session.quiet else [line_of(row, screen_at(context.now()))]


def line_of(row: Row, screen: Screen) -> str:
    """`14:02:05  ✔ succeeded  attempt 1   12 ms   start delay 3 ms   hello`."""
    moment = instant_in(row["planned_at"]) or screen.now
    state = "↻ will retry" if row["state"] == "ready" else state_of(row)
    delay = f"start delay {start_delay(row)}" if start_delay(row) else ""
    # Only failures are charged, so the attempt that succeeded is the one after them.
    number = row["attempts"] + (row["state"] == "succeeded")
    attempt = f"attempt {number}" if number else ""
    said = row["error"] or row["reason"] or row["word"]
    name = row["schedule"] or f"queue {row['queue']}"
    told = f"{name}: {said}" if said else name
    when = clock_time(moment, now=screen.now, zone=screen.zone)
    mark, _, word = state.partition(" ")
    blank = " " * max(10 - columns_of(word), 0)
    rest = f"{attempt:<9}  {took(row):>6}   {delay:<18}   " if attempt else ""
    start = f"{when}  {mark} {word}{blank} {rest}"
    room = max((screen.width or 10_000) - columns_of(start) - 1, 8)
    line = f"{when}  {screen.mark(mark)} {word}{blank} {rest}{fitted(clean(told), room)}"
    return screen.say(line.rstrip())


def _stage(row: Row) -> str:
    return f"{row['state']} {row['attempts']}"


def _is_news(row: Row) -> bool:
    return row["state"] not in _UNSETTLED or (row["state"] == "ready" and row["attempts"] > 0)
