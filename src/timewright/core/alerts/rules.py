"""When something is an incident: thresholds per schedule, group, namespace and installation; expectations."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import asdict

from timewright.core.moments import DAY, HOUR, MINUTE, SECOND, check_duration
from timewright.core.zones import load_zone
from timewright.errors import InvalidInput

MIN_LATE = MINUTE
MIN_SAMPLE = 5
_CLOCK_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_DURATIONS = ("late", "no_instance", "queue_age", "instance_gone", "clock", "key_expires", "repeat", "calm")

Count = Annotated[int, Meta(ge=1, le=1000)]


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


Service = Literal["auto", "url", "healthchecks", "cronitor", "sentry"]
_SERVICES: dict[str, Service] = {
    "hc-ping.com": "healthchecks",
    "cronitor.link": "cronitor",
    "sentry.io": "sentry",
}


class CheckIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where each run reports that it is in progress, done or failed.

    `url` may be `secret://name`. `auto` recognises the service by its host name.
    """

    url: Annotated[str, Meta(min_length=1, max_length=2000, pattern=r"^(https?|secret)://\S+$")]
    to: Service = "auto"

    def service(self, url: str) -> Service:
        """The service that a URL belongs to; an unknown host gets a POST with JSON."""
        host = urlsplit(url).hostname or ""
        known = (name for end, name in _SERVICES.items() if host == end or host.endswith(f".{end}"))
        return next(known, "url") if self.to == "auto" else self.to
