"""What a function is told about the run it is called for, and what it may answer besides a result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from timewright.clocks import SystemClock
from timewright.core.moments import ZERO, as_instant

if TYPE_CHECKING:
    from timewright.ports import Launch

Word = Literal["useful", "noop", "skipped"]

USEFUL: Word = "useful"
NOOP: Word = "noop"
SKIPPED: Word = "skipped"
WORDS: tuple[Word, ...] = (USEFUL, NOOP, SKIPPED)

_monotonic = SystemClock().monotonic


class NotBefore(Struct, frozen=True):
    """The answer of a function that could not do its work yet: try again, and not before this instant."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="not_before")


class Cancellation:
    """Whether anyone still waits for the answer: true from the moment the run was asked to stop."""

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()

    def set(self, reason: str) -> None:
        """Tell the function to stop, and why; the first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Rest for so many seconds, or until asked to stop; says whether that was so."""
        return self._event.wait(timeout)

    def __bool__(self) -> bool:
        return self._event.is_set()


class Facts(Struct, frozen=True, kw_only=True):
    """A run in plain values: whose it is, when it was planned, which attempt this is, what it missed."""

    run_id: str
    namespace: str
    schedule_id: str
    schedule_name: str
    key: str
    fence: int
    attempt: int
    planned_at: datetime
    fire_at: datetime
    previous_at: datetime | None = None
    next_at: datetime | None = None
    zone: str = "UTC"
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    source: str = ""
    time_limit: timedelta
    payload: Any = None
    metadata: Mapping[str, Any] = {}

    @classmethod
    def of(cls, launch: Launch) -> Facts:
        """The facts of a launch."""
        return Facts(**{name: getattr(launch, name) for name in Facts.__struct_fields__})


class Context(Facts, frozen=True, kw_only=True):
    """The facts of a run, and two living things: whether it was cancelled, and how long it has left."""

    cancelled: Cancellation
    deadline: float

    @classmethod
    def begin(cls, facts: Facts, *, cancelled: Cancellation) -> Context:
        """The context of work that starts now."""
        told = {name: getattr(facts, name) for name in Facts.__struct_fields__}
        return Context(**told, cancelled=cancelled, deadline=_monotonic() + facts.time_limit.total_seconds())

    @property
    def remaining(self) -> timedelta:
        """How long the function may still take; never negative."""
        return max(ZERO, timedelta(seconds=self.deadline - _monotonic()))
