"""An incident is a finding that is kept: its thresholds, and what opens, repeats and closes it.

Thresholds are set per schedule, group, namespace and installation. An expectation opens an incident too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time, timedelta
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from timewright.core.finding import Severity
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, check_duration
from timewright.core.zones import load_zone
from timewright.errors import InvalidInput

MIN_LATE = MINUTE
MIN_SAMPLE = 5
# An address, or a reference to the secret that holds it.
LINK_PATTERN = r"^(https?|secret)://\S+$"
_CLOCK_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_DURATIONS = ("late", "no_instance", "queue_age", "instance_gone", "clock", "key_expires", "repeat", "calm")

Count = Annotated[int, Meta(ge=1, le=1000)]
Service = Literal["auto", "url", "healthchecks", "cronitor", "sentry"]
_SERVICES: dict[str, Service] = {
    "hc-ping.com": "healthchecks",
    "cronitor.link": "cronitor",
    "sentry.io": "sentry",
}
IncidentKind = Literal[
    "failed", "parked", "missed", "late", "no_instance", "not_finished", "slow",
    "queue_age", "over_budget", "instance_gone", "clock_stepped", "store_full", "key_expiring",
]  # fmt: skip
IncidentEvent = Literal["opened", "repeated", "closed"]
# A finding that keeps coming back must be gone for longer each time, up to this.
MAX_CALM = DAY


class AlertRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Thresholds of incidents; None takes the value of the group, the namespace or the installation.

    `enabled: false` opens no incident. `failed` and `missed` are counts, `repeat` is how often an open
    incident is told again, and `calm` is how long a finding must be gone before its incident closes.
    """

    enabled: bool | None = None
    failed: Count | None = None
    missed: Count | None = None
    parked: bool | None = None
    late: timedelta | None = None
    no_instance: timedelta | None = None
    queue_age: timedelta | None = None
    over_budget: bool | None = None
    instance_gone: timedelta | None = None
    clock: timedelta | None = None
    store_free_mb: Annotated[int, Meta(ge=1)] | None = None
    key_expires: timedelta | None = None
    repeat: timedelta | None = None
    calm: timedelta | None = None

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            value: timedelta | None = getattr(self, name)
            if value is not None:
                check_duration(value, field=f"alerts.{name}")
        if self.late is not None and self.late < MIN_LATE:
            raise InvalidInput(
                "alerts.late is too short", field="alerts.late", rule="at least 1m", fix="late: 5m"
            )

    def over(self, base: AlertRules) -> AlertRules:
        """These rules, with what they leave open taken from `base`."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return AlertRules(**{**asdict(base), **given})


DEFAULT_RULES = AlertRules(
    enabled=True,
    failed=1,
    missed=1,
    parked=True,
    late=5 * MINUTE,
    no_instance=5 * MINUTE,
    queue_age=HOUR,
    over_budget=True,
    instance_gone=2 * MINUTE,
    clock=30 * SECOND,
    store_free_mb=1024,
    key_expires=7 * DAY,
    repeat=DAY,
    calm=10 * MINUTE,
)


class Expect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is expected of each occurrence; it never touches the run, it only opens an incident.

    `done_by` is a time of day in the zone of the schedule, `within` counts from the planned instant, `usual`
    is a multiple of the median duration of recent successes.
    """

    done_by: str | None = None
    within: timedelta | None = None
    usual: Annotated[float, Meta(ge=1, le=1000)] | None = None

    def __post_init__(self) -> None:
        if self.done_by is not None and not _CLOCK_TIME.fullmatch(self.done_by):
            raise InvalidInput(
                f"expect.done_by {self.done_by[:20]!r} is not a time of day",
                field="expect.done_by",
                value=self.done_by[:20],
                rule="hours and minutes in 24 hours, in the zone of the schedule",
                fix='done_by: "09:00"',
            )
        if self.within is not None:
            check_duration(self.within, field="expect.within")
        if self.done_by is None and self.within is None and self.usual is None:
            raise InvalidInput(
                "expect is empty",
                field="expect",
                rule="at least one of done_by, within and usual",
                fix="within: 2h",
            )

    def due(self, planned_at: datetime, *, zone: str) -> datetime | None:
        """When the occurrence planned at an instant must be done; None if only its duration counts."""
        ends = [planned_at + self.within] if self.within is not None else []
        if self.done_by is not None:
            tz = load_zone(zone)
            local = planned_at.astimezone(tz)
            at = datetime.combine(local.date(), time.fromisoformat(self.done_by), tz)
            if at <= local:
                at = datetime.combine(local.date() + DAY, time.fromisoformat(self.done_by), tz)
            ends.append(at.astimezone(planned_at.tzinfo))
        return min(ends) if ends else None


class CheckIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where each run reports that it is in progress, done or failed.

    `url` may be `secret://name`. `auto` recognises the service by its host name.
    """

    url: Annotated[str, Meta(min_length=1, max_length=2000, pattern=LINK_PATTERN)]
    to: Service = "auto"

    def service(self, url: str) -> Service:
        """The service that a URL belongs to; an unknown host gets a POST with JSON."""
        host = urlsplit(url).hostname or ""
        known = (name for end, name in _SERVICES.items() if host == end or host.endswith(f".{end}"))
        return next(known, "url") if self.to == "auto" else self.to


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
    shared = {name: value for name, value in asdict(alert).items() if name in Incident.__struct_fields__}
    return Incident(
        id=id_, **alert.key._asdict(), **shared, opened_at=now, told_at=now, flaps=flaps, calm=calm
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
