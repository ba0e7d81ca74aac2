"""Due schedules and ready runs that no live instance can run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from timewright.core.finding import Finding
from timewright.core.run.needs import needs_of_schedule
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.records.offers import explain_waiting, read_offers
from timewright.operations.views import schedule_names_of
from timewright.ports import ScheduleRecord, Transaction

MAX_ITEMS = 100
REMEDY = "start the program or the worker that offers it; timewright instance list shows those that run"


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
        for record in tx.get_schedules(tx.set_aside_schedules(limit=MAX_ITEMS)).values()
        if record.schedule.namespace == namespace
    ]
    runs = [run for run in tx.first_ready_runs()[:MAX_ITEMS] if run.namespace == namespace]
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
        yield Finding(
            kind="unplaced",
            subject=f"schedule {item.schedule}" if item.schedule else f"run {item.run}",
            since=item.since,
            severity="warn",
            sentence=f"{what} waits: {item.why}",
            remedy=REMEDY,
            schedule=item.schedule,
            run=item.run,
        )
