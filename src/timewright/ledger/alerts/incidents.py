"""Looks for incidents and unmet expectations once a minute: in one transaction, by one instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

from msgspec.structs import replace

from timewright.core.alerts.channels import Message, Ping
from timewright.core.alerts.incidents import (
    MIN_SAMPLE,
    Alert,
    Expect,
    Incident,
    IncidentChange,
    IncidentKey,
    decide_incidents,
)
from timewright.core.facts import Fact, IncidentClosed, IncidentOpened, IncidentRepeated
from timewright.core.finding import HOME_NAMESPACE
from timewright.core.moments import HOUR, MINUTE, SECOND, format_instant, to_micros
from timewright.core.recurrence.triggers import ZONED_TRIGGERS, AnyOf
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.zones import load_zone
from timewright.errors import NotFound
from timewright.ledger.alerts.alert_checks import (
    AlertInput,
    find_alerts,
    schedule_alert,
    span,
)
from timewright.ledger.alerts.deliveries import check_in_run, deliver_messages
from timewright.ledger.replan import Actor
from timewright.ports import Ids, RunFilter, ScheduleRecord, Store, Transaction
from timewright.ports.overview import RecentRun
from timewright.ports.rows import IncidentFilter, IncidentPrune

CHECK_INTERVAL = MINUTE
# Clocks of instances differ a little; without this, every other check would come too early.
TOLERANCE = 5 * SECOND
KEEP_CLOSED = timedelta(days=90)
_FACTS = {"opened": IncidentOpened, "repeated": IncidentRepeated, "closed": IncidentClosed}
_ENDED_BY = {
    "late": "it was admitted",
    "missed": "nothing was missed for an hour",
    "parked": "it is no longer parked",
    "no_instance": "its run was started, or is gone",
    "queue_age": "the oldest entry is gone",
    "over_budget": "its runs may start again",
    "slow": "the run has ended",
    "instance_gone": "it is back, or was replaced",
    "clock_stepped": "the clocks agree again",
    "store_full": "there is enough space again",
    "key_expiring": "the key was replaced, was revoked, or expired a day ago",
}


def check_incidents(store: Store, *, ids: Ids, now: datetime) -> tuple[Fact, ...]:
    """Open, repeat and close incidents, and insert their deliveries; once a minute among all instances."""

    def work(tx: Transaction) -> tuple[Fact, ...]:
        if not tx.claim_alert_check(now=now, before=now - CHECK_INTERVAL + TOLERANCE):
            return ()
        found = AlertInput(tx, now=now)
        alerts = _without_doubles([*find_alerts(found), *find_unmet(tx, found)], found.incidents)
        changes = decide_incidents(
            alerts,
            incidents=found.incidents,
            unchecked=found.unchecked_kinds(),
            new_id=lambda: ids.new("incident", now=now),
            now=now,
        )
        _check_in(tx, found, now=now)
        return _apply(tx, changes, now=now) if changes else ()

    return store.write(work)


def _without_doubles(
    alerts: Sequence[Alert], incidents: Mapping[IncidentKey, Incident]
) -> dict[IncidentKey, Alert]:
    """The alerts by key. A failure that parked the run or the schedule is told once, as parked."""
    parked = {one.schedule_id for one in alerts if one.key.kind == "parked" and one.schedule_id}

    def is_told(one: Alert) -> bool:
        known = incidents.get(one.key)
        is_open = known is not None and known.closed_at is None
        return one.key.kind == "failed" and one.schedule_id in parked and not is_open

    return {one.key: one for one in alerts if not is_told(one)}


def acknowledge(tx: Transaction, incident_id: str, *, namespace: str, by: Actor, now: datetime) -> Incident:
    """Note that somebody takes care of an open incident: it is not repeated any more."""
    incident = _lock(tx, incident_id, namespace)
    after = replace(incident, acknowledged_at=now, acknowledged_by=by.name)
    return _save(tx, after, "acknowledge", by=by, now=now)


def snooze(
    tx: Transaction, incident_id: str, *, namespace: str, until: datetime, by: Actor, now: datetime
) -> Incident:
    """Repeat an open incident no earlier than an instant."""
    after = replace(_lock(tx, incident_id, namespace), snoozed_until=until)
    return _save(tx, after, "snooze", by=by, now=now)


def incident_message(incident: Incident, event: str) -> Message:
    """What a channel is told about an incident."""
    sentence = incident.sentence
    if event == "closed":
        sentence = f"{incident.sentence}; ended: {incident.ended_by}"
    return Message(
        type=f"incident-{event}",
        at=incident.since,
        namespace=incident.namespace,
        severity=incident.severity if event != "closed" else "ok",
        kind=incident.kind,
        subject=incident.subject,
        sentence=sentence,
        schedule=incident.schedule,
        group=incident.group,
        run=incident.run,
        incident=incident.id,
        reason=incident.kind,
        error=incident.error,
        remedy=incident.remedy if event != "closed" else "",
    )


def _apply(tx: Transaction, changes: Sequence[IncidentChange], *, now: datetime) -> tuple[Fact, ...]:
    detailed = [_with_details(tx, one) for one in changes]
    tx.save_incidents([one.incident for one in detailed if one.event == "opened"], new=True)
    changed = tx.save_incidents([one.incident for one in detailed if one.event != "opened"], new=False)
    told = [one for one in detailed if one.event == "opened" or (one.event and one.incident.id in changed)]
    if any(one.event == "closed" for one in told):
        tx.prune(IncidentPrune(now - KEEP_CLOSED))
    messages = [incident_message(one.incident, one.event or "") for one in told]
    deliver_messages(tx, messages, identity=f"incident:{to_micros(now)}", now=now)
    return tuple(_fact(one, now=now) for one in told)


def _with_details(tx: Transaction, change: IncidentChange) -> IncidentChange:
    """Add the run that failed, or the run that ended the incident; read only for what is told."""
    incident = change.incident
    if change.event is None:
        return change
    if change.event == "closed":
        return IncidentChange(replace(incident, ended_by=_ended_by(tx, incident)), change.event)
    if incident.kind == "parked" and incident.run:
        shown = tx.get_runs([incident.run]).get(incident.run)
    elif incident.kind in ("failed", "parked") and incident.schedule_id:
        found = (_newest_run(tx, incident, state) for state in (RunState.FAILED, RunState.PARKED))
        shown = max((one for one in found if one is not None), key=lambda one: one.planned_at, default=None)
    else:
        shown = None
    if shown is not None:
        incident = replace(incident, run=shown.id, error=shown.error[:2000])
    return IncidentChange(incident, change.event)


def _ended_by(tx: Transaction, incident: Incident) -> str:
    if incident.schedule_id and incident.kind in ("failed", "not_finished", "parked"):
        done = _newest_run(tx, incident, RunState.SUCCEEDED)
        if done is not None and done.finished_at is not None and done.finished_at >= incident.since:
            return f"{done.id} succeeded at {format_instant(done.finished_at)}"
    return _ENDED_BY.get(incident.kind, "the schedule was changed, finished or archived")


def _newest_run(tx: Transaction, incident: Incident, state: RunState) -> Run | None:
    rows = tx.find(RunFilter(schedule_id=incident.schedule_id, state=state, limit=1)).rows
    return rows[0] if rows else None


def _check_in(tx: Transaction, found: AlertInput, *, now: datetime) -> None:
    """Tell the monitor of the installation that somebody still looks for incidents."""
    check_in = found.installation.check_in
    if check_in is not None:
        message = Message(
            type="check-in", at=now, namespace=HOME_NAMESPACE, sentence="timewright is watching"
        )
        sender = Ping(check_in=check_in, status="ok")
        identity = f"installation:{to_micros(now)}"
        tx.add_runs(
            [check_in_run(sender, namespace=HOME_NAMESPACE, message=message, identity=identity, now=now)]
        )


def _fact(change: IncidentChange, *, now: datetime) -> Fact:
    incident, event = change.incident, change.event
    assert event is not None
    fields = {"ended_by": incident.ended_by} if event == "closed" else {}
    return _FACTS[event](
        at=now,
        namespace=incident.namespace,
        incident=incident.id,
        kind=incident.kind,
        subject=incident.subject,
        schedule_id=incident.schedule_id,
        severity=incident.severity,
        sentence=incident.sentence,
        **fields,
    )


def _lock(tx: Transaction, incident_id: str, namespace: str) -> Incident:
    tx.lock("alerts_checked_at")
    found = tx.find(IncidentFilter(incident_id=incident_id)).rows
    incident: Incident | None = found[0] if found else None
    if incident is None or incident.namespace != namespace or incident.closed_at is not None:
        raise NotFound(
            f"no open incident {incident_id[:60]}",
            field="incident",
            value=incident_id[:60],
            rule="the id of an incident that is open",
            fix="timewright incident list",
        )
    return incident


def _save(tx: Transaction, incident: Incident, action: str, *, by: Actor, now: datetime) -> Incident:
    tx.save_incidents([incident], new=False)
    tx.add_audit(
        [by.audit_entry(f"incident.{action}", namespace=incident.namespace, subject=incident.id, now=now)]
    )
    return incident


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
