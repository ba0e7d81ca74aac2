"""The events that simulations must cover: what never happened was not tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from tests.simulation.workload.scenarios import CLOCK_CHANGES
from timewright.core.facts import (
    AnswerStale,
    ClockStepped,
    Fact,
    LeaseLost,
    OccurrencesDropped,
    ProviderClosed,
    RunAdmitted,
    RunDeferred,
    RunParked,
    RunReleased,
    RunSkipped,
    ScheduleMoved,
)

MAX_DISTANCE = timedelta(hours=3)
_SECOND = timedelta(seconds=1)

REQUIRED_EVENTS = (
    "crash injected",
    "all processes crashed at once",
    "killed by its own work",
    "process suspended",
    "process suspended at a store call",
    "stopped gracefully",
    "store unavailable",
    "store outage",
    "store clock stepped",
    "clock step seen: hold",
    "clock step seen: outage",
    "connection lost before commit",
    "answer lost after commit",
    "stale result refused",
    "stale heartbeat refused",
    "lease expired while its holder was alive",
    "cancellation requested",
    "parked by crash budget",
    "parked: unknown",
    "refund used",
    "committed at its instant",
    "gap written",
    "catch-up limit reached",
    "hint clamped",
    "client key known already",
    "source: ai-interval",
    "source: ai-oneshot",
    "source: backfill",
    "clock change: gap decided",
    "clock change: fold decided",
    "skipped: overlap",
    "skipped: missed",
    "skipped: paused",
    "skipped: deadline",
    "skipped: queue_full",
    "skipped: superseded",
    "skipped: needs",
    "follow-up created",
    "follow-up run",
    "follow-up skipped",
    "waited for its needs",
    "deferred: budget",
    "deferred: provider",
    "provider closed",
    "output written",
    "run at a start",
)

# Events that cannot happen here, or hardly, and why.
IMPOSSIBLE_EVENTS = {
    "unique-key conflict": "the schedule's row is locked from the read to the write, so no instant is"
    " decided twice; the only conflict is an instant skipped by hand that a new plan contains too",
    "slot reconciled": "a limit hold is written and deleted in the transaction of its lease",
    "epoch hold entered": "a restored or copied store is not told apart from its original yet",
}


def missing_events(counts: Mapping[str, int]) -> list[str]:
    """The required events that did not happen."""
    return [event for event in REQUIRED_EVENTS if not counts.get(event)]


# The facts that show an event.
RELEVANT_FACTS = {
    AnswerStale,
    ClockStepped,
    LeaseLost,
    OccurrencesDropped,
    ProviderClosed,
    RunAdmitted,
    RunDeferred,
    RunParked,
    RunReleased,
    RunSkipped,
    ScheduleMoved,
}


def events_of_fact(fact: Fact, *, is_alive: Callable[[str], bool]) -> list[str]:
    """The events that a fact shows."""
    match fact:
        case AnswerStale():
            return ["stale result refused"]
        case LeaseLost(holder=holder) if is_alive(holder):
            return ["lease expired while its holder was alive"]
        case RunParked(error=error, reason=reason):
            by_crash = "expired" in error and "exhausted" in reason
            return [f"parked: {reason.split(':')[0]}", *(["parked by crash budget"] if by_crash else [])]
        case RunReleased():
            return ["refund used"]
        case OccurrencesDropped():
            return ["gap written"]
        case RunSkipped(reason=reason):
            return [f"skipped: {reason.partition(':')[0]}"]
        case RunDeferred(reason=reason):
            return [f"deferred: {reason.partition(':')[0]}"]
        case ProviderClosed():
            return ["provider closed"]
        case RunAdmitted(source=source):
            return [f"source: {source}"]
        case ScheduleMoved(source=source) if source.startswith("clamped"):
            return ["hint clamped"]
        case ClockStepped(treated_as=treated):
            return [f"clock step seen: {treated}"]
    return []


def clock_change_events(planned_at: datetime, zone: tzinfo) -> list[str]:
    """Whether an occurrence lies in a gap or a fold of its zone's clock change."""
    if not any(abs(planned_at - change) < MAX_DISTANCE for change in CLOCK_CHANGES):
        return []
    met: list[str] = []
    local, before = planned_at.astimezone(zone), (planned_at - _SECOND).astimezone(zone)
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        met.append("clock change: fold decided")
    if local.utcoffset() != before.utcoffset() and local.replace(tzinfo=UTC) > before.replace(tzinfo=UTC):
        met.append("clock change: gap decided")
    return met
