"""What can happen, one frozen value each; told to observers after the commit that made it true."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


def _kebab(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


class Fact(Struct, frozen=True, kw_only=True, tag_field="fact", tag=_kebab, gc=False):
    """Something that happened, at an instant, in a namespace."""

    at: datetime
    namespace: str = "default"


class RunAdmitted(Fact, frozen=True, kw_only=True):
    """An occurrence became a run."""

    run_id: str
    schedule_id: str
    planned_at: datetime
    fire_at: datetime
    source: str
    held: bool = False
    queue: str = ""


class RunSkipped(Fact, frozen=True, kw_only=True):
    """An occurrence did not become work, and this is why."""

    run_id: str
    schedule_id: str
    planned_at: datetime
    reason: str
    queue: str = ""


class OccurrencesDropped(Fact, frozen=True, kw_only=True):
    """Many instants were passed over and are counted in one row."""

    run_id: str
    schedule_id: str
    planned_at: datetime
    last_of: datetime
    count: int
    reason: str
    queue: str = ""


class RunLeased(Fact, frozen=True, kw_only=True):
    """A run was handed to a holder."""

    run_id: str
    schedule_id: str
    holder: str
    fence: int
    lease_until: datetime
    queue: str = ""


class AttemptStarted(Fact, frozen=True, kw_only=True):
    """The work of a run began."""

    run_id: str
    schedule_id: str
    fence: int
    planned_at: datetime
    source: str = ""
    queue: str = ""


class RunSucceeded(Fact, frozen=True, kw_only=True):
    """A run did its work."""

    run_id: str
    schedule_id: str
    fence: int
    word: str = ""
    queue: str = ""


class RunWillRetry(Fact, frozen=True, kw_only=True):
    """An attempt failed and another will follow."""

    run_id: str
    schedule_id: str
    fence: int
    attempts: int
    error: str
    fire_at: datetime
    queue: str = ""


class RunReleased(Fact, frozen=True, kw_only=True):
    """A holder gave a run back."""

    run_id: str
    schedule_id: str
    fence: int
    reason: str
    queue: str = ""


class RunFailed(Fact, frozen=True, kw_only=True):
    """A run used its attempts up."""

    run_id: str
    schedule_id: str
    fence: int
    attempts: int
    error: str
    queue: str = ""


class RunParked(Fact, frozen=True, kw_only=True):
    """A run waits for a person."""

    run_id: str
    schedule_id: str
    fence: int
    attempts: int
    reason: str
    error: str = ""
    queue: str = ""


class RunCancelled(Fact, frozen=True, kw_only=True):
    """A run was stopped because someone asked, or a newer one replaced it."""

    run_id: str
    schedule_id: str
    reason: str
    queue: str = ""


class CancelRequested(Fact, frozen=True, kw_only=True):
    """A run under way was asked to stop."""

    run_id: str
    schedule_id: str
    reason: str
    queue: str = ""


class RunDeferred(Fact, frozen=True, kw_only=True):
    """A run waits until a date, because a budget is used up or its provider is closed."""

    run_id: str
    schedule_id: str
    reason: str
    until: datetime
    queue: str = ""


class ProviderClosed(Fact, frozen=True, kw_only=True):
    """Nothing of a provider starts before an instant."""

    provider: str
    until: datetime
    reason: str = ""


class ProviderOpened(Fact, frozen=True, kw_only=True):
    """What names a provider may start again."""

    provider: str


class RunFreed(Fact, frozen=True, kw_only=True):
    """A held run's predecessor is settled, and it may start."""

    run_id: str
    schedule_id: str
    queue: str = ""


class RunReset(Fact, frozen=True, kw_only=True):
    """A person gave a run its attempts back."""

    run_id: str
    schedule_id: str
    actor: str
    queue: str = ""


class LeaseLost(Fact, frozen=True, kw_only=True):
    """A lease ended without an answer."""

    run_id: str
    schedule_id: str
    fence: int
    holder: str
    queue: str = ""


class AnswerStale(Fact, frozen=True, kw_only=True):
    """An answer came from a lease that was lost, and changed nothing."""

    run_id: str
    fence: int


class ScheduleMoved(Fact, frozen=True, kw_only=True):
    """A schedule's next time was decided again."""

    schedule_id: str
    next_at: datetime | None
    source: str


class ScheduleParked(Fact, frozen=True, kw_only=True):
    """A schedule stopped by itself and waits for a person."""

    schedule_id: str
    reason: str


class ScheduleFinished(Fact, frozen=True, kw_only=True):
    """A schedule has nothing further to do."""

    schedule_id: str
    reason: str


class ScheduleChanged(Fact, frozen=True, kw_only=True):
    """Someone created, edited, paused, resumed or archived a schedule."""

    schedule_id: str
    change: str
    actor: str
    revision: int


class ClockStepped(Fact, frozen=True, kw_only=True):
    """The wall clock moved against the monotonic one."""

    by_seconds: float
    treated_as: str


class TickFinished(Fact, frozen=True, kw_only=True):
    """One pass through the rooms, with its counts."""

    settled: int = 0
    reclaimed: int = 0
    admitted: int = 0
    skipped: int = 0
    leased: int = 0
    seconds: float = 0.0


class FactsLost(Fact, frozen=True, kw_only=True):
    """Someone listens too slowly, and so many facts were not told to it."""

    listener: str
    count: int
