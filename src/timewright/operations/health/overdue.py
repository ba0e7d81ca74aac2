"""Overdue schedules and runs, read from the store, so that it also works while no engine runs."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import MINUTE
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidDuration
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.operations.views import schedule_names_of
from timewright.ports import RunFilter, ScheduleFilter, Transaction

MAX_PAGES = 10
PAGE_ROWS = 1000
MAX_ITEMS_SHOWN = 100


class ListOverdue(OperationRequest, frozen=True, kw_only=True):
    """How late something may be."""

    tolerance: timedelta = MINUTE


class OverdueItem(Struct, frozen=True, kw_only=True):
    """A schedule that was not admitted in time, or a run that was not started in time."""

    schedule: str
    run: str
    since: datetime
    late_by: timedelta


class OverdueReport(Struct, frozen=True, kw_only=True):
    """Whether something is overdue, and the most overdue items, at most 100."""

    overdue: bool
    now: datetime
    tolerance: timedelta
    late: tuple[OverdueItem, ...]


@operations.add("", "overdue", ListOverdue, scope="read", examples=({}, {"tolerance": "5m"}))
def list_overdue(context: OperationContext, request: ListOverdue) -> OverdueReport:
    """List what should have started and has not: many items mean that no engine runs, or too few."""
    if not timedelta(0) <= request.tolerance <= timedelta(days=366):
        raise InvalidDuration(
            "the tolerance is out of range", field="tolerance", rule="from 0s to 366d", fix="tolerance: 1m"
        )
    now = context.now()

    def work(tx: Transaction) -> OverdueReport:
        before = now - request.tolerance
        earliest = tx.read_pending_work().wake_at
        # The earliest wake-up is one indexed read; scan the schedules only if that is late.
        none_late = earliest is None or earliest >= before
        found = [*([] if none_late else _schedules(tx, context, before)), *_runs(tx, context, before)]
        late = tuple(
            OverdueItem(schedule=schedule, run=run, since=since, late_by=now - since)
            for since, schedule, run in sorted(found)[:MAX_ITEMS_SHOWN]
        )
        return OverdueReport(overdue=bool(late), now=now, tolerance=request.tolerance, late=late)

    return context.store.read(work)


def _schedules(
    tx: Transaction, context: OperationContext, before: datetime
) -> list[tuple[datetime, str, str]]:
    found, cursor = [], ""
    for _ in range(MAX_PAGES):
        page = tx.find_schedules(
            ScheduleFilter(
                namespace=context.namespace, state=ScheduleState.ACTIVE, limit=PAGE_ROWS, cursor=cursor
            )
        )
        for record in page.rows:
            at = record.progress.wake_at
            if at is not None and at < before:
                found.append((at, record.schedule.name, ""))
        cursor = page.cursor
        if not cursor:
            break
    return found


def _runs(tx: Transaction, context: OperationContext, before: datetime) -> list[tuple[datetime, str, str]]:
    """Return late ready runs of schedules; queue entries wait for a worker and are never late."""
    late: list[Run] = []
    cursor = ""
    for _ in range(MAX_PAGES):
        which = RunFilter(namespace=context.namespace, state=RunState.READY, limit=PAGE_ROWS, cursor=cursor)
        page = tx.find_runs(which)
        late += [run for run in page.rows if run.fire_at < before and run.schedule_id and not run.handoff]
        cursor = page.cursor
        if not cursor:
            break
    names = schedule_names_of(tx, late)
    return [(run.fire_at, names.get(run.schedule_id, ""), run.id) for run in late]
