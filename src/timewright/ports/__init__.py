"""What we ask of the outside: a clock, ids, a store, targets, advisors, observers, a waker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from timewright.core.calendars import occurrence_before
from timewright.core.facts import Fact
from timewright.core.run import Outcome, key_of
from timewright.core.target import AnyTarget
from timewright.core.triggers import AnyTrigger
from timewright.ports.advisor import Advised, Advisor, Use
from timewright.ports.rows import (
    Advance,
    Change,
    Count,
    Due,
    Entry,
    Grant,
    Page,
    Prune,
    Renewal,
    Renewed,
    Revised,
    RunFilter,
    ScheduleFilter,
    Stood,
    Stored,
    Turn,
    Unreadable,
)
from timewright.ports.store import Store, Transaction

__all__ = [
    "Advance",
    "Advised",
    "Advisor",
    "Change",
    "Clock",
    "Count",
    "Due",
    "Ear",
    "Entry",
    "Grant",
    "Ids",
    "Launch",
    "Observer",
    "Page",
    "Prune",
    "Renewal",
    "Renewed",
    "Revised",
    "RunFilter",
    "ScheduleFilter",
    "Stood",
    "Store",
    "Stored",
    "Target",
    "Transaction",
    "Turn",
    "Unreadable",
    "Use",
    "Waker",
    "Work",
]


class Clock(Protocol):
    """Tells the time; everything else takes it as an argument."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class Ids(Protocol):
    """Makes ids that sort by time and never repeat."""

    def new(self, kind: str, *, now: datetime) -> str:
        """An id such as `run_01K8…` for that kind of thing."""
        ...


class Launch(Struct, frozen=True, kw_only=True, gc=False):
    """Everything a target is told about the run it starts."""

    run_id: str
    namespace: str
    schedule_id: str
    schedule_name: str
    target: AnyTarget
    fence: int
    attempt: int
    planned_at: datetime
    fire_at: datetime
    lane: str = ""
    given_key: str = ""
    trigger: AnyTrigger | None = None
    zone: str = "UTC"
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    source: str = ""
    time_limit: timedelta
    grace: timedelta
    payload: Any = None
    metadata: Mapping[str, Any] = {}
    traceparent: str = ""

    @property
    def key(self) -> str:
        """What tells this occurrence from every other, the same for all attempts; made when asked for."""
        return self.given_key or key_of(
            self.run_id, lane=self.lane, schedule_id=self.schedule_id, planned_at=self.planned_at
        )

    @property
    def previous_at(self) -> datetime | None:
        """The instant before this one; found when it is asked for, because most never ask."""
        found = occurrence_before(self.trigger, self.planned_at) if self.trigger is not None else None
        return found.at if found is not None else None

    @property
    def next_at(self) -> datetime | None:
        """The instant after this one; found when it is asked for."""
        return self.trigger.next_after(self.planned_at) if self.trigger is not None else None


class Work(Protocol):
    """Something that was launched and may be asked to stop."""

    def stop(self, reason: str) -> None:
        """Ask it to end: politely, then after its grace by force where that is possible; never blocks."""
        ...


class Target(Protocol):
    """Acts. Turns a launch into an outcome and never raises."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Start the work and return at once; `done` is called exactly once, from any thread."""
        ...

    def close(self, *, grace: timedelta) -> None:
        """Stop what is left and free every thread, process and socket."""
        ...


class Observer(Protocol):
    """Listens to facts after they are true; what it does must not matter to anyone else."""

    def note(self, fact: Fact) -> None:
        """Take note of one fact."""
        ...


class Waker(Protocol):
    """Lets the engine rest, and be woken."""

    def rest(self, seconds: float) -> bool:
        """Sleep at most that long; says whether someone woke us."""
        ...

    def wake(self) -> None:
        """End a rest now, or the next one at once; from any thread."""
        ...


class Ear(Protocol):
    """Hears when another has written into the store; it may miss a call, and nothing depends on it."""

    def calls(self) -> Iterator[None]:
        """Yield whenever another may have written, on the thread that asks, until closed."""
        ...

    def close(self) -> None:
        """End the calls; from any thread."""
        ...
