"""Checks of expectations: not finished in time, or running for longer than usual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

from timewright.core.alerts.incidents import MIN_SAMPLE, Alert, Expect
from timewright.core.moments import HOUR, format_instant
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, AnyOf
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.zones import load_zone
from timewright.ledger.alerts.alert_checks import AlertInput, schedule_alert, span
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.overview import RecentRun

SAMPLE_RUNS = 30
# Occurrences that somebody chose not to run are not expected to finish.
_EXPECTED_SKIPS = ("missed", "overlap", "deadline", "queue_full", "budget")
# A success this long before the planned instant counts: the clock of a foreign job may be ahead.
MAX_EARLY = HOUR / 4


def find_unmet(tx: Transaction, found: AlertInput) -> Iterator[Alert]:
    """An alert per expectation that is not met; reads the recent runs of all watched schedules at once.

    Nothing is expected of what is paused.
    """
    watched = [
        record
        for row in found.rows["watched"]
        if (record := found.records.get(row.subject)) is not None
        and record.progress.state in (ScheduleState.ACTIVE, ScheduleState.FINISHED, ScheduleState.PARKED)
        and found.rules(row.namespace, group=row.group, schedule=record.schedule).enabled
    ]
    if not watched:
        return
    watched = [one for one in watched if not found.pauses.describe(one.schedule)]
    recent = tx.recent_runs([one.schedule.id for one in watched], limit_each=SAMPLE_RUNS)
    # A run that is under way has no start in its row yet: its lease began when it started.
    leased = [one.run for runs in recent.values() for one in runs if one.state == "leased"]
    began = {run.id: run.leased_at for run in tx.get_runs(leased).values()} if leased else {}
    for record in watched:
        expect = record.schedule.expect
        runs = recent.get(record.schedule.id, ())
        if expect is not None:
            yield from _not_finished(found, record, expect, runs)
            yield from _slow(found, record, expect, runs, began)


def _not_finished(
    found: AlertInput, record: ScheduleRecord, expect: Expect, runs: Sequence[RecentRun]
) -> Iterator[Alert]:
    """The newest occurrence whose time is over and that has no success yet."""
    zone = _zone(record.schedule)
    planned = [(one.planned_at, one.run) for one in runs if _is_expected(one)]
    if record.progress.next_at is not None and record.progress.state is ScheduleState.ACTIVE:
        planned.append((record.progress.next_at, ""))
    over = [
        (at, run, due)
        for at, run in planned
        if (due := expect.due(at, zone=zone)) is not None and due <= found.now
    ]
    if not over:
        return
    at, run, due = max(over)
    early = min(expect.within or MAX_EARLY, MAX_EARLY)
    done = [one for one in runs if one.state == "succeeded" and one.finished_at is not None]
    if any(one.planned_at >= at or (one.finished_at or at) >= at - early for one in done):
        return
    what = f"was not finished by {_local(due, zone)} (planned at {_local(at, zone)})"
    yield schedule_alert(found, "not_finished", record, what, since=due, run=run)


def _slow(
    found: AlertInput,
    record: ScheduleRecord,
    expect: Expect,
    runs: Sequence[RecentRun],
    began: Mapping[str, datetime | None],
) -> Iterator[Alert]:
    """The run that takes longer than a multiple of the median of the recent successes."""
    running = [(one.run, at) for one in runs if (at := began.get(one.run)) is not None]
    times = [
        (one.finished_at - one.started_at).total_seconds()
        for one in runs
        if one.state == "succeeded" and one.started_at is not None and one.finished_at is not None
    ]
    if expect.usual is None or not running or len(times) < MIN_SAMPLE:
        return
    usual = timedelta(seconds=median(times))
    for run, started_at in running:
        taken = found.now - started_at
        if taken > usual * expect.usual:
            what = f"is running for {span(taken)}; the median of its last {len(times)} runs is {span(usual)}"
            yield schedule_alert(found, "slow", record, what, since=started_at, run=run)


def _is_expected(run: RecentRun) -> bool:
    if run.state == "skipped":
        return run.reason in _EXPECTED_SKIPS and not run.dropped
    return run.state != "cancelled"


def _zone(schedule: Schedule) -> str:
    trigger = schedule.trigger
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    return next((one.zone for one in parts if isinstance(one, ZONED_TRIGGERS)), "UTC")


def _local(at: datetime, zone: str) -> str:
    return format_instant(at.astimezone(load_zone(zone))) if zone != "UTC" else format_instant(at)
