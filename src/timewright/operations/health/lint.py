"""Lint: findings about the future of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.access.credentials import read_keys
from timewright.core.finding import Finding, Severity, command_line, worst_severity
from timewright.core.moments import DAY, format_duration, format_instant
from timewright.core.recurrence.clock_changes import ClockChange, clock_changes, describe_effect
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, After, Manual, parts_of
from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.alerts.alert_checks import ExpiringKey
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.snapshot import read_fleet
from timewright.operations.context import OperationContext
from timewright.operations.explain.idle import excluding_calendars
from timewright.operations.health.doctor import check_scope
from timewright.operations.health.load_forecast import find_herds
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import ScheduleRecord, Transaction

MAX_SCHEDULES = 5000
FAR = timedelta(days=366)


class Lint(OperationRequest, frozen=True, kw_only=True):
    """How many days ahead to look for clock changes and expiring keys."""

    days: Annotated[int, Meta(ge=1, le=400)] = 90


class SpreadProposal(Struct, frozen=True, kw_only=True):
    """Fields of a schedule that would spread a herd."""

    schedule: str
    jitter: timedelta
    offset: str = "stable"


class LintReport(Struct, frozen=True, kw_only=True):
    """All findings about the future, the worst severity, and the proposed spread of herds."""

    severity: Severity
    findings: tuple[Finding, ...]
    spread: tuple[SpreadProposal, ...] = ()


@operations.read("lint", scope="read", examples=({}, {"days": 365}))
def lint(context: OperationContext, tx: Transaction, request: Lint) -> LintReport:
    """Find future problems: clock changes, herds, schedules that never run, expiring keys."""
    scope = replace(check_scope(context), lookahead=request.days * DAY)
    found = checks.find(tx, scope, when="future")
    herds = find_herds(tx, scope.namespace, now=scope.now)
    spread = {
        name: SpreadProposal(schedule=name, jitter=by) for herd in herds for name, by in herd.spreads.items()
    }
    return LintReport(severity=worst_severity(found), findings=found, spread=tuple(spread.values()))


@checks.add("future")
def check_clock_changes(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find clock changes that touch a schedule."""
    until = scope.now + scope.lookahead
    changes = {}
    for record in _fleet(tx, scope):
        for trigger in parts_of(record.schedule.trigger):
            if not isinstance(trigger, ZONED_TRIGGERS):
                continue
            if trigger.zone not in changes:
                changes[trigger.zone] = list(clock_changes(trigger.zone, since=scope.now, until=until))
            for change in changes[trigger.zone]:
                if what := describe_effect(change, trigger):
                    yield _touched(record.schedule.name, what, change)


def _touched(name: str, what: str, change: ClockChange) -> Finding:
    day = f"{change.local:%Y-%m-%d}"
    return Finding.warn(
        "clock_change",
        f"{name} {what}: the clocks of {change.zone} change on {day}",
        remedy="set dst to vixie, match or skip_once, or choose another time of the day",
        subject=f"schedule {name}",
        since=change.at,
        schedule=name,
    )


@checks.add("future")
def check_herds(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find minutes in which many schedules start, with a spread."""
    for herd in find_herds(tx, scope.namespace, now=scope.now):
        count = len(herd.spreads)
        after = f"with jitter of up to {format_duration(herd.spread)}, {herd.after} would"
        yield Finding.warn(
            "herd",
            f"{count} schedules start at {format_instant(herd.at)}; {after}",
            remedy=herd.commands[0] + (f", and so for {count - 1} more" if count > 1 else ""),
            subject=f"schedule {herd.schedules[0]}",
            since=herd.at,
            schedule=herd.schedules[0],
        )


@checks.add("future")
def check_never_fires(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find active schedules that will never run again, or not within a year."""
    fleet = list(_fleet(tx, scope))
    states = {record.schedule.name: record.progress.state for record in fleet}
    for record in fleet:
        why = _never_fires(tx, record, states, scope)
        if why:
            name = record.schedule.name
            explain = command_line("explain", name, namespace=scope.namespace)
            yield Finding.warn(
                "never_fires",
                f"{name} {why}",
                remedy=f"{explain}, then change or archive it",
                subject=f"schedule {name}",
                schedule=name,
            )


@checks.add("future")
def check_expiring_keys(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find keys that expire soon and are used in this namespace."""
    keys = read_keys(tx)
    expiring = msgspec.convert(keys, list[ExpiringKey], from_attributes=True)
    for key, ends in zip(keys, expiring, strict=True):
        is_used_here = not key.namespaces or scope.namespace in key.namespaces
        if key.expires_at is None or not is_used_here or not key.is_active(now=scope.now):
            continue
        if ends.is_replaced(expiring):
            continue
        if key.expires_at <= scope.now + scope.lookahead:
            left = format_duration((key.expires_at - scope.now) // DAY * DAY)
            yield Finding.warn(
                "key_expires",
                f"key {key.name} expires on {key.expires_at:%Y-%m-%d}, in {left}",
                remedy=command_line("key", "rotate", key.name, "--overlap", "1d", namespace=scope.namespace),
                subject=f"key {key.name}",
                since=key.expires_at,
            )


def _never_fires(
    tx: Transaction, record: ScheduleRecord, states: dict[str, ScheduleState], scope: CheckScope
) -> str:
    schedule, progress = record.schedule, record.progress
    if progress.state is not ScheduleState.ACTIVE:
        return ""
    trigger = schedule.trigger
    if isinstance(trigger, After) and trigger.schedule:
        return (
            "" if trigger.schedule in states else f"follows {trigger.schedule}, which does not run any more"
        )
    if isinstance(trigger, Manual | After):
        return ""
    if progress.next_at is None:
        return "has no next occurrence"
    if excluded_by := excluding_calendars(tx, record):
        return f"never runs: {excluded_by} exclude every occurrence"
    if progress.next_at > scope.now + FAR:
        return f"does not run before {progress.next_at:%Y-%m-%d}"
    return ""


def _fleet(tx: Transaction, scope: CheckScope) -> Iterator[ScheduleRecord]:
    return islice(read_fleet(tx, scope.namespace), MAX_SCHEDULES)
