"""The dangers that a simulation must have met: one that was never seen proves nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo

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
from timewright.testing.world.workload import CHANGES

NEAR_A_CHANGE = timedelta(hours=3)
_SECOND = timedelta(seconds=1)

DANGERS = (
    "crash injected",
    "everyone killed at once",
    "killed by its own work",
    "process stopped",
    "process stopped at a store call",
    "stopped gracefully",
    "store away",
    "store outage",
    "store clock stepped",
    "clock step seen: hold",
    "clock step seen: outage",
    "answer lost before commit",
    "answer lost after commit",
    "stale answer refused",
    "stale heartbeat refused",
    "lease expired while its holder was alive",
    "holder asked to stop",
    "parked by crash budget",
    "parked: unknown",
    "refund used",
    "kept at its instant",
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
    "end passed on",
    "end followed",
    "end without a follower",
    "waited for what it needs",
    "deferred: budget",
    "deferred: provider",
    "provider closed",
    "words written",
)

# What others count and we do not meet, or hardly, and why.
WITHOUT = {
    "unique-key conflict": "the row of a schedule is locked from look to write, so nobody decides twice;"
    " all it meets is an instant left out by hand that a new plan has too",
    "slot reconciled": "a place under a ceiling is written and freed in the transaction of its lease",
    "epoch hold entered": "a restored or copied store is not told from its original yet",
}


def unmet(counts: Mapping[str, int]) -> list[str]:
    """The dangers that were not met."""
    return [danger for danger in DANGERS if not counts.get(danger)]


# The facts that may say that a danger was met.
TELLING = {
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


def met_by(fact: Fact, *, lives: Callable[[str], bool]) -> list[str]:
    """The dangers that a fact says were met."""
    match fact:
        case AnswerStale():
            return ["stale answer refused"]
        case LeaseLost(holder=holder) if lives(holder):
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


def changes_met(planned_at: datetime, zone: tzinfo) -> list[str]:
    """How an occurrence lies where the clocks of its zone change."""
    if not any(abs(planned_at - change) < NEAR_A_CHANGE for change in CHANGES):
        return []
    met: list[str] = []
    local, before = planned_at.astimezone(zone), (planned_at - _SECOND).astimezone(zone)
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        met.append("clock change: fold decided")
    if local.utcoffset() != before.utcoffset() and local.replace(tzinfo=UTC) > before.replace(tzinfo=UTC):
        met.append("clock change: gap decided")
    return met
