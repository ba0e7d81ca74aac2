"""What travels between the ledger and a store: values that say what to read and what to write."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from timewright.core.admission import Flight
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing


class Due(Struct, frozen=True, gc=False):
    """A schedule to look at now: what it says, where it stands, what it has under way."""

    schedule: Schedule
    standing: Standing
    flight: Flight
    last_run: str = ""


class Revised(Struct, frozen=True, kw_only=True):
    """A schedule to write: the revision it replaces (None for a new one), and who wrote it and why."""

    schedule: Schedule
    standing: Standing
    replaces: int | None = None
    actor: str = ""
    reason: str = ""
    at: datetime


class Stood(Struct, frozen=True, gc=False):
    """A schedule's standing to write, and the run that is now its newest, if that changed.

    In a step nothing changes but how far the schedule is decided, what comes next, and its counts.
    """

    schedule_id: str
    standing: Standing
    last_run: str = ""
    is_step: bool = False


class Advance(Struct, frozen=True, gc=False):
    """A schedule that goes on in the ordinary way: a run is ready where it stood, and its next one follows.

    It stands in the store as it does here. One that starts at once comes with its run, leased.
    """

    due: Due
    run_id: str
    following: datetime
    started: Run | None = None


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """A lease to write: it holds only if the run is still ready with the fence it was read with."""

    run: Run
    lease_id: str
    holder: str
    leased_at: datetime
    lease_until: datetime


class Renewal(Struct, frozen=True):
    """A lease to prolong; it holds only if the fence still does."""

    run_id: str
    fence: int
    lease_until: datetime


class Renewed(Struct, frozen=True):
    """A lease that was prolonged, and whether its run was asked to stop."""

    run_id: str
    fence: int
    cancel_at: datetime | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """Whether a turn was ours, and what the store's clock showed after the wait for it."""

    had: bool
    at: datetime


class Change(Struct, frozen=True):
    """A run to rewrite; it holds only if the run is still in that state with that fence."""

    run: Run
    was: RunState
    fence: int


class Unreadable(Struct, frozen=True):
    """A row that is there and cannot be understood: which one, and why."""

    id: str
    name: str
    why: str


class Page(Struct, frozen=True):
    """A piece of a list, and where the next piece begins ("" when this was the last)."""

    rows: tuple[Any, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class Count(Struct, frozen=True, kw_only=True):
    """How many live things of one kind there are in a namespace and a queue, and since when the oldest."""

    namespace: str
    queue: str
    kind: str
    count: int
    oldest: datetime | None = None


class ScheduleFilter(Struct, frozen=True, kw_only=True):
    """Which schedules to list."""

    namespace: str | None = None
    state: ScheduleState | None = None
    group: str | None = None
    name_starts: str = ""
    limit: int = 50
    cursor: str = ""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; with a schedule its own history is walked."""

    namespace: str | None = None
    schedule_id: str | None = None
    queue: str | None = None
    state: RunState | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    cursor: str = ""


class Entry(Struct, frozen=True, kw_only=True):
    """One line of the audit log: who did what to which object, from what to what, and why."""

    at: datetime
    namespace: str
    actor: str
    origin: str
    action: str
    subject: str
    before: str = ""
    after: str = ""
    reason: str = ""


class Stored(Struct, frozen=True, kw_only=True):
    """A small named object kept with its revision: a queue's policy, a limit, a calendar, a workflow."""

    kind: str
    namespace: str
    name: str
    revision: int = 1
    body: bytes
    at: datetime


class Prune(Struct, frozen=True, kw_only=True):
    """What history may go: older than an instant, beyond a count per store, beyond so many bytes."""

    older_than: datetime | None = None
    keep_runs: int | None = None
    keep_bytes: int | None = None
    limit: int = 1000
