"""The doctor (known problems, each with its remedy), the health of the system, and its instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.finding import Finding, Severity, command_line, list_names, worst_severity
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, ZERO, format_duration, from_micros, to_micros
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, After, Manual, parts_of
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import Call
from timewright.core.zones import load_zone
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.leader import current_leader
from timewright.ledger.records.instances import MAX_INSTANCES, InstanceHeartbeat, is_alive, read_instances
from timewright.operations.context import OperationContext
from timewright.operations.health import doctor_checks, overdue
from timewright.operations.health.start_warnings import functions_of_live_instances
from timewright.operations.registry import NoParameters, answer_from, operations
from timewright.ports import LiveCount, Page, ScheduleFilter, ScheduleRecord, Store, Transaction
from timewright.ports.overview import LiveCounts

# Importing them registers their checks.
CHECK_MODULES = (doctor_checks, overdue)
MAX_ROWS_CHECKED = 1000
MAX_LATENESS = MINUTE
MAX_READY_WAIT = 5 * MINUTE
# An engine reclaims expired leases once a second; 15 s without that means that none does.
MAX_UNRECLAIMED = 15 * SECOND
DST_LOOKAHEAD = 30 * DAY
BACKUP_META_KEY = "backup_at"
MAX_NAMES_SHOWN = 3

MAX_COUNT = 1000
# Per kind, across namespaces: counting this many rows takes a few milliseconds.
MAX_ROWS_SCANNED = 20_000

SHOWN_FOR = DAY


class DoctorReport(Struct, frozen=True, kw_only=True):
    """All findings about now, and the overall severity: that of the worst finding."""

    severity: Severity
    findings: tuple[Finding, ...]


@operations.add("doctor", scope="read", examples=({},))
def doctor(context: OperationContext, _request: NoParameters) -> DoctorReport:
    """Check store, clock, time zone data, files and backlog; show each problem and its remedy."""
    scope = check_scope(context)
    found = context.store.read(lambda tx: checks.find(tx, scope))
    return DoctorReport(severity=worst_severity(found), findings=found)


def check_scope(context: OperationContext) -> CheckScope:
    """What the checks of a caller look at."""
    return CheckScope(
        namespace=context.namespace,
        now=context.now(),
        settings=context.settings,
        host=context.host_info() if context.host_info is not None else None,
        known_functions=context.known_functions() if context.known_functions is not None else frozenset(),
        broken_functions=context.broken_functions() if context.broken_functions is not None else {},
        policy_file=context.queue_policy_file(),
    )


def record_backup(store: Store) -> None:
    """Record in the store when a backup was made."""
    now = store.now()
    store.write(lambda tx: tx.put_meta(BACKUP_META_KEY, str(to_micros(now))))


@checks.add()
def check_rows(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Check the rows of the namespace, at most 1000 of each kind."""
    namespace, now = scope.namespace, scope.now
    live = tx.select(LiveCounts(now=now, max_rows=MAX_ROWS_CHECKED))
    counts = [one for one in live if one.namespace == namespace]
    page = tx.find(ScheduleFilter(namespace=namespace, limit=MAX_ROWS_CHECKED))
    yield _overdue(tx, now=now)
    yield _leases(tx, now=now)
    yield from _waiting(counts, now=now)
    yield _parked(counts)
    yield _schedules(page, tx.read_pending_work().wake_at, now=now)
    yield from _stalled(page)
    offered = functions_of_live_instances(tx, now=now) or frozenset()
    yield from _unresolved(page, scope.known_functions | offered if scope.known_functions else frozenset())
    yield from _clock_changes(page, now=now)
    yield _backup(tx, now=now)


def _overdue(tx: Transaction, *, now: datetime) -> Finding:
    wake = tx.read_pending_work().wake_at
    if wake is None or now - wake < MAX_LATENESS:
        return Finding.ok("due", "nothing is overdue")
    return Finding.fail(
        "due",
        f"a schedule has been due for {_format_span(now - wake)}: no engine runs, or none keeps up",
        remedy="timewright up, or start another timewright worker",
    )


def _leases(tx: Transaction, *, now: datetime) -> Finding:
    end = tx.read_pending_work(with_lease_end=True).lease_expires_at
    if end is None or now - end < MAX_UNRECLAIMED:
        soon = f"; the next one ends in {_format_span(end - now)}" if end is not None and end > now else ""
        return Finding.ok("leases", f"no lease is expired{soon}")
    return Finding.warn(
        "leases",
        f"a lease expired {_format_span(now - end)} ago and was not reclaimed",
        remedy="timewright up reclaims it, or timewright queue reclaim QUEUE",
    )


def _waiting(counts: list[LiveCount], *, now: datetime) -> Iterator[Finding]:
    for one in counts:
        if one.kind == "ready" and one.oldest is not None and now - one.oldest > MAX_READY_WAIT:
            label = f"queue {one.queue}" if one.queue else "runs without a queue"
            fix = "timewright up, with more --capacity"
            if one.queue:
                fix = command_line("queue", "plan", one.queue, namespace=one.namespace)
            waited = _format_span(now - one.oldest)
            yield Finding.warn(
                "backlog", f"{label}: {_count(one.count, 'run')} ready, the longest for {waited}", remedy=fix
            )


def _parked(counts: list[LiveCount]) -> Finding:
    runs = sum(one.count for one in counts if one.kind == "parked")
    schedules = sum(one.count for one in counts if one.kind == "parked_schedule")
    if not runs and not schedules:
        return Finding.ok("parked", "nothing is parked")
    parts = [_count(schedules, "schedule")] if schedules else []
    parts += [_count(runs, "run")] if runs else []
    noun = "schedule" if schedules else "run"
    command = "schedule resume" if schedules else "run reset"
    return Finding.warn(
        "parked",
        f"parked, waiting for a person: {' and '.join(parts)}",
        remedy=f"timewright {noun} list --state parked, then timewright {command}",
    )


def _schedules(page: Page, wake: datetime | None, *, now: datetime) -> Finding:
    if page.unreadable:
        names = ", ".join(one.name or one.id for one in page.unreadable[:MAX_NAMES_SHOWN])
        return Finding.fail(
            "schedules",
            f"{_count(len(page.unreadable), 'schedule')} cannot be read: {names}",
            remedy="timewright schedule put replaces it by name",
        )
    count = _count(MAX_ROWS_CHECKED if page.cursor else len(page.rows), "schedule")
    upcoming = f", next due in {_format_span(wake - now)}" if wake is not None and wake > now else ""
    return Finding.ok("schedules", f"{count}{upcoming}")


def _stalled(page: Page) -> Iterator[Finding]:
    """Find active schedules without a next occurrence."""
    stalled = [record.schedule for record in page.rows if _is_stalled(record)]
    names = [schedule.name for schedule in stalled]
    if names:
        yield Finding.warn(
            "stalled",
            f"active, but without a next occurrence: {list_names(names)}",
            remedy=command_line("explain", names[0], namespace=stalled[0].namespace),
        )


def _unresolved(page: Page, known: frozenset[str]) -> Iterator[Finding]:
    """Find functions that schedules call and that neither this process nor a live instance has."""
    called = {record.schedule.target.name for record in page.rows if isinstance(record.schedule.target, Call)}
    missing = sorted(called - known) if known else []
    if missing:
        yield Finding.warn(
            "functions",
            f"schedules call unregistered functions: {list_names(missing)}",
            remedy="register them, or start with the --app that does",
        )


def _is_stalled(record: ScheduleRecord) -> bool:
    by_hand = isinstance(record.schedule.trigger, Manual | After)
    return record.progress.state is ScheduleState.ACTIVE and record.progress.wake_at is None and not by_hand


def _clock_changes(page: Page, *, now: datetime) -> Iterator[Finding]:
    """Find time zones with a daylight saving change within 30 days, and count their schedules."""
    users: dict[str, int] = {}
    for record in page.rows:
        parts = parts_of(record.schedule.trigger)
        for name in {one.zone for one in parts if isinstance(one, ZONED_TRIGGERS)}:
            users[name] = users.get(name, 0) + 1
    for name, count in sorted(users.items()):
        tz = load_zone(name)
        if now.astimezone(tz).utcoffset() != (now + DST_LOOKAHEAD).astimezone(tz).utcoffset():
            yield Finding.ok(
                "dst", f"the clocks of {name} change within 30 days, for {_count(count, 'schedule')}"
            )


def _backup(tx: Transaction, *, now: datetime) -> Finding:
    written = tx.get_meta(BACKUP_META_KEY)
    if written is None:
        return Finding.ok("backup", "no backup by `timewright backup` is recorded")
    age = max(now - from_micros(int(written)), ZERO)
    if age <= doctor_checks.MAX_BACKUP_AGE:
        return Finding.ok("backup", f"the last backup is {_format_span(age)} old")
    return Finding.warn(
        "backup", f"the last backup is {_format_span(age)} old", remedy="timewright backup FILE"
    )


def _count(count: int, what: str) -> str:
    number = f"{MAX_ROWS_CHECKED} or more" if count >= MAX_ROWS_CHECKED else str(count)
    return f"{number} {what}{'s' if count != 1 else ''}"


def _format_span(length: timedelta) -> str:
    """Return a duration in whole seconds, above a day in whole hours."""
    whole = timedelta(seconds=round(length.total_seconds()))
    if whole >= DAY:
        whole -= whole % HOUR
    return format_duration(whole)


class SystemHealth(Struct, frozen=True, kw_only=True):
    """The health of the system. Counts are those of the namespace and stop at 1000.

    `instances` is how many instances run; with none, nothing starts. `late_by` is how long the most overdue
    schedule has been waiting: more than a few seconds means that they cannot keep up. `leader` is the leading
    instance, if instances elect one; `policy_file` is the error of the policy file, because of which no queue
    leases anything.
    """

    instances: int
    now: datetime
    next_wake: datetime | None
    late_by: timedelta
    next_lease_end: datetime | None
    parked_schedules: int
    parked_runs: int
    ready_runs: int
    leased_runs: int
    held_runs: int
    leader: str
    policy_file: str


@operations.read("health", scope="read", examples=({},))
def health(context: OperationContext, tx: Transaction, _request: NoParameters) -> SystemHealth:
    """Show how many instances run, how late they are, and how much waits for a person."""
    now = context.now()
    file = context.queue_policy_file()
    error = file.error if file is not None else None
    wake = tx.read_pending_work().wake_at
    counts: Counter[str] = Counter()
    for one in tx.select(LiveCounts(now=now, max_rows=MAX_ROWS_SCANNED)):
        if one.namespace == context.namespace:
            counts[one.kind] += one.count
    counted = {kind: min(count, MAX_COUNT) for kind, count in counts.items()}
    return SystemHealth(
        instances=sum(is_alive(seen, now=now) for seen in read_instances(tx, limit=MAX_INSTANCES)),
        now=now,
        next_wake=wake,
        late_by=max(now - wake, ZERO) if wake is not None else ZERO,
        next_lease_end=tx.read_pending_work(with_lease_end=True).lease_expires_at,
        parked_schedules=counted.get("parked_schedule", 0),
        parked_runs=counted.get("parked", 0),
        ready_runs=min(counted.get("ready", 0) + counted.get("waiting", 0), MAX_COUNT),
        leased_runs=counted.get("leased", 0),
        held_runs=counted.get("held", 0),
        leader=current_leader(tx, now=now),
        policy_file=error.message if error is not None else "",
    )


class InstanceSummary(Struct, frozen=True, kw_only=True):
    """An instance; `clock_offset` is how far the store's clock is ahead of the instance's.

    It admits due schedules of its `shard`, or of all; with `admit: leader`, only while it `leads`.
    """

    instance: str
    state: Literal["alive", "silent", "stopped"]
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    capacity: int
    under_way: int
    clock_offset: timedelta
    admit: str
    shard: str
    leads: bool


class InstanceList(Struct, frozen=True, kw_only=True):
    """The instances of the store, newest first."""

    instances: tuple[InstanceSummary, ...]


@operations.read("instance list", scope="read", examples=({},))
def list_instances(context: OperationContext, tx: Transaction, _request: NoParameters) -> InstanceList:
    """List the instances with their load and the time of their last heartbeat."""
    now = context.now()
    leader = current_leader(tx, now=now)
    recent = (one for one in read_instances(tx, limit=MAX_INSTANCES) if now - one.at <= SHOWN_FOR)
    return InstanceList(instances=tuple(_to_summary(one, leader=leader, now=now) for one in recent))


def _to_summary(seen: InstanceHeartbeat, *, leader: str, now: datetime) -> InstanceSummary:
    one = seen.instance
    liveness: Literal["alive", "silent"] = "alive" if is_alive(seen, now=now) else "silent"
    return answer_from(
        InstanceSummary,
        one,
        instance=one.id,
        state="stopped" if one.stopped else liveness,
        seen_at=seen.at,
        leads=one.id == leader,
    )
