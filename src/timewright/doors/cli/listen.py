"""Listening to a run: what its attempts say is shown as it comes, until the run is over."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from timewright.doors.cli.outputs import heading
from timewright.doors.cli.session import Session, as_text
from timewright.doors.cli.table import clean, screen_at
from timewright.operations import Context, operations

EVERY_SECONDS = 0.5
OUTPUT = "output"
_UNSETTLED = frozenset({"ready", "held", "leased"})

Plain = Mapping[str, Any]


class Listener:
    """One run: how far it was heard, and which attempts were announced or told to be over."""

    def __init__(self, context: Context, request: Plain) -> None:
        self._context = context
        self._request = dict(request)
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._unfinished = ""
        self.is_over = False

    def news(self) -> Plain:
        """What came since the last look."""
        answer = operations["run logs"](self._context, self._request)
        self.is_over = answer["state"] not in _UNSETTLED
        # From here on it is this run, also if its schedule has started another meanwhile.
        self._request |= {"run": answer["run"], "after": answer["cursor"]}
        return answer

    def lines(self, answer: Plain) -> list[str]:
        """What came, as lines; half a line waits for its rest."""
        screen, shown = screen_at(self._context.now()), []
        for one in answer["attempts"]:
            if one["fence"] not in self._begun:
                self._begun.add(one["fence"])
                shown += heading({**one, "outcome": "", "error": ""}, screen)
            over, told = one["ended_at"] is not None, one["fence"] in self._ended
            for name, text in one["streams"].items():
                # What an end brings with it comes with every answer, and is shown once.
                shown += self._whole(text, over=over) if name == OUTPUT or not told else []
            if over and not told:
                self._ended.add(one["fence"])
                shown += [*self._whole("", over=True), *heading(one, screen)]
        return shown

    def _whole(self, text: str, *, over: bool) -> list[str]:
        *lines, rest = (self._unfinished + text).split("\n")
        if over and rest:
            lines, rest = [*lines, rest], ""
        self._unfinished = rest
        return [f"  {clean(line)}" for line in lines]


def listen(session: Session, context: Context, request: Plain) -> None:
    """Show what a run says, looking twice a second, until it is over or someone has heard enough."""
    listener, pause = Listener(context, request), threading.Event()
    while True:
        answer = listener.news()
        if session.output == "table":
            session.say(listener.lines(answer))
        elif listener.is_over or any(one["streams"] for one in answer["attempts"]):
            session.say([as_text(answer, "json", compact=True)])
        if listener.is_over:
            return
        pause.wait(EVERY_SECONDS)
