"""What should have begun and has not: read from the store alone, so it also speaks when no engine runs."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import MINUTE
from timewright.core.run import Run, RunState
from timewright.core.schedule import ScheduleState
from timewright.errors import InvalidDuration
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.operations.views import names_of_schedules
from timewright.ports import RunFilter, ScheduleFilter, Transaction

MOST_PAGES = 10
PAGE = 1000
MOST_SHOWN = 100


class Ask(Request, frozen=True, kw_only=True):
    """How late is too late."""

    tolerance: timedelta = MINUTE


class Late(Struct, frozen=True, kw_only=True):
    """One that is late: a schedule nobody has looked at, or a run that nobody has begun."""

    schedule: str
    run: str
    since: datetime
    late_by: timedelta


class Overdue(Struct, frozen=True, kw_only=True):
    """Whether something is overdue, and the longest waiting of it; what is looked at is bounded."""

    overdue: bool
    now: datetime
    tolerance: timedelta
    late: tuple[Late, ...]


@operations.add("", "overdue", Ask, scope="read", examples=({}, {"tolerance": "5m"}))
def overdue(context: Context, ask: Ask) -> Overdue:
    """Say what should have begun and has not: much of it means that no engine runs, or too few."""
    if not timedelta(0) <= ask.tolerance <= timedelta(days=366):
        raise InvalidDuration(
            "the tolerance is out of range", field="tolerance", rule="from 0s to 366d", fix="tolerance: 1m"
        )
    now = context.now()

    def work(tx: Transaction) -> Overdue:
        before = now - ask.tolerance
        earliest = tx.next_wake()
        # The store knows its earliest look at once; only if that is late is it worth to go through them.
        calm = earliest is None or earliest >= before
        found = [*([] if calm else _schedules(tx, context, before)), *_runs(tx, context, before)]
        late = tuple(
            Late(schedule=schedule, run=run, since=since, late_by=now - since)
            for since, schedule, run in sorted(found)[:MOST_SHOWN]
        )
        return Overdue(overdue=bool(late), now=now, tolerance=ask.tolerance, late=late)

    return context.store.read(work)


def _schedules(tx: Transaction, context: Context, before: datetime) -> list[tuple[datetime, str, str]]:
    found, cursor = [], ""
    for _ in range(MOST_PAGES):
        page = tx.find_schedules(
            ScheduleFilter(namespace=context.namespace, state=ScheduleState.ACTIVE, limit=PAGE, cursor=cursor)
        )
        for due in page.rows:
            at = due.standing.wake_at
            if at is not None and at < before:
                found.append((at, due.schedule.name, ""))
        cursor = page.cursor
        if not cursor:
            break
    return found


def _runs(tx: Transaction, context: Context, before: datetime) -> list[tuple[datetime, str, str]]:
    """Ready runs of schedules; entries of a queue wait for whoever leases them, and are not late."""
    late: list[Run] = []
    cursor = ""
    for _ in range(MOST_PAGES):
        which = RunFilter(namespace=context.namespace, state=RunState.READY, limit=PAGE, cursor=cursor)
        page = tx.find_runs(which)
        late += [run for run in page.rows if run.fire_at < before and run.schedule_id and not run.handoff]
        cursor = page.cursor
        if not cursor:
            break
    names = names_of_schedules(tx, late)
    return [(run.fire_at, names.get(run.schedule_id, ""), run.id) for run in late]
