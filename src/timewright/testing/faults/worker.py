"""One worker as a program of its own: run what is due on a place until told to end.

    python -m timewright.testing.faults.worker PLACE {"stop_wait": 5, "clock": "FILE"}

What its functions do goes to the journal, a line each, written whole. What its engine tells goes to the
standard output, a line each: `ready`, then the tag of the fact, the run and the fence. A clock is a file with
the seconds by which the wall clock of this worker is wrong; it may be written anew at any time.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

from timewright import Context, Scheduler, Settings
from timewright.clocks import SystemClock
from timewright.core.facts import AnswerStale, ClockStepped, Fact, LeaseLost, RunReleased, RunSucceeded

TOLD = (AnswerStale, LeaseLost, RunReleased, RunSucceeded)
BACKTRACKS = re.compile("a*a*a*a*b")


def write_down(journal: str, ctx: Context, word: str) -> None:
    """One line, in one write to the end of the file: no other process can come between its letters."""
    line = f"{word.replace(' ', '_')} {ctx.schedule_name} {ctx.key} {ctx.fence} {os.getpid()}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def note(ctx: Context, journal: str) -> None:
    """Be there and gone."""
    write_down(journal, ctx, "began")


def until_told(ctx: Context, journal: str) -> None:
    """In the first lease work until asked to stop; in a later one be done at once."""
    write_down(journal, ctx, "began")
    if ctx.fence == 1:
        ctx.cancelled.wait(120)
        write_down(journal, ctx, f"told: {ctx.cancelled.reason}")


def deaf(ctx: Context, journal: str, door: str) -> str:
    """In the first lease work until a file is there, whoever asks us to stop; later be done at once."""
    write_down(journal, ctx, "began")
    pause = threading.Event()
    while ctx.fence == 1 and not Path(door).exists():
        pause.wait(0.02)
    return f"fence {ctx.fence}"


def grind(ctx: Context, journal: str, seconds: float) -> float:
    """In the first lease hold the interpreter in one call of some seconds, which lets nobody else run."""
    write_down(journal, ctx, "began")
    letters, took = 80, 0.0
    while ctx.fence == 1 and took < 0.8 * seconds:
        took = backtracking_seconds(letters)
        # The work grows with the fourth power of the letters; a first guess may have been a slow moment.
        letters = int(letters * (seconds / took) ** 0.25) + 1
    return took


def backtracking_seconds(letters: int) -> float:
    """How long the expression takes to find that it does not fit."""
    began = time.monotonic()
    assert BACKTRACKS.match("a" * letters) is None
    return time.monotonic() - began


class WrongClock(SystemClock):
    """The host's clock, wrong by as many seconds as a file says."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def now(self) -> datetime:
        """The wall clock, moved."""
        return super().now() + timedelta(seconds=float(self._file.read_text(encoding="utf-8") or 0))


class Tell:
    """Says what happens in this worker."""

    def note(self, fact: Fact) -> None:
        """One line for each fact that the tests wait for."""
        if isinstance(fact, ClockStepped):
            say(f"clock-stepped {fact.by_seconds:.0f} {fact.treated_as}")
        elif isinstance(fact, TOLD):
            say(f"{fact.__struct_config__.tag} {fact.run_id} {getattr(fact, 'fence', 0)}")


def say(line: str) -> None:
    """To the standard output, in one write."""
    os.write(1, f"{line}\n".encode())


def main(place: str, options: str) -> None:
    """Work until a signal comes."""
    faulthandler.register(signal.SIGUSR1)  # where everyone is, for whoever asks why nothing happens
    asked = json.loads(options)
    stop_wait = timedelta(seconds=asked.get("stop_wait", 5))
    settings = Settings(stop_wait=stop_wait, longest_rest=timedelta(seconds=1))
    clock = WrongClock(asked["clock"]) if "clock" in asked else None
    app = Scheduler(place, settings=settings, clock=clock, observers=(Tell(),))
    for function in (note, until_told, deaf, grind):
        app.task()(function)
    threading.Thread(target=announce, args=(app,), daemon=True).start()
    app.run()


def announce(app: Scheduler) -> None:
    """Say that it works, when it minds signals and has looked once; and that the signal has come."""
    pause = threading.Event()
    while not app.house.loop.pulse.ticks:
        pause.wait(0.01)
    say("ready")
    while not app._ended.is_near():  # noqa: SLF001  nobody outside is told that a signal has come
        continue
    say("ending")


if __name__ == "__main__":
    main(*sys.argv[1:])
