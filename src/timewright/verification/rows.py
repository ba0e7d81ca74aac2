"""Rows of a store at one instant. All instants are microseconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

JsonObject = Mapping[str, Any]


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule and its progress; everything up to `cursor` is decided."""

    id: str
    namespace: str
    name: str
    revision: int
    state: str
    reason: str = ""
    cursor: int
    next_at: int | None = None
    wake_at: int | None = None
    source: str = ""
    trail: tuple[JsonObject, ...] = ()
    failures: int = 0
    runs: int = 0
    missed: int = 0
    paused_at: int | None = None
    paused_until: int | None = None
    last_started_at: int | None = None
    last_finished_at: int | None = None
    hints: JsonObject = {}
    last_run: str = ""
    replaced_after: int | None = None


class RevisionRow(Struct, frozen=True, kw_only=True):
    """One revision of a schedule; the body leaves out fields at their defaults."""

    schedule_id: str
    revision: int
    body: JsonObject
    at: int
    actor: str = ""
    reason: str = ""


class RunRow(Struct, frozen=True, kw_only=True, gc=False):
    """An occurrence in any state (empty dedupe scope), or a manual run, a backfill or a queue entry."""

    id: str
    namespace: str
    schedule_id: str = ""
    dedupe_scope: str = ""
    planned_at: int
    fire_at: int
    state: str
    reason: str = ""
    source: str = ""
    revision: int = 0
    queue: str = ""
    limit_keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    priority: int = 100
    exclusive: bool = True
    handoff: bool = False
    attempts: int = 0
    refunds: int = 0
    losses: int = 0
    fence: int = 0
    last_of: int | None = None
    dropped: int = 0
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    lease_id: str = ""
    holder: str = ""
    leased_at: int | None = None
    lease_until: int | None = None
    cancel_at: int | None = None
    outcome_label: str = ""
    error: str = ""
    parent: str = ""
    previous: str = ""
    trail: tuple[JsonObject, ...] = ()
    missed: int = 0
    backfill_of: str = ""
    created_by: str = ""
    workflow: str = ""
    """`name@version` of the workflow of a step."""
    payload: Any = None
    """Only of runs under a limit with a key."""
    size: int = 0


class AttemptRow(Struct, frozen=True, kw_only=True, gc=False):
    """One lease that ended."""

    run_id: str
    fence: int
    number: int
    lease_id: str = ""
    holder: str = ""
    leased_at: int
    lease_until: int
    started_at: int | None = None
    ended_at: int
    outcome: str
    charged: bool
    error: str = ""
    size: int = 0


class ArtifactRow(Struct, frozen=True, kw_only=True):
    """A reference to a file of an attempt; `problem` says what is wrong with the file, if anything."""

    run_id: str
    fence: int
    name: str
    size: int
    digest: str
    problem: str = ""


class ProgressRow(Struct, frozen=True, kw_only=True):
    """The last progress or checkpoint that an attempt reported."""

    run_id: str
    fence: int
    at: int


class MetaRow(Struct, frozen=True, kw_only=True):
    """A single value about the store."""

    name: str
    value: str


class LimitRow(Struct, frozen=True, kw_only=True):
    """How many live leases a limit allows now."""

    limit_key: str
    capacity: int


class LimitHoldRow(Struct, frozen=True, kw_only=True):
    """A live lease counted by a limit."""

    limit_key: str
    run_id: str
    fence: int


class ObjectRow(Struct, frozen=True, kw_only=True):
    """A queue policy, a limit or a calendar, as it is now."""

    kind: str
    namespace: str
    name: str
    revision: int
    body: JsonObject
    at: int


class AdjustmentRow(Struct, frozen=True, kw_only=True):
    """A hint, pause, skip or move of a schedule, or the begin or end of its failures in a row."""

    schedule_id: str
    seq: int
    namespace: str = ""
    kind: str
    at: int
    cursor: int
    until: int | None = None
    planned_at: int | None = None
    moved_to: int | None = None
    interval: int | None = None
    actor: str = ""
    origin: str = ""
    reason: str = ""


class AuditRow(Struct, frozen=True, kw_only=True):
    """One entry of the audit log."""

    seq: int
    at: int
    namespace: str
    actor: str
    origin: str = ""
    action: str
    subject: str
    before: str = ""
    after: str = ""
    reason: str = ""


class Effect(Struct, frozen=True, kw_only=True):
    """What a simulated receiver saw. `applied` is false where a fenced receiver refused it."""

    at: int
    run_id: str
    key: str
    fence: int
    fenced: bool = False
    applied: bool = True


class SimulationEvent(Struct, frozen=True, kw_only=True):
    """An event that leaves no row; only a simulation records these.

    leased     a lease was granted: subject run, fence
    renewed    a renewal was accepted: subject run, fence, value = the new lease_until
    settled    a result, a failure or a release was accepted: subject run, fence
    refused    one was refused as stale: subject run, fence
    reclaimed  an expired lease was reclaimed: subject run, fence
    held       live leases under a limit after a commit: subject limit, value = their number, limit = the
    capacity
    cursor     a schedule's cursor after a commit: subject schedule, value = the cursor
    stopped    an instance stopped gracefully: subject holder
    pruned     a run was pruned: subject run, schedule_id, value = its planned_at, detail = its state
    manual     a manual run: subject run, schedule_id, detail = the client key
    previewed  a preview: subject schedule, values = the instants shown, fence = the revision
    work began, work ended    one execution: subject run, fence, detail = the process that ran it
    died       the process of a holder ended: subject holder
    answered   an answer to a step that waits was accepted: subject run
    output     an attempt with output ended: subject run, fence, value = bytes stored, limit = bytes written
    """

    kind: str
    at: int
    subject: str
    schedule_id: str = ""
    fence: int = 0
    value: int = 0
    limit: int = 0
    detail: str = ""
    values: tuple[int, ...] = ()


class BudgetAccountRow(Struct, frozen=True, kw_only=True):
    """How much of a budget was used in a period, and how much is reserved by live leases."""

    budget: str
    period: int
    used: int
    held: int


class BudgetChargeRow(Struct, frozen=True, kw_only=True):
    """What one lease charged to one budget. While it is open, the final amount is unknown."""

    run_id: str
    fence: int
    budget: str
    period: int
    used: int
    held: int
    open: bool


class IncidentRow(Struct, frozen=True, kw_only=True):
    """An incident, and when it was open."""

    id: str
    namespace: str
    kind: str
    subject: str
    opened_at: int
    closed_at: int | None = None


class PauseRow(Struct, frozen=True, kw_only=True):
    """A pause of everything in a scope: nothing of it is leased from `at` until it ended."""

    id: str
    scope: str
    namespace: str
    name: str
    at: int
    until: int | None = None
    ended_at: int | None = None
    origin: str = ""


class History(Struct, frozen=True, kw_only=True):
    """Everything the checker reads: one consistent snapshot, optionally only from an instant on.

    With `since`, older runs are included only while unfinished. `cut` means that the store has more rows than
    the limit; `since` is then the creation time of the oldest run included. Charges are complete or None.
    """

    namespace: str | None = None
    since: int | None = None
    cut: bool = False
    schedules: tuple[ScheduleRow, ...] = ()
    revisions: tuple[RevisionRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    artifacts: tuple[ArtifactRow, ...] = ()
    progress: tuple[ProgressRow, ...] = ()
    limits: tuple[LimitRow, ...] = ()
    limit_holds: tuple[LimitHoldRow, ...] = ()
    objects: tuple[ObjectRow, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    adjustments: tuple[AdjustmentRow, ...] = ()
    accounts: tuple[BudgetAccountRow, ...] = ()
    charges: tuple[BudgetChargeRow, ...] | None = ()
    incidents: tuple[IncidentRow, ...] = ()
    pauses: tuple[PauseRow, ...] = ()
    meta: Mapping[str, str] = {}
    effects: tuple[Effect, ...] | None = None
    events: tuple[SimulationEvent, ...] | None = None
