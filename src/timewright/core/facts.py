"""Events ("facts"), one frozen Struct each; observers receive them after the commit that made them true."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


def _kebab(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


class Fact(Struct, frozen=True, kw_only=True, tag_field="fact", tag=_kebab, gc=False):
    """Base class: something that happened at an instant, in a namespace."""

    at: datetime
    namespace: str = "default"


class RunFact(Fact, frozen=True, kw_only=True):
    """Base class: something that happened to a run."""

    run_id: str
    schedule_id: str
    queue: str = ""


class RunAdmitted(RunFact, frozen=True, kw_only=True):
    """An occurrence became a run."""

    planned_at: datetime
    fire_at: datetime
    source: str
    held: bool = False


class RunSkipped(RunFact, frozen=True, kw_only=True):
    """An occurrence was skipped, for the given reason."""

    planned_at: datetime
    reason: str


class OccurrencesDropped(RunFact, frozen=True, kw_only=True):
    """Many occurrences were skipped and are counted in one row."""

    planned_at: datetime
    last_of: datetime
    count: int
    reason: str


class RunLeased(RunFact, frozen=True, kw_only=True):
    """A run was leased to an instance or a worker."""

    holder: str
    fence: int
    lease_until: datetime


class AttemptStarted(RunFact, frozen=True, kw_only=True):
    """An attempt of a run began."""

    fence: int
    planned_at: datetime
    source: str = ""


class RunSucceeded(RunFact, frozen=True, kw_only=True):
    """A run succeeded."""

    fence: int
    outcome_label: str = ""


class RunWillRetry(RunFact, frozen=True, kw_only=True):
    """An attempt failed and will be retried at `fire_at`."""

    fence: int
    attempts: int
    error: str
    fire_at: datetime


class RunReleased(RunFact, frozen=True, kw_only=True):
    """A run is ready again without an attempt: it was released, lost, or deferred by its work."""

    fence: int
    reason: str
    error: str = ""


class RunFailed(RunFact, frozen=True, kw_only=True):
    """A run failed and has no attempts left."""

    fence: int
    attempts: int
    error: str


class RunParked(RunFact, frozen=True, kw_only=True):
    """A run was parked until a person acts."""

    fence: int
    attempts: int
    reason: str
    error: str = ""


class RunCancelled(RunFact, frozen=True, kw_only=True):
    """A run was cancelled on request, or because a newer one replaced it."""

    reason: str


class CancelRequested(RunFact, frozen=True, kw_only=True):
    """Cancellation of a leased run was requested."""

    reason: str


class RunDeferred(RunFact, frozen=True, kw_only=True):
    """A run was deferred, because a budget is exhausted or its provider is closed."""

    reason: str
    until: datetime


class ProviderClosed(Fact, frozen=True, kw_only=True):
    """A provider was closed: none of its runs starts before `until`."""

    provider: str
    until: datetime
    reason: str = ""


class ProviderOpened(Fact, frozen=True, kw_only=True):
    """A provider was opened: its runs may start again."""

    provider: str


class NoInstance(Fact, frozen=True, kw_only=True):
    """A due schedule or a ready run waits, because no live instance can run it."""

    schedule_id: str
    run_id: str = ""
    reason: str


class RunFreed(RunFact, frozen=True, kw_only=True):
    """A held run became ready, because its predecessor is finished."""


class RunReset(RunFact, frozen=True, kw_only=True):
    """A person reset the attempts of a run."""

    actor: str


class LeaseLost(RunFact, frozen=True, kw_only=True):
    """A lease expired without a result."""

    fence: int
    holder: str


class AnswerStale(Fact, frozen=True, kw_only=True):
    """A result of a lost lease arrived and was ignored."""

    run_id: str
    fence: int


class ScheduleMoved(Fact, frozen=True, kw_only=True):
    """The next instant of a schedule was decided again."""

    schedule_id: str
    next_at: datetime | None
    source: str


class ScheduleParked(Fact, frozen=True, kw_only=True):
    """A schedule was parked automatically until a person acts."""

    schedule_id: str
    reason: str


class ScheduleFinished(Fact, frozen=True, kw_only=True):
    """A schedule has no further occurrences."""

    schedule_id: str
    reason: str


class ScheduleChanged(Fact, frozen=True, kw_only=True):
    """A schedule was created, edited, paused, resumed or archived."""

    schedule_id: str
    change: str
    actor: str
    revision: int


class IncidentOpened(Fact, frozen=True, kw_only=True):
    """A finding became an incident."""

    incident: str
    kind: str
    subject: str
    schedule_id: str = ""
    severity: str
    sentence: str


class IncidentRepeated(IncidentOpened, frozen=True, kw_only=True):
    """An incident is still open and is told again."""


class IncidentClosed(IncidentOpened, frozen=True, kw_only=True):
    """The finding of an incident is gone; `ended_by` says what ended it."""

    ended_by: str = ""


class ClockStepped(Fact, frozen=True, kw_only=True):
    """The wall clock jumped relative to the monotonic clock."""

    by_seconds: float
    treated_as: str


class TickFinished(Fact, frozen=True, kw_only=True):
    """One tick of the engine, with its counts."""

    settled: int = 0
    reclaimed: int = 0
    admitted: int = 0
    skipped: int = 0
    leased: int = 0
    seconds: float = 0.0


class FactsLost(Fact, frozen=True, kw_only=True):
    """An observer is too slow, and `count` events were not delivered to it."""

    listener: str
    count: int


# Every kind of fact by its name.
FACT_KINDS: dict[str, type[Fact]] = {
    str(kind.__struct_config__.tag): kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Fact) and kind not in (Fact, RunFact)
}
