"""Copies the definitions and the present state of a namespace into another store, for simulations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.policies.limits import LIMIT
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.ledger.budgets.charges import BUDGET, PROVIDER
from timewright.ledger.dependencies.links import write_links
from timewright.ledger.lookups import CALENDAR, QUEUE, load_calendars
from timewright.ledger.schedule_progress import progress_when_created
from timewright.ledger.workflow_runs.records import VERSION, WORKFLOW
from timewright.ports import (
    RunFilter,
    ScheduleFilter,
    ScheduleRecord,
    ScheduleWrite,
    Store,
    StoredObject,
    Transaction,
)
from timewright.ports.rows import LiveRuns

COPIED_OBJECTS = (CALENDAR, LIMIT, QUEUE, BUDGET, PROVIDER, WORKFLOW, VERSION)
PAGE_ROWS = 1000
_LIVE = (ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.PARKED, ScheduleState.PENDING_APPROVAL)


def all_schedules(
    tx: Transaction, namespace: str, *, state: ScheduleState | None = None, group: str | None = None
) -> Iterator[ScheduleRecord]:
    """Yield the schedules of a namespace by name; they are read page by page, as they are needed."""
    which = ScheduleFilter(namespace=namespace, state=state, group=group, limit=PAGE_ROWS)
    while True:
        page = tx.find(which)
        yield from page.rows
        if not page.cursor:
            return
        which = replace(which, cursor=page.cursor)


def all_runs(tx: Transaction, which: RunFilter) -> Iterator[Run]:
    """Yield the runs of a filter, newest first; they are read page by page, as they are needed."""
    which = replace(which, limit=PAGE_ROWS)
    while True:
        page = tx.find(which)
        yield from page.rows
        if not page.cursor:
            return
        which = replace(which, cursor=page.cursor)


def read_fleet(tx: Transaction, namespace: str) -> Iterator[ScheduleRecord]:
    """Yield the schedules of a namespace that are not archived or finished."""
    return (record for record in all_schedules(tx, namespace) if record.progress.state in _LIVE)


def copy_fleet(
    source: Store,
    into: Store,
    *,
    namespace: str,
    now: datetime,
    restart: bool = False,
    without: Collection[str] = (),
) -> list[Schedule]:
    """Copy the schedules of a namespace and what they refer to; return the schedules.

    With `restart` they begin at `now` as if just created; otherwise with their progress and unfinished runs.
    """

    def read(tx: Transaction) -> tuple[list[ScheduleRecord], list[Run]]:
        records = [one for one in read_fleet(tx, namespace) if one.schedule.name not in without]
        ids = [one.schedule.id for one in records]
        return records, list(tx.select(LiveRuns(ids))) if ids and not restart else []

    records, runs = source.read(read)
    if restart:
        records = [replace(one, schedule=replace(one.schedule, created_at=now)) for one in records]
    schedules = [one.schedule for one in records]
    copy_objects(source, into, namespace=namespace, schedules=schedules)

    def write(tx: Transaction) -> None:
        calendars = load_calendars(tx, schedules)
        tx.put_schedules(
            [
                ScheduleWrite(
                    schedule=one.schedule,
                    progress=progress_when_created(one.schedule, calendars, now=now)
                    if restart
                    else one.progress,
                    at=now,
                )
                for one in records
            ]
        )
        write_links(tx, schedules)
        tx.add_runs([unleased(run) for run in runs])

    into.write(write)
    return schedules


def copy_objects(source: Store, into: Store, *, namespace: str, schedules: Sequence[Schedule]) -> None:
    """Copy calendars, queues, budgets and workflows, and the limits that the schedules name."""
    keys = sorted({key for one in schedules for key in one.limit_keys})

    def read(tx: Transaction) -> tuple[dict[str, list[StoredObject]], dict[str, int]]:
        objects = {kind: tx.get_objects(kind, namespace=namespace) for kind in COPIED_OBJECTS}
        return objects, {key: usage.capacity for key, usage in tx.get_limits(keys).items()}

    objects, limits = source.read(read)

    def write(tx: Transaction) -> None:
        tx.set_limits(limits)
        for rows in objects.values():
            if rows:
                tx.put_objects(rows)

    into.write(write)


def unleased(run: Run) -> Run:
    """Return a run as ready: work in flight is started again in a simulation."""
    if run.state is not RunState.LEASED:
        return run
    return replace(run, state=RunState.READY, holder="", lease_id="", lease_until=None)
