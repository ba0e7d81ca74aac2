"""What the threads of a loop share: a sleep that any of them ends, and the counters for health checks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct, field

from timewright.engine.constants import OUTAGE_ERRORS


class EventWaker:
    """A sleep that any thread may end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Sleep at most this long; return whether `wake` ended the sleep."""
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken

    def wake(self) -> None:
        """End the current sleep, or the next one at once."""
        if not self._event.is_set():
            self._event.set()


class LoopHealth(Struct):
    """What the threads of a loop count; changed under its lock, read without it."""

    ticks: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    last_error: str = ""
    last_tick_at: datetime | None = None
    facts_lost: int = 0
    clock_problem: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    on_outage: Callable[[str], None] | None = None
    """Called with the error when the store fails several times in a row, with "" when it answers again."""

    def record_success(self, *, ticked_at: datetime | None = None) -> None:
        """The store was written or read without an error."""
        with self.lock:
            is_recovery = self.errors_in_a_row >= OUTAGE_ERRORS
            self.errors_in_a_row = 0
            if ticked_at is not None:
                self.ticks += 1
                self.last_tick_at = ticked_at
        if is_recovery and self.on_outage is not None:
            self.on_outage("")

    def on_observer_error(self, error: BaseException) -> None:
        """Keep the error of an observer; it stops nothing."""
        self.last_error = f"observer: {type(error).__name__}: {error}"

    def record_failure(self, error: BaseException) -> int:
        """Count an error of the tick or the settle thread; return how many there were in a row."""
        with self.lock:
            self.errors += 1
            self.errors_in_a_row += 1
            self.last_error = f"{type(error).__name__}: {error}"
            in_a_row = self.errors_in_a_row
        if in_a_row == OUTAGE_ERRORS and self.on_outage is not None:
            self.on_outage(self.last_error)
        return in_a_row
