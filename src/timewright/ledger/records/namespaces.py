"""Namespaces: the quotas and the default zone of each, stored with a revision."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import SECOND, format_duration
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput
from timewright.ports import StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE

NAMESPACE = "namespace"
MAX_INTERVAL = timedelta(days=366)

_DURATIONS = ("shortest_interval", "agent_shortest_interval", "agent_longest_life", "agent_longest_hint")

PerMinute = Annotated[int, Meta(ge=0, le=1_000_000)]


class Namespace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The quotas of a namespace and the zone of schedules that name none; the defaults if not set up."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: Annotated[str, Meta(max_length=2000)] = ""
    zone: Annotated[str, Meta(max_length=64)] = ""
    schedules: Annotated[int, Meta(ge=0, le=10_000_000)] = 1000
    shortest_interval: timedelta = SECOND
    emissions_per_minute: PerMinute = 60
    triggers_per_minute: PerMinute = 60
    requests_per_minute: PerMinute = 1200
    backlog: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    body_bytes: Annotated[int, Meta(ge=100, le=16_777_216)] = 100_000
    agent_shortest_interval: timedelta = 10 * SECOND
    agent_emissions_per_minute: PerMinute = 6
    agent_approval: bool = False
    agent_longest_life: timedelta | None = None
    agent_longest_hint: timedelta = timedelta(days=1)
    advisor_tokens_per_month: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 1_000_000
    revision: int = 0

    def __post_init__(self) -> None:
        if self.zone:
            check_zone(self.zone)
        for field in _DURATIONS:
            value: timedelta | None = getattr(self, field)
            if value is not None and not timedelta(0) <= value <= MAX_INTERVAL:
                raise InvalidInput(
                    f"{field} {format_duration(value)} is out of range",
                    field=field,
                    value=format_duration(value),
                    rule=f"0s to {format_duration(MAX_INTERVAL)}",
                    fix=f"{field}: 1s",
                )

    def interval_for(self, origin: str) -> timedelta:
        """The shortest interval that a caller of this origin may use."""
        own = self.agent_shortest_interval if origin == "agent" else self.shortest_interval
        return max(own, self.shortest_interval)

    def emissions_for(self, origin: str) -> int:
        """How many occurrences per minute one schedule of a caller of this origin may have."""
        own = self.agent_emissions_per_minute if origin == "agent" else self.emissions_per_minute
        return min(own, self.emissions_per_minute)


def find_namespace(tx: Transaction, name: str) -> Namespace | None:
    """The stored namespace, or None if it was not set up."""
    rows = tx.get_objects(NAMESPACE, namespace=GLOBAL_NAMESPACE, names=[name])
    return _read(rows[0]) if rows else None


def read_namespace(tx: Transaction, name: str) -> Namespace:
    """The stored namespace, or its defaults."""
    return find_namespace(tx, name) or Namespace(name=name)


def read_namespaces(tx: Transaction) -> list[Namespace]:
    """All namespaces that were set up, by name."""
    return [_read(row) for row in tx.get_objects(NAMESPACE, namespace=GLOBAL_NAMESPACE)]


def _read(row: StoredObject) -> Namespace:
    return replace(row.decode(Namespace), revision=row.revision)
