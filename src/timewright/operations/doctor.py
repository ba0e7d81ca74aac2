"""The doctor: looks at everything that has gone wrong somewhere before, and names the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import DAY, MINUTE, SECOND, from_micros, micros, spell_duration
from timewright.core.schedule import ScheduleState
from timewright.core.target import Call
from timewright.core.triggers import ZONED, After, AnyOf, Manual
from timewright.core.zones import zone
from timewright.operations.checks import (
    OLD_BACKUP,
    Finding,
    Status,
    setting_findings,
    surroundings_findings,
)
from timewright.operations.context import Context
from timewright.operations.fleet_findings import duty_findings, policy_findings
from timewright.operations.known_functions import broken_findings
from timewright.operations.registry import Request, operations
from timewright.ports import Count, Due, Page, ScheduleFilter, Store, Transaction

MOST_LOOKED_AT = 1000
LATE = MINUTE
LONG_WAIT = 5 * MINUTE
# An engine takes leases back once a second; what is over for longer is seen by nobody.
UNRECLAIMED = 15 * SECOND
AHEAD = 30 * DAY
BACKUP = "backup_at"
MOST_NAMED = 3


class Ask(Request, frozen=True, kw_only=True):
    """Nothing to say: everything is looked at."""


class Findings(Struct, frozen=True, kw_only=True):
    """What was found, and how it is on the whole: as bad as its worst finding."""

    status: Status
    findings: tuple[Finding, ...]


@operations.add("", "doctor", Ask, scope="read", examples=({},))
def doctor(context: Context, _ask: Ask) -> Findings:
    """Look at store, clock, zone data, files and what waits; say what is wrong and what mends it."""
    now = context.now()
    found: list[Finding] = []
    if context.surroundings is not None:
        found += surroundings_findings(context.surroundings(), context.settings, now=now)
    found += setting_findings(context.settings)
    known = context.functions() if context.functions is not None else frozenset[str]()
    found += context.store.read(lambda tx: list(_living(tx, context.namespace, known, now=now)))
    found += broken_findings(context.broken() if context.broken is not None else {})
    file = context.policies()
    found += context.store.read(
        lambda tx: [*duty_findings(tx, now=now), *policy_findings(tx, file, namespace=context.namespace)]
    )
    statuses = {finding.status for finding in found}
    worst: Status = "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"
    return Findings(status=worst, findings=tuple(found))


def remember_backup(store: Store) -> None:
    """Keep when a backup was made, with the store it was made of."""
    now = store.now()
    store.write(lambda tx: tx.put_meta(BACKUP, str(micros(now))))


def _living(tx: Transaction, namespace: str, known: frozenset[str], *, now: datetime) -> Iterator[Finding]:
    """What the rows of the namespace tell, looked at no further than a thousand of each kind."""
    counts = [one for one in tx.count_live(now=now, most=MOST_LOOKED_AT) if one.namespace == namespace]
    page = tx.find_schedules(ScheduleFilter(namespace=namespace, limit=MOST_LOOKED_AT))
    yield _overdue(tx, now=now)
    yield _leases(tx, now=now)
    yield from _waiting(counts, now=now)
    yield _parked(counts)
    yield _schedules(page, tx.next_wake(), now=now)
    yield from _stalled(page)
    yield from _unresolved(page, known)
    yield from _changes(page, now=now)
    yield _backup(tx, now=now)


def _overdue(tx: Transaction, *, now: datetime) -> Finding:
    wake = tx.next_wake()
    if wake is None or now - wake < LATE:
        return Finding(check="due", status="ok", says="nothing is overdue")
    return Finding(
        check="due",
        status="fail",
        says=f"what was due {_span(now - wake)} ago is not looked at: no engine runs, or none keeps up",
        fix="timewright up, or timewright worker beside the ones that run",
    )


def _leases(tx: Transaction, *, now: datetime) -> Finding:
    end = tx.next_lease_end()
    if end is None or now - end < UNRECLAIMED:
        soon = f"; the next one ends in {_span(end - now)}" if end is not None and end > now else ""
        return Finding(check="leases", status="ok", says=f"no lease is over{soon}")
    return Finding(
        check="leases",
        status="warn",
        says=f"a lease has been over for {_span(now - end)} and nobody took it back",
        fix="timewright up takes it back, or timewright queue reclaim QUEUE",
    )


def _waiting(counts: list[Count], *, now: datetime) -> Iterator[Finding]:
    for one in counts:
        if one.kind == "ready" and one.oldest is not None and now - one.oldest > LONG_WAIT:
            line = f"queue {one.queue}" if one.queue else "runs without a queue"
            fix = f"timewright queue plan {one.queue}" if one.queue else "timewright up, with more --capacity"
            yield Finding(
                check="backlog",
                status="warn",
                says=f"{line}: {_many(one.count, 'run')} ready, the longest for {_span(now - one.oldest)}",
                fix=fix,
            )


def _parked(counts: list[Count]) -> Finding:
    runs = sum(one.count for one in counts if one.kind == "parked")
    schedules = sum(one.count for one in counts if one.kind == "parked_schedule")
    if not runs and not schedules:
        return Finding(check="parked", status="ok", says="nothing waits for a person")
    said = [_many(schedules, "schedule")] if schedules else []
    said += [_many(runs, "run")] if runs else []
    noun = "schedule" if schedules else "run"
    way_out = "schedule resume" if schedules else "run reset"
    return Finding(
        check="parked",
        status="warn",
        says=f"waiting for a person: {' and '.join(said)}",
        fix=f"timewright {noun} list --state parked, then timewright {way_out}",
    )


def _schedules(page: Page, wake: datetime | None, *, now: datetime) -> Finding:
    if page.unreadable:
        names = ", ".join(one.name or one.id for one in page.unreadable[:MOST_NAMED])
        return Finding(
            check="schedules",
            status="fail",
            says=f"{_many(len(page.unreadable), 'schedule')} cannot be read: {names}",
            fix="timewright schedule put writes one anew under its name",
        )
    count = _many(MOST_LOOKED_AT if page.cursor else len(page.rows), "schedule")
    upcoming = f", next due in {_span(wake - now)}" if wake is not None and wake > now else ""
    return Finding(check="schedules", status="ok", says=f"{count}{upcoming}")


def _stalled(page: Page) -> Iterator[Finding]:
    """Active schedules that will never run again by themselves."""
    names = [due.schedule.name for due in page.rows if _is_stalled(due)]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield Finding(
            check="stalled",
            status="warn",
            says=f"active, and without a next time: {', '.join(names[:MOST_NAMED])}{more}",
            fix=f"timewright explain {names[0]}",
        )


def _unresolved(page: Page, known: frozenset[str]) -> Iterator[Finding]:
    """Functions that schedules call and this process, which has some, does not have."""
    called = {due.schedule.target.name for due in page.rows if isinstance(due.schedule.target, Call)}
    missing = sorted(called - known) if known else []
    if missing:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        yield Finding(
            check="functions",
            status="warn",
            says=f"schedules call what is not registered here: {', '.join(missing[:MOST_NAMED])}{more}",
            fix="register it, or start with the --app that does",
        )


def _is_stalled(due: Due) -> bool:
    by_hand = isinstance(due.schedule.trigger, Manual | After)
    return due.standing.state is ScheduleState.ACTIVE and due.standing.wake_at is None and not by_hand


def _changes(page: Page, *, now: datetime) -> Iterator[Finding]:
    """Zones whose clocks change within a month, and whose schedules that touches."""
    users: dict[str, int] = {}
    for due in page.rows:
        trigger = due.schedule.trigger
        parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
        for name in {one.zone for one in parts if isinstance(one, ZONED)}:
            users[name] = users.get(name, 0) + 1
    for name, count in sorted(users.items()):
        place = zone(name)
        if now.astimezone(place).utcoffset() != (now + AHEAD).astimezone(place).utcoffset():
            yield Finding(
                check="dst",
                status="ok",
                says=f"the clocks of {name} change within 30 days, for {_many(count, 'schedule')}",
            )


def _backup(tx: Transaction, *, now: datetime) -> Finding:
    written = tx.get_meta(BACKUP)
    if written is None:
        return Finding(check="backup", status="ok", says="no backup by timewright backup is known")
    age = max(now - from_micros(int(written)), timedelta(0))
    if age <= OLD_BACKUP:
        return Finding(check="backup", status="ok", says=f"the last backup is {_span(age)} old")
    return Finding(
        check="backup",
        status="warn",
        says=f"the last backup is {_span(age)} old",
        fix="timewright backup FILE",
    )


def _many(count: int, what: str) -> str:
    number = f"{MOST_LOOKED_AT} or more" if count >= MOST_LOOKED_AT else str(count)
    return f"{number} {what}{'s' if count != 1 else ''}"


def _span(length: timedelta) -> str:
    """A length of time in whole seconds, and no more than its two largest parts."""
    whole = timedelta(seconds=round(length.total_seconds()))
    if whole >= DAY:
        whole -= whole % timedelta(hours=1)
    return spell_duration(whole)
