"""How a scheduler is stopped: by a signal, at exit, and when a notebook cell makes it again."""

from __future__ import annotations

import builtins
import logging
import signal
import sys
import weakref
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from timewright.core.moments import format_duration

if TYPE_CHECKING:
    from timewright.interfaces.python.scheduler import Scheduler

_LOGGER = logging.getLogger("timewright")
# A signal that arrives just before `wait` blocks is only handled when `wait` returns.
DEFAULT_WAIT_S = 1.0
INTERRUPTED = 130


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


def stop_on_signals() -> StopSignal:
    """Return a signal that Ctrl-C and SIGTERM set."""
    stop = StopSignal()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


# The schedulers that cells of a notebook have made, by store, namespace and name.
_made_by_cells: dict[str, weakref.ref[Scheduler]] = {}


def stop_previous(made: Scheduler, key: str) -> None:
    """In a notebook or at the prompt, stop the scheduler that the same cell made when it ran before."""
    if not (hasattr(builtins, "get_ipython") or hasattr(sys, "ps1")):
        return
    reference = _made_by_cells.get(key)
    previous = reference() if reference is not None else None
    _made_by_cells[key] = weakref.ref(made)
    if previous is not None and previous.is_running:
        _LOGGER.info("stopping the scheduler that was made before on the same store")
        previous.stop(wait=timedelta(0))


def stop_after_run(scheduler: Scheduler) -> None:
    """Stop a scheduler whose `run` ends. Ctrl-C meanwhile asks the runs in progress to stop, and exits."""
    try:
        in_progress = len(scheduler.instance.launcher) if scheduler.is_running else 0
        if in_progress:
            runs = f"{in_progress} run{'' if in_progress == 1 else 's'} in progress"
            wait = format_duration(scheduler.instance.settings.stop_wait)
            _LOGGER.warning("stopping: %s, waiting up to %s; Ctrl-C again stops now", runs, wait)
        scheduler.stop()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            scheduler.stop(wait=timedelta(0))
        raise SystemExit(INTERRUPTED) from None


def stop_at_exit(reference: weakref.ref[Scheduler]) -> None:
    """Stop a scheduler at interpreter exit, so that its runs are released before their leases expire."""
    scheduler = reference()
    if scheduler is None or not scheduler.is_running:
        return
    try:
        scheduler.stop(wait=timedelta(0))
    except Exception:
        _LOGGER.exception("could not stop the scheduler at exit")
