"""Builders of schedules, progress, runs, leases and attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from timewright.core.moments import HOUR, MINUTE
from timewright.core.recurrence.triggers import Every
from timewright.core.run.run import Attempt, Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, queue_limit_key
from timewright.core.target import Note
from timewright.ids import TimedIds
from timewright.ports import (
    AuditEntry,
    Grant,
    ProgressUpdate,
    ScheduleWrite,
    Store,
    StoredObject,
    Transaction,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LEASE = 5 * MINUTE

_tails: Iterator[int] = count(1)
_ids = TimedIds(lambda size: (next(_tails) << 20).to_bytes(size, "big"))


def new_id(kind: str = "run", *, at: datetime = NOON) -> str:
    """Return an id that rises with every call."""
    return _ids.new(kind, now=at)


def make_schedule(name: str = "nightly", **fields: Any) -> Schedule:
    fields.setdefault("id", new_id("schedule"))
    fields.setdefault("created_at", NOON)
    fields.setdefault("trigger", Every(HOUR, NOON))
    fields.setdefault("target", Note(text="hello"))
    return Schedule(name=name, **fields)


def make_progress(**fields: Any) -> ScheduleProgress:
    """Make progress whose wake-up is its next instant, unless given."""
    fields.setdefault("cursor", NOON)
    fields.setdefault("next_at", NOON + HOUR)
    fields.setdefault("wake_at", fields["next_at"])
    return ScheduleProgress(**fields)


def schedule_write(
    schedule: Schedule, progress: ScheduleProgress | None = None, **fields: Any
) -> ScheduleWrite:
    fields.setdefault("at", NOON)
    return ScheduleWrite(schedule=schedule, progress=progress or make_progress(), **fields)


def make_run(schedule_id: str = "", *, planned_at: datetime = NOON, **fields: Any) -> Run:
    """Make a run that may start at its planned instant; without a schedule it is a queue entry."""
    fields.setdefault("id", new_id(at=planned_at))
    fields.setdefault("fire_at", planned_at)
    fields.setdefault("created_at", planned_at)
    fields.setdefault("state", RunState.READY)
    if not schedule_id:
        fields.setdefault("dedupe_scope", fields["id"])
    return Run(schedule_id=schedule_id, planned_at=planned_at, **fields)


def queued(queue: str = "mail", **fields: Any) -> Run:
    """Make a queue entry under the limit of its queue."""
    namespace = fields.get("namespace", "default")
    return make_run(queue=queue, limit_keys=(queue_limit_key(namespace, queue),), **fields)


def grant(run: Run, *, at: datetime = NOON, length: timedelta = LEASE, holder: str = "worker-1") -> Grant:
    return Grant(
        run=run, lease_id=new_id("lease", at=at), holder=holder, leased_at=at, lease_until=at + length
    )


def ended(
    run: Run, state: RunState = RunState.SUCCEEDED, *, at: datetime = NOON + MINUTE, **fields: Any
) -> tuple[Run, Attempt]:
    """Return a leased run after its end, and its attempt."""
    attempt = Attempt(
        run_id=run.id,
        fence=run.fence,
        number=run.attempts + 1,
        lease_id=run.lease_id,
        holder=run.holder,
        leased_at=run.leased_at or at,
        lease_until=run.lease_until or at,
        started_at=run.leased_at,
        ended_at=at,
        outcome=state.value,
        charged=True,
    )
    finished = None if state is RunState.READY else at
    after = replace(run, state=state, attempts=run.attempts + 1, finished_at=finished, **fields)
    return after, attempt


def entry(action: str = "pause", *, at: datetime = NOON, **fields: Any) -> AuditEntry:
    for name, value in (
        ("namespace", "default"),
        ("actor", "ada"),
        ("origin", "cli"),
        ("subject", "nightly"),
    ):
        fields.setdefault(name, value)
    return AuditEntry(at=at, action=action, **fields)


def stored(name: str, body: bytes = b"{}", *, kind: str = "calendar", **fields: Any) -> StoredObject:
    fields.setdefault("namespace", "default")
    fields.setdefault("at", NOON)
    return StoredObject(kind=kind, name=name, body=body, **fields)


def put(store: Store, *rows: ScheduleWrite) -> None:
    store.write(lambda tx: tx.put_schedules(rows))


def add(store: Store, *runs: Run) -> set[str]:
    return store.write(lambda tx: tx.add_runs(runs))


def get(store: Store, run_id: str) -> Run:
    return store.read(lambda tx: tx.get_runs([run_id]))[run_id]


def get_record(store: Store, schedule_id: str) -> Any:
    return store.read(lambda tx: tx.get_schedules([schedule_id]))[schedule_id]


def leased(store: Store, *runs: Run, at: datetime = NOON, length: timedelta = LEASE) -> list[Run]:
    """Lease added runs; returns them as leased."""
    grants = [grant(run, at=at, length=length) for run in runs]
    return store.write(lambda tx: tx.lease_runs(grants))


def settle(store: Store, *settled: tuple[Run, Attempt]) -> set[str]:
    return store.write(lambda tx: tx.settle_runs(settled))


def admit(store: Store, schedule_id: str, *runs: Run) -> list[Run]:
    """Add runs as admission does: each with its previous run, and the newest saved with the schedule."""

    def work(tx: Transaction) -> list[Run]:
        due = tx.get_schedules([schedule_id], lock=True)[schedule_id]
        linked = with_previous_runs(due.last_run, runs)
        new = tx.add_runs(linked)
        assert len(new) == len(linked)
        cursor = max(
            [due.progress.cursor, *(run.last_of or run.planned_at for run in linked if not run.dedupe_scope)]
        )
        tx.save_progress([ProgressUpdate(schedule_id, replace(due.progress, cursor=cursor), linked[-1].id)])
        return linked

    return store.write(work)


def with_previous_runs(previous: str, runs: Sequence[Run]) -> list[Run]:
    """Return the runs with their previous runs set, after an older one."""
    linked: list[Run] = []
    for run in runs:
        linked.append(replace(run, previous=linked[-1].id if linked else previous))
    return linked


def pages(find: Callable[[str], Any]) -> list[list[Any]]:
    """Return every page of a list."""
    found, cursor = [], ""
    while True:
        page = find(cursor)
        found.append(list(page.rows))
        cursor = page.cursor
        if not cursor:
            return found
        assert len(found) < 1000, "a list that never ends"
