"""Looks for incidents once a minute: by any instance, in one transaction, and only by one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.alerts.channels import Message, Ping
from timewright.core.alerts.incidents import Alert, Incident, IncidentChange, IncidentKey, decide_incidents
from timewright.core.facts import Fact, IncidentClosed, IncidentOpened, IncidentRepeated
from timewright.core.moments import MINUTE, SECOND, format_instant, to_micros
from timewright.core.run.run import Run, RunState
from timewright.errors import NotFound
from timewright.ledger.alerts.alert_checks import HOME_NAMESPACE, AlertInput, find_alerts
from timewright.ledger.alerts.deliveries import check_in_run, deliver_messages
from timewright.ledger.alerts.expectations import find_unmet
from timewright.ledger.replan import Actor
from timewright.ports import AuditEntry, Ids, RunFilter, Store, Transaction

CHECK_INTERVAL = MINUTE
# Clocks of instances differ a little; without this, every other check would come too early.
TOLERANCE = 5 * SECOND
KEEP_CLOSED = timedelta(days=90)
RUNS_READ = 5
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
    "key_expiring": "the key was replaced or revoked",
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
        tx.prune_incidents(before=now - KEEP_CLOSED)
    messages = [incident_message(one.incident, one.event or "") for one in told]
    deliver_messages(tx, messages, identity=f"incident:{to_micros(now)}", now=now)
    return tuple(_fact(one, now=now) for one in told)


def _with_details(tx: Transaction, change: IncidentChange) -> IncidentChange:
    """Add the run that failed, or the run that ended the incident; read only for what is told."""
    incident = change.incident
    if change.event is None:
        return change
    runs: Sequence[Run] = ()
    if incident.schedule_id and incident.kind in ("failed", "not_finished", "parked"):
        runs = tx.find_runs(RunFilter(schedule_id=incident.schedule_id, limit=RUNS_READ)).rows
    if change.event != "closed":
        failed = [one for one in runs if one.state in (RunState.FAILED, RunState.PARKED)]
        if incident.kind in ("failed", "parked") and failed:
            shown = next((one for one in failed if one.id == incident.run), failed[0])
            shown = failed[0] if incident.kind == "failed" else shown
            incident = replace(incident, run=shown.id, error=shown.error[:2000])
        return IncidentChange(incident, change.event)
    return IncidentChange(replace(incident, ended_by=_ended_by(incident, runs)), change.event)


def _ended_by(incident: Incident, runs: Sequence[Run]) -> str:
    done = [one for one in runs if one.state is RunState.SUCCEEDED and one.finished_at is not None]
    if done and done[0].finished_at is not None:
        return f"{done[0].id} succeeded at {format_instant(done[0].finished_at)}"
    return _ENDED_BY.get(incident.kind, "the schedule was changed, finished or archived")


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
    incident = tx.get_incident(incident_id)
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
    entry = AuditEntry(
        at=now,
        namespace=incident.namespace,
        actor=by.name,
        origin=by.origin,
        action=f"incident.{action}",
        subject=incident.id,
        reason=by.reason,
    )
    tx.add_audit([entry])
    return incident
