"""A run: one admitted occurrence or one queue entry; its attempts and their outcomes."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec import Struct

from timewright.core.budgets.costs import Cost
from timewright.core.moments import to_micros
from timewright.core.policies.policies import NORMAL_PRIORITY, Delivery, LeaseTerms, Retry
from timewright.core.schedule.decision import Candidate, Source
from timewright.core.target import RunTarget

# Errors of leases that another process reclaimed.
LEASE_EXPIRED = "lease expired without a result"
HOLDER_DIED = "the process of its holder has ended"


class RunState(StrEnum):
    """The states of a run."""

    READY = "ready"
    HELD = "held"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARKED = "parked"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


LIVE_STATES = frozenset({RunState.READY, RunState.LEASED})
UNFINISHED_STATES = LIVE_STATES | {RunState.HELD}
TERMINAL_STATES = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.SKIPPED, RunState.CANCELLED})


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
    CLAMPED = "clamped"
    REPLACED = "replaced"
    EXHAUSTED = "exhausted"
    LOST = "lost"
    DEFERRED = "deferred"
    UNKNOWN = "unknown"
    UNRESOLVED = "unresolved"
    UNREADABLE = "unreadable"
    BY_HAND = "by_hand"
    NEEDS = "needs"
    QUIET = "quiet"


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """One stored row per occurrence, also if it was skipped.

    It has three separate times: `planned_at` (its identity), `fire_at` (when it may start) and `started_at`.
    """

    id: str
    namespace: str = "default"
    schedule_id: str = ""
    dedupe_scope: str = ""
    planned_at: datetime
    fire_at: datetime
    state: RunState
    reason: str = ""
    source: Source = Source.MANUAL
    trail: tuple[Candidate, ...] = ()
    revision: int = 0
    queue: str = ""
    limit_keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    priority: int = NORMAL_PRIORITY
    exclusive: bool = True
    handoff: bool = False
    attempts: int = 0
    refunds: int = 0
    losses: int = 0
    deferred_since: datetime | None = None
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
    outcome_label: str = ""
    error: str = ""
    backfill_of: str = ""
    made_by: str = ""
    parent: str = ""
    previous: str = ""
    payload: Any = None

    @property
    def is_manual(self) -> bool:
        """Whether a person or a program made it: it is no occurrence, and no part of a backfill."""
        return self.dedupe_scope == self.id


class ExecutionTerms(Struct, frozen=True, kw_only=True, gc=False):
    """The target and policies of a run, fixed when it is admitted."""

    target: RunTarget
    check: RunTarget | None = None
    retry: Retry = Retry()
    lease: LeaseTerms = LeaseTerms()
    delivery: Delivery = Delivery.AT_LEAST_ONCE


class Artifact(Struct, frozen=True, kw_only=True, tag="artifact", tag_field="kind"):
    """A reference to data that an attempt wrote beside the store; results and inputs hold its JSON form."""

    run: str
    fence: int
    name: str
    size: int = 0
    digest: str = ""
    type: str = "application/octet-stream"


def find_artifact(value: Any) -> Artifact | None:
    """The artifact that a JSON value refers to, or None."""
    if isinstance(value, Artifact):
        return value
    if not isinstance(value, dict) or value.get("kind") != "artifact":
        return None
    try:
        return msgspec.convert(value, Artifact)
    except msgspec.ValidationError:
        return None


class StateChange(Struct, frozen=True, kw_only=True):
    """A new state of a schedule, and the version of the state that the run had read."""

    value: Any = None
    version: int = 0


class Succeeded(Struct, frozen=True, kw_only=True, tag="succeeded", tag_field="kind"):
    """The work was done; `outcome_label` is the handler's own label for it.

    `state` is the new state of its schedule, if the work changed it.
    """

    outcome_label: Literal["", "useful", "noop", "skipped"] = ""
    result: Any = None
    cost: Cost | None = None
    artifacts: tuple[Artifact, ...] = ()
    state: StateChange | None = None


class Failed(Struct, frozen=True, kw_only=True, tag="failed", tag_field="kind"):
    """The work failed; `unknown` if it ended without a result, so that it may have been done.

    With `not_before` the work asks for a later start, which is no attempt.
    """

    error: str
    not_before: datetime | None = None
    final: bool = False
    result: Any = None
    unresolved: bool = False
    unknown: bool = False
    cost: Cost | None = None
    artifacts: tuple[Artifact, ...] = ()


class TimedOut(Struct, frozen=True, kw_only=True, tag="timed_out", tag_field="kind"):
    """The work was stopped at its time limit."""

    error: str = "time limit reached"
    result: Any = None
    cost: Cost | None = None
    artifacts: tuple[Artifact, ...] = ()


class Lost(Struct, frozen=True, kw_only=True, tag="lost", tag_field="kind"):
    """The lease expired without a result, or the process that did the work was killed."""

    error: str = LEASE_EXPIRED
    result: Any = None
    cost: Cost | None = None
    artifacts: tuple[Artifact, ...] = ()


class Cancelled(Struct, frozen=True, kw_only=True, tag="cancelled", tag_field="kind"):
    """The work was stopped on request, or because a newer run replaced it."""

    reason: str = Reason.BY_HAND.value
    result: Any = None
    cost: Cost | None = None
    artifacts: tuple[Artifact, ...] = ()


class Released(Struct, frozen=True, kw_only=True, tag="released", tag_field="kind"):
    """The holder released the run without failing it; `interrupted` if a stop of ours ended its work."""

    reason: str = ""
    interrupted: bool = False
    result: Any = None
    cost: Cost | None = None


class Started(Struct, frozen=True, kw_only=True, tag="started", tag_field="kind"):
    """An external worker reports that the work began. Not an outcome."""


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
    outcome_label: str = ""
    error: str = ""
    result: Any = None
    cost: Cost | None = None


def occurrence_key(schedule_id: str, planned_at: datetime) -> str:
    """Return the public identity of an occurrence: SHA-256 of the schedule id and the planned second.

    An instant with a fraction has six decimals. The attempt number is not part of it.
    """
    seconds, fraction = divmod(to_micros(planned_at), 1_000_000)
    spelled = f"{seconds}.{fraction:06d}" if fraction else str(seconds)
    return hashlib.sha256(f"{schedule_id}:{spelled}".encode()).hexdigest()


def run_idempotency_key(run: Run) -> str:
    """Return the idempotency key sent to the target; the same for all attempts of a run."""
    return idempotency_key(
        run.id, dedupe_scope=run.dedupe_scope, schedule_id=run.schedule_id, planned_at=run.planned_at
    )


def idempotency_key(run_id: str, *, dedupe_scope: str, schedule_id: str, planned_at: datetime) -> str:
    """Return the idempotency key: of the occurrence if the run has one, else of the run id."""
    if dedupe_scope or not schedule_id:
        return hashlib.sha256(run_id.encode()).hexdigest()
    return occurrence_key(schedule_id, planned_at)
