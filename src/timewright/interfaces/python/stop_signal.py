"""A flag that asks a program to stop; safe to set from a signal handler."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

# A signal that arrives just before `wait` blocks is only handled when `wait` returns.
DEFAULT_WAIT_S = 1.0


class StopSignal:
    """Like `threading.Event`, but reentrant.

    A signal handler may interrupt a thread that holds the lock of an Event and would then deadlock in
    `set`. `SimpleQueue.put` is reentrant.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ask the program to stop."""
        self._is_set = True
        self._wakeups.put(None)

    def wait(self, *, timeout_s: float = DEFAULT_WAIT_S) -> bool:
        """Wait until the signal is set, at most `timeout_s`; returns whether it is set."""
        if not self._is_set:
            with suppress(Empty):
                self._wakeups.get(timeout=timeout_s)
                self._wakeups.put(None)  # wake the next waiter too
        return self._is_set
