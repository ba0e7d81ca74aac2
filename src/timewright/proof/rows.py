"""Plain rows: a store as it was at one instant. Every instant is microseconds since 1970, in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Plain = Mapping[str, Any]


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """Where a schedule stands; everything up to `cursor` is decided."""

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
    trail: tuple[Plain, ...] = ()
    failures: int = 0
    runs: int = 0
    missed: int = 0
    paused_at: int | None = None
    paused_until: int | None = None
    last_started_at: int | None = None
    last_finished_at: int | None = None
    hints: Plain = {}
    last_run: str = ""


class RevisionRow(Struct, frozen=True, kw_only=True):
    """What a schedule said from an instant on; fields at their defaults are left out of the body."""

    schedule_id: str
    revision: int
    body: Plain
    at: int
    actor: str = ""
    reason: str = ""


class RunRow(Struct, frozen=True, kw_only=True, gc=False):
    """One occurrence whatever its fate (an empty lane), or one run by hand, backfill or queue entry."""

    id: str
    namespace: str
    schedule_id: str = ""
    lane: str = ""
    planned_at: int
    fire_at: int
    state: str
    reason: str = ""
    source: str = ""
    revision: int = 0
    queue: str = ""
    gates: tuple[str, ...] = ()
    priority: int = 100
    alone: bool = True
    handoff: bool = False
    attempts: int = 0
    refunds: int = 0
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
    word: str = ""
    error: str = ""
    parent: str = ""
    previous: str = ""
    trail: tuple[Plain, ...] = ()
    missed: int = 0
    backfill_of: str = ""
    made_by: str = ""
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
    size: int = 0


class GateRow(Struct, frozen=True, kw_only=True):
    """How many live leases a ceiling admits now."""

    gate: str
    most: int


class HoldRow(Struct, frozen=True, kw_only=True):
    """A live lease that a gate has let through."""

    gate: str
    run_id: str
    fence: int


class ObjectRow(Struct, frozen=True, kw_only=True):
    """A queue's policy, a limit or a calendar, as it is now."""

    kind: str
    namespace: str
    name: str
    revision: int
    body: Plain
    at: int


class AuditRow(Struct, frozen=True, kw_only=True):
    """One line of the audit log."""

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
    """What a test sink saw; only a simulator has this. `applied` is false where a fenced sink refused."""

    at: int
    run_id: str
    key: str
    fence: int
    fenced: bool = False
    applied: bool = True


class Note(Struct, frozen=True, kw_only=True):
    """What happened without leaving a row; only a simulator has this.

    leased     a lease was granted: subject run, fence
    renewed    a renewal was accepted: subject run, fence, value = the new lease_until
    answered   an answer, a failure or a release was accepted: subject run, fence
    refused    one was refused as stale: subject run, fence
    reclaimed  an expired lease was taken back: subject run, fence
    held       live leases under a ceiling after a commit: subject gate, value = how many, most = its limit
    cursor     a schedule's cursor after a commit: subject schedule, value = the cursor
    stopped    an instance stopped gracefully: subject holder
    pruned     a run was pruned: subject run, about = its schedule, value = its planned_at, word = its state
    asked      a run by hand: subject run, about = its schedule, word = the client key
    shown      a preview: subject schedule, values = the instants shown, fence = the revision
    said       an attempt ended that spoke: subject run, fence, value = what is kept, most = what was said
    """

    kind: str
    at: int
    subject: str
    about: str = ""
    fence: int = 0
    value: int = 0
    most: int = 0
    word: str = ""
    values: tuple[int, ...] = ()


class AccountRow(Struct, frozen=True, kw_only=True):
    """How much of a budget was used in a period, and is held by what is under way."""

    budget: str
    period: int
    used: int
    held: int


class ChargeRow(Struct, frozen=True, kw_only=True):
    """What one lease took from one budget; one that is open is not known yet."""

    run_id: str
    fence: int
    budget: str
    period: int
    used: int
    held: int
    open: bool


class History(Struct, frozen=True, kw_only=True):
    """Everything the checker looks at: one consistent picture, perhaps only from an instant on.

    With `since`, runs that were made before it are there only while they are unfinished. `cut` says that
    there were more rows than may be looked at, and `since` is then where those that are here begin. Charges
    are there all or not at all.
    """

    namespace: str | None = None
    since: int | None = None
    cut: bool = False
    schedules: tuple[ScheduleRow, ...] = ()
    revisions: tuple[RevisionRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    gates: tuple[GateRow, ...] = ()
    holds: tuple[HoldRow, ...] = ()
    objects: tuple[ObjectRow, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    accounts: tuple[AccountRow, ...] = ()
    charges: tuple[ChargeRow, ...] | None = ()
    meta: Mapping[str, str] = {}
    effects: tuple[Effect, ...] | None = None
    notes: tuple[Note, ...] | None = None
