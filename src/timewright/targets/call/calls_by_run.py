"""Keeps two calls of one run from running side by side in this process."""

from __future__ import annotations

import os
import threading
from typing import Protocol


class CallOfRun(Protocol):
    """A call that belongs to a run."""

    run_id: str

    def start(self) -> None:
        """Start the call after it waited."""
        ...


class CallsByRun:
    """The calls of this process by run: a call waits until an earlier call of its run has returned.

    A run may be leased again while its function still runs: its lease was lost, or its scheduler stopped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, CallOfRun] = {}
        self._waiting: dict[str, list[CallOfRun]] = {}

    def forget_all(self) -> None:
        """Forget all calls, in a process without their threads."""
        self._lock = threading.Lock()
        self._current.clear()
        self._waiting.clear()

    def enter(self, call: CallOfRun) -> bool:
        """Register a call; returns whether it may start now. Otherwise `start` is called later."""
        with self._lock:
            if self._current.setdefault(call.run_id, call) is call:
                return True
            self._waiting.setdefault(call.run_id, []).append(call)
            return False

    def withdraw(self, call: CallOfRun) -> bool:
        """Remove a call that waits; returns whether it waited."""
        with self._lock:
            waiting = self._waiting.get(call.run_id, [])
            if call not in waiting:
                return False
            waiting.remove(call)
            return True

    def leave(self, call: CallOfRun) -> None:
        """Remove a call whose function has returned, and start the next one of its run."""
        with self._lock:
            if self._current.get(call.run_id) is not call:
                return
            del self._current[call.run_id]
            waiting = self._waiting.pop(call.run_id, [])
            following = waiting.pop(0) if waiting else None
            if following is not None:
                self._current[call.run_id] = following
                self._waiting |= {call.run_id: waiting} if waiting else {}
        if following is not None:
            following.start()


CALLS_BY_RUN = CallsByRun()


class ForkCounter:
    """How many forks separate this process from the one that imported this module."""

    count = 0

    @classmethod
    def count_fork(cls) -> None:
        """Runs in the child after a fork, which has none of the threads that run calls."""
        cls.count += 1
        CALLS_BY_RUN.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ForkCounter.count_fork)
