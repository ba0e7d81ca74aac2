"""What is overdue, and what cannot run: no live instance has its function, broker, label or address."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct

from timewright.core.finding import Finding
from timewright.core.moments import MINUTE, format_duration
from timewright.core.run.needs import needs_of_schedule
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidDuration
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.records.instances import explain_waiting, read_offers
from timewright.ledger.snapshot import all_runs, all_schedules
from timewright.operations.context import OperationContext
from timewright.operations.health.pauses import clock_findings
from timewright.operations.registry import OperationRequest, operations
from timewright.operations.views import schedule_names_of
from timewright.ports import RunFilter, ScheduleRecord, Transaction
from timewright.ports.rows import FirstReadyRuns
from timewright.ports.schedules import SetAsideSchedules

MAX_ROWS = 10_000
MAX_ITEMS_SHOWN = 100

MAX_ITEMS = 100
REMEDY = "start the program or the worker that offers it; timewright instance list shows those that run"


class ListOverdue(OperationRequest, frozen=True, kw_only=True):
    """How late something may be."""

    tolerance: timedelta = MINUTE


class OverdueReport(Struct, frozen=True, kw_only=True):
    """Whether something is overdue, and the most overdue items, at most 100."""

    overdue: bool
    now: datetime
    tolerance: timedelta
    late: tuple[Finding, ...]


@operations.read("overdue", scope="read", examples=({}, {"tolerance": "5m"}))
def list_overdue(context: OperationContext, tx: Transaction, request: ListOverdue) -> OverdueReport:
    """List what should have started and has not: many items mean that no engine runs, or too few."""
    if not timedelta(0) <= request.tolerance <= timedelta(days=366):
        raise InvalidDuration(
            "the tolerance is out of range", field="tolerance", rule="from 0s to 366d", fix="tolerance: 1m"
        )
    now = context.now()
    before = now - request.tolerance
    earliest = tx.read_pending_work().wake_at
    # The earliest wake-up is one indexed read; scan the schedules only if that is late.
    none_late = earliest is None or earliest >= before
    found = [*([] if none_late else _schedules(tx, context, before)), *_runs(tx, context, before)]
    unplaced = [one for one in find_unplaced(tx, context.namespace, now=now) if one.since < before]
    reasons = {one.run or one.schedule: one.why for one in unplaced}
    found += [(one.since, one.schedule, "") for one in unplaced if not one.run]
    late = tuple(
        _late_finding(schedule, run, since, why=reasons.get(run or schedule, ""), now=now)
        for since, schedule, run in sorted(set(found))[:MAX_ITEMS_SHOWN]
    )
    late = (*clock_findings(tx, now=now), *late)
    return OverdueReport(overdue=bool(late), now=now, tolerance=request.tolerance, late=late)


def _late_finding(schedule: str, run: str, since: datetime, *, why: str, now: datetime) -> Finding:
    late_by = format_duration(timedelta(seconds=round((now - since).total_seconds())))
    what = f"a run of {schedule} has been ready" if run else f"{schedule} has been due"
    return Finding.fail(
        "late",
        f"{what} for {late_by} and has not started{f': {why}' if why else ''}",
        remedy=REMEDY if why else "timewright up, or start another timewright worker",
        subject=f"schedule {schedule}",
        since=since,
        schedule=schedule,
        run=run,
    )


def _schedules(
    tx: Transaction, context: OperationContext, before: datetime
) -> list[tuple[datetime, str, str]]:
    active = all_schedules(tx, context.namespace, state=ScheduleState.ACTIVE)
    return [
        (at, record.schedule.name, "")
        for record in islice(active, MAX_ROWS)
        if (at := record.progress.wake_at) is not None and at < before
    ]


def _runs(tx: Transaction, context: OperationContext, before: datetime) -> list[tuple[datetime, str, str]]:
    """Return late ready runs of schedules; queue entries wait for a worker and are never late."""
    ready = islice(all_runs(tx, RunFilter(namespace=context.namespace, state=RunState.READY)), MAX_ROWS)
    late = [run for run in ready if run.fire_at < before and run.schedule_id and not run.handoff]
    names = schedule_names_of(tx, late)
    return [(run.fire_at, names.get(run.schedule_id, ""), run.id) for run in late]


class UnplacedItem(Struct, frozen=True, order=True):
    """Something that waits for an instance: since when, of which schedule, as which run, and why."""

    since: datetime
    schedule: str
    run: str
    why: str


def find_unplaced(tx: Transaction, namespace: str, *, now: datetime) -> list[UnplacedItem]:
    """The due schedules and the first ready run of each kind that no live instance can run, oldest first."""
    set_aside = [
        record
        for record in tx.get_schedules(one.id for one in tx.select(SetAsideSchedules(MAX_ITEMS))).values()
        if record.schedule.namespace == namespace
    ]
    runs = [run for run in tx.select(FirstReadyRuns())[:MAX_ITEMS] if run.namespace == namespace]
    if not set_aside and not runs:
        return []
    offers, names = read_offers(tx), schedule_names_of(tx, runs)
    found = [
        UnplacedItem(record.progress.next_at or now, record.schedule.name, "", why)
        for record in set_aside
        if is_due(record, now=now)
        and (why := explain_waiting(offers, needs_of_schedule(record.schedule), now=now))
    ]
    found += [
        UnplacedItem(run.fire_at, names.get(run.schedule_id, ""), run.id, why)
        for run in runs
        if (why := explain_waiting(offers, run.needs, now=now))
    ]
    return sorted(found)


def is_due(record: ScheduleRecord, *, now: datetime) -> bool:
    """Whether an occurrence of an active schedule is due and not decided."""
    progress = record.progress
    return progress.state is ScheduleState.ACTIVE and progress.next_at is not None and progress.next_at <= now


@checks.add()
def check_unplaced(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find what waits because no live instance can run it."""
    for item in find_unplaced(tx, scope.namespace, now=scope.now):
        what = item.schedule or f"run {item.run}"
        yield Finding.warn(
            "unplaced",
            f"{what} waits: {item.why}",
            remedy=REMEDY,
            subject=f"schedule {item.schedule}" if item.schedule else f"run {item.run}",
            since=item.since,
            schedule=item.schedule,
            run=item.run,
        )


@checks.add()
def check_broken_functions(_tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find functions of installed packages that cannot be used."""
    for name, why in sorted(scope.broken_functions.items()):
        yield Finding.warn(
            "functions",
            f"the function {name!r} of an installed package cannot be used: {why}",
            remedy="fix or remove the package, or set entry_points: false",
        )
