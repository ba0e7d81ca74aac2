"""What a function is told about the run it is called for, and what it may answer besides a result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from operator import attrgetter
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
_CANCELLING = threading.Lock()


class NotBefore(Struct, frozen=True):
    """The answer of a function that could not do its work yet: try again, and not before this instant."""

    at: datetime

    def __post_init__(self) -> None:
        as_instant(self.at, field="not_before")


class Cancellation:
    """Whether anyone still waits for the answer: true from the moment the run was asked to stop."""

    __slots__ = ("_event", "_is_set", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self._is_set = False
        self._event: threading.Event | None = None

    def set(self, reason: str) -> None:
        """Tell the function to stop, and why; the first reason stays."""
        with _CANCELLING:
            if self._is_set:
                return
            self.reason = reason
            self._is_set = True
            if self._event is not None:
                self._event.set()

    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Rest for so many seconds, or until asked to stop; says whether that was so."""
        with _CANCELLING:
            # Made when someone waits, because most never do.
            if self._event is None:
                self._event = threading.Event()
            if self._is_set:
                self._event.set()
        return self._event.wait(timeout)

    def __bool__(self) -> bool:
        return self._is_set


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
    traceparent: str = ""

    @classmethod
    def of(cls, launch: Launch) -> Facts:
        """The facts of a launch."""
        return Facts(**dict(zip(_NAMES, _values(launch), strict=True)))


_NAMES = Facts.__struct_fields__
_values = attrgetter(*_NAMES)


class Context(Facts, frozen=True, kw_only=True):
    """The facts of a run, and two living things: whether it was cancelled, and how long it has left."""

    cancelled: Cancellation
    deadline: float

    @classmethod
    def begin(cls, facts: Facts | Launch, *, cancelled: Cancellation) -> Context:
        """The context of work that starts now, from its facts or from the launch that has them."""
        told = dict(zip(_NAMES, _values(facts), strict=True))
        return Context(**told, cancelled=cancelled, deadline=_monotonic() + facts.time_limit.total_seconds())

    @property
    def remaining(self) -> timedelta:
        """How long the function may still take; never negative."""
        return max(ZERO, timedelta(seconds=self.deadline - _monotonic()))
