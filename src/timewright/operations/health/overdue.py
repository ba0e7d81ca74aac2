"""What is overdue, and what cannot run: no live instance has its function, broker, label or address."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from itertools import islice
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.core.finding import Finding
from timewright.core.moments import MINUTE, format_duration
from timewright.core.policies.limits import LIMIT, limit_names
from timewright.core.run.needs import needs_of_schedule
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.target import AnyTarget, Call, Http, Publish, Shell
from timewright.errors import InvalidDuration
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.records.instances import explain_waiting, is_alive, read_offers
from timewright.ledger.snapshot import all_runs, all_schedules
from timewright.operations.context import OperationContext
from timewright.operations.health.pauses import clock_findings
from timewright.operations.registry import OperationRequest, operations
from timewright.operations.views import schedule_names_of
from timewright.ports import RunFilter, ScheduleRecord, Transaction
from timewright.ports.rows import FirstReadyRuns, SetAsideSchedules
from timewright.settings import Settings

MAX_ROWS = 10_000
MAX_ITEMS_SHOWN = 100

MAX_ITEMS = 100
# Operations after which a caller expects that something starts by itself.
NEEDS_ENGINE = frozenset(
    {
        "schedule create", "schedule put", "schedule run", "schedule resume", "schedule backfill",
        "reminder set", "run retry", "run reset", "workflow run", "hint once", "channel test",
    }
)  # fmt: skip
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
        for record in tx.get_schedules(tx.select_schedule_ids(SetAsideSchedules(MAX_ITEMS))).values()
        if record.schedule.namespace == namespace
    ]
    runs = [run for run in tx.select_runs(FirstReadyRuns())[:MAX_ITEMS] if run.namespace == namespace]
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


def lacks_engine(context: OperationContext, operation: str) -> bool:
    """Whether the caller of an operation expects a start, and no instance that starts runs is alive.

    A server that is asked instead answers for itself.
    """
    if operation not in NEEDS_ENGINE or context.remote is not None:
        return False
    now = context.now()
    return not any(is_alive(one.seen, now=now) for one in context.store.read(read_offers))


def function_warnings(context: OperationContext, target: AnyTarget, *, now: datetime) -> tuple[str, ...]:
    """Return a warning if no running instance has the function that a target calls.

    A process with registered functions rejects unknown ones; this check is for processes without any.
    """
    own = context.known_functions() if context.known_functions is not None else frozenset[str]()
    if not isinstance(target, Call) or target.name in own:
        return ()
    known = context.store.read(lambda tx: functions_of_live_instances(tx, now=now))
    if known is None or target.name in known:
        return ()
    near = get_close_matches(target.name[:255], known, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else "; start one with the --app that has it"
    return (f"no running instance has a function {target.name!r}{suggestion}",)


def run_warnings(context: OperationContext, schedule: Schedule, *, now: datetime) -> Iterator[str]:
    """Yield why runs of a schedule will not start or will fail, as far as it can be known now."""
    target, settings = schedule.target, context.settings
    if isinstance(target, Publish | Shell):
        live = [one.offer for one in context.store.read(read_offers) if is_alive(one.seen, now=now)]
        needs = needs_of_schedule(schedule)
        is_on = settings.shell if isinstance(target, Shell) else bool(settings.publish)
        if all(one.lacks(needs) for one in live) if live else not is_on:
            kind = "shell" if isinstance(target, Shell) else f"publish {target.to}"
            what = "running commands" if isinstance(target, Shell) else f"publishing to {target.to}"
            yield f"{what} is off; allow it where it runs: timewright up --{kind}"
    if isinstance(target, Http):
        yield from guarded_address(settings, target.url)
    if isinstance(target, Shell) and len(target.command) == 1 and " " in target.command[0]:
        yield (
            f"no shell splits {target.command[0]!r}: it is the name of one program;"
            f" if it has arguments, write them after --: --shell -- {target.command[0]}"
        )
    if schedule.limits:
        names = [name for name in limit_names(schedule.limits) if name in schedule.limits]
        rows = context.store.read(lambda tx: tx.get_objects(LIMIT, namespace=schedule.namespace, names=names))
        for name in sorted(set(names) - {row.name for row in rows}):
            yield (
                f"limit {name!r} is not set, so it allows one run at a time;"
                f" set it with: timewright limit set {shlex.quote(name)} --max-running 5"
            )


def guarded_address(settings: Settings, url: str) -> Iterator[str]:
    """Warn about an address that requests may not go to: private, or this machine where that is off."""
    try:
        address = ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return
    allowed = any(address in ip_network(rule.cidr) for rule in settings.egress.allow)
    if not (address.is_global or allowed or (address.is_loopback and settings.local)):
        yield (
            f"requests to {address} are refused, because it is not a public address;"
            f" allow it where it runs: egress = {{allow = [{{cidr = '{address}/{address.max_prefixlen}'}}]}}"
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


def functions_of_live_instances(tx: Transaction, *, now: datetime) -> frozenset[str] | None:
    """Return the functions of all live instances; None if there is none, or one does not report them."""
    reported = [one.offer.functions for one in read_offers(tx) if is_alive(one.seen, now=now)]
    if not reported or None in reported:
        return None
    return frozenset(name for names in reported for name in names or ())
