"""The doctor: check for known problems and name the fix for each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import DAY, MINUTE, SECOND, format_duration, from_micros, to_micros
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, After, AnyOf, Manual
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import Call
from timewright.core.zones import load_zone
from timewright.operations.context import OperationContext
from timewright.operations.health.doctor_checks import (
    MAX_BACKUP_AGE,
    CheckStatus,
    DoctorFinding,
    host_findings,
    setting_findings,
)
from timewright.operations.health.fleet_checks import admission_findings, policy_file_findings
from timewright.operations.health.known_functions import broken_function_findings
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import LiveCount, Page, ScheduleFilter, ScheduleRecord, Store, Transaction

MAX_ROWS_CHECKED = 1000
MAX_LATENESS = MINUTE
MAX_READY_WAIT = 5 * MINUTE
# An engine reclaims expired leases once a second; 15 s without that means that none does.
MAX_UNRECLAIMED = 15 * SECOND
DST_LOOKAHEAD = 30 * DAY
BACKUP_META_KEY = "backup_at"
MAX_NAMES_SHOWN = 3


class RunDoctor(OperationRequest, frozen=True, kw_only=True):
    """No parameters: all checks run."""


class DoctorReport(Struct, frozen=True, kw_only=True):
    """All findings, and the overall status: that of the worst finding."""

    status: CheckStatus
    findings: tuple[DoctorFinding, ...]


@operations.add("", "doctor", RunDoctor, scope="read", examples=({},))
def doctor(context: OperationContext, _request: RunDoctor) -> DoctorReport:
    """Check store, clock, time zone data, files and backlog; show each problem and its fix."""
    now = context.now()
    found: list[DoctorFinding] = []
    if context.host_info is not None:
        found += host_findings(context.host_info(), context.settings, now=now)
    found += setting_findings(context.settings)
    known = context.known_functions() if context.known_functions is not None else frozenset[str]()
    found += context.store.read(lambda tx: list(_check_rows(tx, context.namespace, known, now=now)))
    found += broken_function_findings(
        context.broken_functions() if context.broken_functions is not None else {}
    )
    file = context.queue_policy_file()
    found += context.store.read(
        lambda tx: [
            *admission_findings(tx, now=now),
            *policy_file_findings(tx, file, namespace=context.namespace),
        ]
    )
    statuses = {finding.status for finding in found}
    overall: CheckStatus = "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"
    return DoctorReport(status=overall, findings=tuple(found))


def record_backup(store: Store) -> None:
    """Record in the store when a backup was made."""
    now = store.now()
    store.write(lambda tx: tx.put_meta(BACKUP_META_KEY, str(to_micros(now))))


def _check_rows(
    tx: Transaction, namespace: str, known: frozenset[str], *, now: datetime
) -> Iterator[DoctorFinding]:
    """Check the rows of the namespace, at most 1000 of each kind."""
    counts = [one for one in tx.count_live(now=now, max_rows=MAX_ROWS_CHECKED) if one.namespace == namespace]
    page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=MAX_ROWS_CHECKED))
    yield _overdue(tx, now=now)
    yield _leases(tx, now=now)
    yield from _waiting(counts, now=now)
    yield _parked(counts)
    yield _schedules(page, tx.read_pending_work().wake_at, now=now)
    yield from _stalled(page)
    yield from _unresolved(page, known)
    yield from _clock_changes(page, now=now)
    yield _backup(tx, now=now)


def _overdue(tx: Transaction, *, now: datetime) -> DoctorFinding:
    wake = tx.read_pending_work().wake_at
    if wake is None or now - wake < MAX_LATENESS:
        return DoctorFinding(check="due", status="ok", message="nothing is overdue")
    return DoctorFinding(
        check="due",
        status="fail",
        message=f"a schedule has been due for {_format_span(now - wake)}: no engine runs, or none keeps up",
        fix="timewright up, or start another timewright worker",
    )


def _leases(tx: Transaction, *, now: datetime) -> DoctorFinding:
    end = tx.read_pending_work(with_lease_end=True).lease_expires_at
    if end is None or now - end < MAX_UNRECLAIMED:
        soon = f"; the next one ends in {_format_span(end - now)}" if end is not None and end > now else ""
        return DoctorFinding(check="leases", status="ok", message=f"no lease is expired{soon}")
    return DoctorFinding(
        check="leases",
        status="warn",
        message=f"a lease expired {_format_span(now - end)} ago and was not reclaimed",
        fix="timewright up reclaims it, or timewright queue reclaim QUEUE",
    )


def _waiting(counts: list[LiveCount], *, now: datetime) -> Iterator[DoctorFinding]:
    for one in counts:
        if one.kind == "ready" and one.oldest is not None and now - one.oldest > MAX_READY_WAIT:
            label = f"queue {one.queue}" if one.queue else "runs without a queue"
            fix = f"timewright queue plan {one.queue}" if one.queue else "timewright up, with more --capacity"
            waited = _format_span(now - one.oldest)
            yield DoctorFinding(
                check="backlog",
                status="warn",
                message=f"{label}: {_count(one.count, 'run')} ready, the longest for {waited}",
                fix=fix,
            )


def _parked(counts: list[LiveCount]) -> DoctorFinding:
    runs = sum(one.count for one in counts if one.kind == "parked")
    schedules = sum(one.count for one in counts if one.kind == "parked_schedule")
    if not runs and not schedules:
        return DoctorFinding(check="parked", status="ok", message="nothing is parked")
    parts = [_count(schedules, "schedule")] if schedules else []
    parts += [_count(runs, "run")] if runs else []
    noun = "schedule" if schedules else "run"
    command = "schedule resume" if schedules else "run reset"
    return DoctorFinding(
        check="parked",
        status="warn",
        message=f"parked, waiting for a person: {' and '.join(parts)}",
        fix=f"timewright {noun} list --state parked, then timewright {command}",
    )


def _schedules(page: Page, wake: datetime | None, *, now: datetime) -> DoctorFinding:
    if page.unreadable:
        names = ", ".join(one.name or one.id for one in page.unreadable[:MAX_NAMES_SHOWN])
        return DoctorFinding(
            check="schedules",
            status="fail",
            message=f"{_count(len(page.unreadable), 'schedule')} cannot be read: {names}",
            fix="timewright schedule put replaces it by name",
        )
    count = _count(MAX_ROWS_CHECKED if page.cursor else len(page.rows), "schedule")
    upcoming = f", next due in {_format_span(wake - now)}" if wake is not None and wake > now else ""
    return DoctorFinding(check="schedules", status="ok", message=f"{count}{upcoming}")


def _stalled(page: Page) -> Iterator[DoctorFinding]:
    """Find active schedules without a next occurrence."""
    names = [record.schedule.name for record in page.rows if _is_stalled(record)]
    if names:
        more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
        yield DoctorFinding(
            check="stalled",
            status="warn",
            message=f"active, but without a next occurrence: {', '.join(names[:MAX_NAMES_SHOWN])}{more}",
            fix=f"timewright explain {names[0]}",
        )


def _unresolved(page: Page, known: frozenset[str]) -> Iterator[DoctorFinding]:
    """Find functions that schedules call and that are not registered in this process, if it has any."""
    called = {record.schedule.target.name for record in page.rows if isinstance(record.schedule.target, Call)}
    missing = sorted(called - known) if known else []
    if missing:
        more = f" and {len(missing) - MAX_NAMES_SHOWN} more" if len(missing) > MAX_NAMES_SHOWN else ""
        yield DoctorFinding(
            check="functions",
            status="warn",
            message=f"schedules call unregistered functions: {', '.join(missing[:MAX_NAMES_SHOWN])}{more}",
            fix="register them, or start with the --app that does",
        )


def _is_stalled(record: ScheduleRecord) -> bool:
    by_hand = isinstance(record.schedule.trigger, Manual | After)
    return record.progress.state is ScheduleState.ACTIVE and record.progress.wake_at is None and not by_hand


def _clock_changes(page: Page, *, now: datetime) -> Iterator[DoctorFinding]:
    """Find time zones with a daylight saving change within 30 days, and count their schedules."""
    users: dict[str, int] = {}
    for record in page.rows:
        trigger = record.schedule.trigger
        parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
        for name in {one.zone for one in parts if isinstance(one, ZONED_TRIGGERS)}:
            users[name] = users.get(name, 0) + 1
    for name, count in sorted(users.items()):
        tz = load_zone(name)
        if now.astimezone(tz).utcoffset() != (now + DST_LOOKAHEAD).astimezone(tz).utcoffset():
            yield DoctorFinding(
                check="dst",
                status="ok",
                message=f"the clocks of {name} change within 30 days, for {_count(count, 'schedule')}",
            )


def _backup(tx: Transaction, *, now: datetime) -> DoctorFinding:
    written = tx.get_meta(BACKUP_META_KEY)
    if written is None:
        return DoctorFinding(
            check="backup", status="ok", message="no backup by `timewright backup` is recorded"
        )
    age = max(now - from_micros(int(written)), timedelta(0))
    if age <= MAX_BACKUP_AGE:
        return DoctorFinding(
            check="backup", status="ok", message=f"the last backup is {_format_span(age)} old"
        )
    return DoctorFinding(
        check="backup",
        status="warn",
        message=f"the last backup is {_format_span(age)} old",
        fix="timewright backup FILE",
    )


def _count(count: int, what: str) -> str:
    number = f"{MAX_ROWS_CHECKED} or more" if count >= MAX_ROWS_CHECKED else str(count)
    return f"{number} {what}{'s' if count != 1 else ''}"


def _format_span(length: timedelta) -> str:
    """Return a duration in whole seconds, above a day in whole hours."""
    whole = timedelta(seconds=round(length.total_seconds()))
    if whole >= DAY:
        whole -= whole % timedelta(hours=1)
    return format_duration(whole)
