"""An incident: a finding that is kept. Decides what opens, repeats and closes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.rules import DEFAULT_RULES, AlertRules
from timewright.core.finding import Severity
from timewright.core.moments import DAY

IncidentEvent = Literal["opened", "repeated", "closed"]
# A finding that keeps coming back must be gone for longer each time, up to this.
MAX_CALM = DAY


class IncidentKey(NamedTuple):
    """What makes two findings the same incident."""

    namespace: str
    kind: str
    subject: str


class Alert(Struct, frozen=True, kw_only=True):
    """A finding that may become an incident, with the rows it is about."""

    key: IncidentKey
    severity: Severity = "fail"
    sentence: str
    remedy: str = ""
    since: datetime
    schedule: str = ""
    schedule_id: str = ""
    group: str = ""
    run: str = ""
    error: str = ""
    rules: AlertRules = DEFAULT_RULES


class Incident(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An incident, open until `closed_at`. `cleared_at` is since when its finding is gone, `calm` how long
    it must be gone; an incident whose finding came back in time stays the same one (`flaps`).
    """

    id: str
    namespace: str
    kind: str
    subject: str
    severity: Severity
    sentence: str
    remedy: str = ""
    schedule: str = ""
    schedule_id: str = ""
    group: str = ""
    run: str = ""
    error: str = ""
    since: datetime
    opened_at: datetime
    told_at: datetime
    repeats: int = 0
    flaps: int = 0
    calm: timedelta
    cleared_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str = ""
    snoozed_until: datetime | None = None
    closed_at: datetime | None = None
    ended_by: str = ""

    @property
    def key(self) -> IncidentKey:
        """What makes two findings the same incident."""
        return IncidentKey(self.namespace, self.kind, self.subject)


class IncidentChange(Struct, frozen=True):
    """An incident as it is from now on; without an event the change is not told."""

    incident: Incident
    event: IncidentEvent | None = None


def decide_incidents(
    alerts: Mapping[IncidentKey, Alert],
    *,
    incidents: Mapping[IncidentKey, Incident],
    unchecked: Collection[str] = (),
    new_id: Callable[[], str],
    now: datetime,
) -> list[IncidentChange]:
    """Open an incident per new finding, repeat those that are due, close those whose finding is gone.

    `incidents` holds the newest incident of each key: open ones, and those that closed within a day.
    Incidents of `unchecked` kinds do not close, because not all rows of that kind were read.
    """
    changes = []
    for key, alert in alerts.items():
        known = incidents.get(key)
        if known is None or known.closed_at is not None:
            changes.append(IncidentChange(_open(alert, known, id_=new_id(), now=now), "opened"))
        elif change := _still(known, alert, now=now):
            changes.append(change)
    for key, known in incidents.items():
        if key not in alerts and known.closed_at is None and known.kind not in unchecked:
            change = _gone(known, now=now)
            changes += [change] if change is not None else []
    return changes


def _open(alert: Alert, before: Incident | None, *, id_: str, now: datetime) -> Incident:
    calm = alert.rules.calm or DEFAULT_RULES.calm
    assert calm is not None
    flaps = 0
    if before is not None and before.closed_at is not None:
        # It closed and came back: the next recovery must last twice as long as this one did.
        flaps, calm = before.flaps + 1, _longer(calm, now - (before.cleared_at or before.closed_at))
    return Incident(
        id=id_,
        namespace=alert.key.namespace,
        kind=alert.key.kind,
        subject=alert.key.subject,
        severity=alert.severity,
        sentence=alert.sentence,
        remedy=alert.remedy,
        schedule=alert.schedule,
        schedule_id=alert.schedule_id,
        group=alert.group,
        run=alert.run,
        error=alert.error,
        since=alert.since,
        opened_at=now,
        told_at=now,
        flaps=flaps,
        calm=calm,
    )


def _still(known: Incident, alert: Alert, *, now: datetime) -> IncidentChange | None:
    """The incident of a finding that still holds: told again if that is due."""
    after = known
    if known.cleared_at is not None:
        calm = _longer(known.calm, now - known.cleared_at)
        after = replace(after, cleared_at=None, flaps=known.flaps + 1, calm=calm)
    is_quiet = known.acknowledged_at is not None or (
        known.snoozed_until is not None and now < known.snoozed_until
    )
    repeat = alert.rules.repeat or DEFAULT_RULES.repeat
    assert repeat is not None
    if not is_quiet and now - known.told_at >= repeat:
        fresh = replace(
            after,
            told_at=now,
            repeats=known.repeats + 1,
            severity=alert.severity,
            sentence=alert.sentence,
            run=alert.run or known.run,
            error=alert.error or known.error,
        )
        return IncidentChange(fresh, "repeated")
    return IncidentChange(after) if after is not known else None


def _gone(known: Incident, *, now: datetime) -> IncidentChange | None:
    """The incident of a finding that is gone: closed once it has been gone for long enough."""
    if known.cleared_at is None:
        known_since = replace(known, cleared_at=now)
        return IncidentChange(known_since) if known.calm else _close(known_since, now=now)
    return _close(known, now=now) if now - known.cleared_at >= known.calm else None


def _close(known: Incident, *, now: datetime) -> IncidentChange:
    return IncidentChange(replace(known, closed_at=now), "closed")


def _longer(calm: timedelta, gap: timedelta) -> timedelta:
    return min(max(calm, 2 * gap), MAX_CALM)
