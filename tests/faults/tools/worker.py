"""One worker process: run what is due on a store until told to stop.

    python -m tests.faults.tools.worker STORE {"stop_wait": 5, "clock": "FILE", "functions": ["note"]}

Its functions append lines to the journal. Its engine prints lines on standard output: `ready`, then the tag
of a fact, the run and the fence. A clock file holds the seconds by which this worker's wall clock is off; it
may change at any time.
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

REPORTED_FACTS = (AnswerStale, LeaseLost, RunReleased, RunSucceeded)
BACKTRACKING_PATTERN = re.compile("a*a*a*a*b")


def write_journal_line(journal: str, ctx: Context, event: str) -> None:
    """Append one line with a single write, so that lines of several processes do not mix."""
    line = f"{event.replace(' ', '_')} {ctx.schedule_name} {ctx.key} {ctx.fence} {os.getpid()}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def note(ctx: Context, journal: str) -> None:
    """Return at once."""
    write_journal_line(journal, ctx, "began")


def note_slowly(ctx: Context, journal: str) -> None:
    """Work for a fifth of a second."""
    write_journal_line(journal, ctx, "began")
    threading.Event().wait(0.2)


def until_cancelled(ctx: Context, journal: str) -> None:
    """In the first lease, work until cancelled; later, return at once."""
    write_journal_line(journal, ctx, "began")
    if ctx.fence == 1:
        ctx.cancelled.wait(120)
        write_journal_line(journal, ctx, f"cancelled: {ctx.cancelled.reason}")


def ignore_cancel(ctx: Context, journal: str, release_file: str) -> str:
    """In the first lease, ignore cancellation until a file exists; later, return at once."""
    write_journal_line(journal, ctx, "began")
    pause = threading.Event()
    while ctx.fence == 1 and not Path(release_file).exists():
        pause.wait(0.02)
    return f"fence {ctx.fence}"


def hold_interpreter(ctx: Context, journal: str, seconds: float) -> float:
    """In the first lease, hold the interpreter lock in one call of some seconds."""
    write_journal_line(journal, ctx, "began")
    letters, took = 80, 0.0
    while ctx.fence == 1 and took < 0.8 * seconds:
        took = backtracking_seconds(letters)
        # The time grows with the fourth power of the letters; the first guess may have been slow by chance.
        letters = int(letters * (seconds / took) ** 0.25) + 1
    return took


def backtracking_seconds(letters: int) -> float:
    """Seconds that the expression takes to fail."""
    began = time.monotonic()
    assert BACKTRACKING_PATTERN.match("a" * letters) is None
    return time.monotonic() - began


class OffsetClock(SystemClock):
    """The host's clock, off by the seconds in a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def now(self) -> datetime:
        """The shifted wall clock."""
        return super().now() + timedelta(seconds=float(self._file.read_text(encoding="utf-8") or 0))


class FactPrinter:
    """Prints facts on standard output."""

    def notify(self, fact: Fact) -> None:
        """Print one line for each fact that tests wait for."""
        if isinstance(fact, ClockStepped):
            print_line(f"clock-stepped {fact.by_seconds:.0f} {fact.treated_as}")
        elif isinstance(fact, REPORTED_FACTS):
            print_line(f"{fact.__struct_config__.tag} {fact.run_id} {getattr(fact, 'fence', 0)}")


def print_line(line: str) -> None:
    """Print with a single write."""
    os.write(1, f"{line}\n".encode())


def main(store: str, options: str) -> None:
    """Run until a signal arrives."""
    faulthandler.register(signal.SIGUSR1)  # prints all stacks when a test fails
    options_given = json.loads(options)
    stop_wait = timedelta(seconds=options_given.get("stop_wait", 5))
    settings = Settings(
        stop_wait=stop_wait, max_sleep=timedelta(seconds=1), **options_given.get("settings", {})
    )
    clock = OffsetClock(options_given["clock"]) if "clock" in options_given else None
    app = Scheduler(store, settings=settings, clock=clock, observers=(FactPrinter(),))
    for function in (note, note_slowly, until_cancelled, ignore_cancel, hold_interpreter):
        if function.__name__ in options_given.get("functions", [function.__name__]):
            app.task()(function)
    threading.Thread(target=report_progress, args=(app,), daemon=True).start()
    app.run()


def report_progress(app: Scheduler) -> None:
    """Print `ready` after the first tick, and `ending` when a signal has arrived."""
    pause = threading.Event()
    while not app.instance.loop.health.ticks:
        pause.wait(0.01)
    print_line("ready")
    while not app._stop_signal.wait():
        continue
    print_line("ending")


if __name__ == "__main__":
    main(*sys.argv[1:])
