"""`run logs --follow`: prints the output of a run until it ends."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from timewright.interfaces.cli.output.attempt_output import attempt_heading
from timewright.interfaces.cli.output.table import current_screen, escape_control
from timewright.interfaces.cli.session import Session, serialize
from timewright.operations import OperationContext, operations

POLL_INTERVAL_S = 0.5
OUTPUT_STREAM = "output"
_UNFINISHED = frozenset({"ready", "held", "leased"})

JsonObject = Mapping[str, Any]


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
