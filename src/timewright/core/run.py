"""A run: one occurrence made real, or one queue entry; its attempts, and how each can end."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

from timewright.core.costs import Cost
from timewright.core.decision import Candidate, Source
from timewright.core.moments import micros
from timewright.core.policies import NORMAL, Delivery, LeaseTerms, Retry
from timewright.core.target import AnyTarget


class RunState(StrEnum):
    """Where a run can be."""

    READY = "ready"
    HELD = "held"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARKED = "parked"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


IN_FLIGHT = frozenset({RunState.READY, RunState.LEASED})
TERMINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED})


class Reason(StrEnum):
    """Why an occurrence did not run, or a run stopped short of success."""

    OVERLAP = "overlap"
    MISSED = "missed"
    PAUSED = "paused"
    QUEUE_FULL = "queue_full"
    SUPERSEDED = "superseded"
    DEADLINE = "deadline"
    BUDGET = "budget"
    PROVIDER = "provider"
    EXCLUDED = "excluded"
    REPLACED = "replaced"
    EXHAUSTED = "exhausted"
    UNKNOWN = "unknown"
    UNRESOLVED = "unresolved"
    UNREADABLE = "unreadable"
    BY_HAND = "by_hand"
    NEEDS = "needs"


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One durable row per occurrence, whatever its fate.

    Three times, and no field ever holds two of them: when it was planned (its identity), when it may
    fire, when it started.
    """

    id: str
    namespace: str = "default"
    schedule_id: str = ""
    lane: str = ""
    planned_at: datetime
    fire_at: datetime
    state: RunState
    reason: str = ""
    source: Source = Source.MANUAL
    trail: tuple[Candidate, ...] = ()
    revision: int = 0
    queue: str = ""
    gates: tuple[str, ...] = ()
    priority: int = NORMAL
    alone: bool = True
    handoff: bool = False
    attempts: int = 0
    refunds: int = 0
    fence: int = 0
    missed: int = 0
    fired_by: tuple[int, ...] = ()
    last_of: datetime | None = None
    dropped: int = 0
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    lease_id: str = ""
    holder: str = ""
    leased_at: datetime | None = None
    lease_until: datetime | None = None
    cancel_at: datetime | None = None
    word: str = ""
    error: str = ""
    backfill_of: str = ""
    made_by: str = ""
    parent: str = ""
    previous: str = ""
    payload: Any = None


class Terms(Struct, frozen=True, kw_only=True, gc=False):
    """What a run is attempted under; frozen into it when it is admitted."""

    target: AnyTarget
    retry: Retry = Retry()
    lease: LeaseTerms = LeaseTerms()
    delivery: Delivery = Delivery.AT_LEAST_ONCE


class Succeeded(Struct, frozen=True, kw_only=True, tag="succeeded", tag_field="kind"):
    """The work was done; `word` is what the handler called it."""

    word: Literal["", "useful", "noop", "skipped"] = ""
    result: Any = None
    cost: Cost | None = None


class Failed(Struct, frozen=True, kw_only=True, tag="failed", tag_field="kind"):
    """The work was tried and did not succeed."""

    error: str
    not_before: datetime | None = None
    final: bool = False
    result: Any = None
    unresolved: bool = False
    cost: Cost | None = None


class TimedOut(Struct, frozen=True, kw_only=True, tag="timed_out", tag_field="kind"):
    """The work was ended because it took longer than it may."""

    error: str = "time limit reached"
    result: Any = None
    cost: Cost | None = None


class Lost(Struct, frozen=True, kw_only=True, tag="lost", tag_field="kind"):
    """The lease ended without an answer."""

    error: str = "lease expired without an answer"
    result: Any = None
    cost: Cost | None = None


class Cancelled(Struct, frozen=True, kw_only=True, tag="cancelled", tag_field="kind"):
    """The work was stopped because someone asked, or a newer run replaced it."""

    reason: str = Reason.BY_HAND.value
    result: Any = None
    cost: Cost | None = None


class Released(Struct, frozen=True, kw_only=True, tag="released", tag_field="kind"):
    """The holder gave the run back without having failed."""

    reason: str = ""
    result: Any = None
    cost: Cost | None = None


class Started(Struct, frozen=True, kw_only=True, tag="started", tag_field="kind"):
    """The work began; no outcome, but news from whoever does it outside."""


Outcome = Succeeded | Failed | TimedOut | Lost | Cancelled | Released


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One lease of a run, after it ended."""

    run_id: str
    fence: int
    number: int
    lease_id: str
    holder: str
    leased_at: datetime
    lease_until: datetime
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    charged: bool
    word: str = ""
    error: str = ""
    result: Any = None
    cost: Cost | None = None


def occurrence_key(schedule_id: str, planned_at: datetime) -> str:
    """The public identity of an occurrence: sha256 over the schedule and the planned second.

    An instant with a fraction writes the second with six decimals. The attempt is never part of it.
    """
    seconds, fraction = divmod(micros(planned_at), 1_000_000)
    spelled = f"{seconds}.{fraction:06d}" if fraction else str(seconds)
    return hashlib.sha256(f"{schedule_id}:{spelled}".encode()).hexdigest()


def run_key(run: Run) -> str:
    """The idempotency key that travels to the target; the same for all attempts of a run."""
    return key_of(run.id, lane=run.lane, schedule_id=run.schedule_id, planned_at=run.planned_at)


def key_of(run_id: str, *, lane: str, schedule_id: str, planned_at: datetime) -> str:
    """The same from its parts: an occurrence has the key of its instant, any other run one of its own."""
    if lane or not schedule_id:
        return hashlib.sha256(run_id.encode()).hexdigest()
    return occurrence_key(schedule_id, planned_at)
