"""Interfaces that the core packages need: clock, ids, store, targets, advisors, observers, waker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from timewright.core.calendars import occurrence_before
from timewright.core.facts import Fact
from timewright.core.recurrence.triggers import AnyTrigger
from timewright.core.run.run import Outcome, idempotency_key
from timewright.core.target import RunTarget
from timewright.ports.rows import (
    AuditCheck,
    AuditEntry,
    ExternalId,
    Grant,
    LiveCount,
    OnTimeStep,
    Page,
    ProgressUpdate,
    PruneRequest,
    Renewal,
    Renewed,
    RunChange,
    RunFilter,
    ScheduleFilter,
    ScheduleRecord,
    ScheduleWrite,
    StoredObject,
    Unreadable,
)
from timewright.ports.store import Store, Transaction

__all__ = [
    "Advisor",
    "AdvisorReport",
    "AuditCheck",
    "AuditEntry",
    "CallTool",
    "ChangeListener",
    "Clock",
    "ExternalId",
    "Grant",
    "Ids",
    "Launch",
    "LiveCount",
    "Observer",
    "OnTimeStep",
    "Page",
    "ProgressUpdate",
    "PruneRequest",
    "Renewal",
    "Renewed",
    "RunChange",
    "RunFilter",
    "RunHandle",
    "ScheduleFilter",
    "ScheduleRecord",
    "ScheduleWrite",
    "Store",
    "StoredObject",
    "Target",
    "Transaction",
    "Unreadable",
    "Waker",
]


class Clock(Protocol):
    """Reads the time. Only entry points use it; all other code takes `now` as an argument."""

    def now(self) -> datetime:
        """Return the wall clock time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for at least this long."""
        ...


class Ids(Protocol):
    """Makes unique ids that sort by time."""

    def new(self, kind: str, *, now: datetime) -> str:
        """Return a new id for a kind of object, such as `run_01K8…`."""
        ...


class Launch(Struct, frozen=True, kw_only=True, gc=False):
    """Everything a target needs to start a run."""

    run_id: str
    namespace: str
    schedule_id: str
    schedule_name: str
    target: RunTarget
    fence: int
    attempt: int
    planned_at: datetime
    fire_at: datetime
    dedupe_scope: str = ""
    given_key: str = ""
    trigger: AnyTrigger | None = None
    zone: str = "UTC"
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    source: str = ""
    time_limit: timedelta | None = None
    grace: timedelta
    payload: Any = None
    metadata: Mapping[str, Any] = {}
    traceparent: str = ""
    keeps_state: bool = False
    state: Any = None
    state_version: int = 0
    previous: Mapping[str, Any] | None = None
    checkpoint: Any = None

    @property
    def given_payload(self) -> Any:
        """The payload of a manual run; None for a workflow step, whose input is part of its target."""
        return self.payload if self.schedule_id else None

    @property
    def key(self) -> str:
        """The idempotency key of the occurrence: the same for all attempts. Computed on access."""
        return self.given_key or idempotency_key(
            self.run_id,
            dedupe_scope=self.dedupe_scope,
            schedule_id=self.schedule_id,
            planned_at=self.planned_at,
        )

    @property
    def previous_at(self) -> datetime | None:
        """The occurrence before this one. Computed on access, because most targets never read it."""
        found = occurrence_before(self.trigger, self.planned_at) if self.trigger is not None else None
        return found.at if found is not None else None

    @property
    def next_at(self) -> datetime | None:
        """The occurrence after this one. Computed on access."""
        return self.trigger.next_after(self.planned_at) if self.trigger is not None else None


class RunHandle(Protocol):
    """Launched work that can be asked to stop."""

    def stop(self, reason: str) -> None:
        """Request a stop: graceful first, forced after the grace period where possible. Never blocks."""
        ...


def must_return(work: RunHandle | None) -> bool:
    """Whether work cannot be killed: its run stays leased until it has returned."""
    return getattr(work, "must_return", False) is True


class Target(Protocol):
    """Starts work. Turns a launch into an outcome and never raises."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start the work and return. `done` is called exactly once, from any thread."""
        ...

    def close(self, *, grace: timedelta) -> None:
        """Stop the work that is left and free every thread, process and socket."""
        ...


class Observer(Protocol):
    """Receives facts after they are committed. Its errors affect nothing else."""

    def notify(self, fact: Fact) -> None:
        """Handle one fact."""
        ...


class Waker(Protocol):
    """Lets the engine sleep until a timeout or a wake-up."""

    def wait(self, seconds: float) -> bool:
        """Sleep for at most `seconds`. Returns whether `wake` ended the sleep."""
        ...

    def wake(self) -> None:
        """End the current sleep, or the next one immediately. Callable from any thread."""
        ...


class ChangeListener(Protocol):
    """Reports writes by other processes. It may miss some: it only makes the engine react sooner."""

    def changes(self) -> Iterator[None]:
        """Yield after another process may have written, on the calling thread, until closed."""
        ...

    def close(self) -> None:
        """End `changes`. Callable from any thread."""
        ...


CallTool = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class AdvisorReport(Struct, frozen=True, kw_only=True):
    """The report of one analysis: model, tokens, cost, the model's last message, and warnings."""

    model: str = ""
    tokens: int = 0
    cost: float = 0.0
    summary: str = ""
    warnings: tuple[str, ...] = ()


class Advisor(Protocol):
    """Reads the history and proposes hints, only through tools."""

    @property
    def name(self) -> str:
        """The advisor's name in the record of an analysis."""
        ...

    def advise(self, brief: Mapping[str, Any], call_tool: CallTool, *, tokens_left: int) -> AdvisorReport:
        """Run one analysis: call tools by name, `submit_analysis` last, with at most `tokens_left` tokens."""
        ...
