"""Namespaces: what each allows those who come in from outside, kept with a revision."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.moments import SECOND, spell_duration
from timewright.errors import InvalidInput
from timewright.ledger.key_shelf import EVERYWHERE
from timewright.ports import Stored, Transaction

NAMESPACE = "namespace"
LONGEST_INTERVAL = timedelta(days=366)

_DURATIONS = ("shortest_interval", "agent_shortest_interval", "agent_longest_life", "agent_longest_hint")

Rate = Annotated[int, Meta(ge=0, le=1_000_000)]


class Namespace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a namespace allows; one that nobody set up has the defaults."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: Annotated[str, Meta(max_length=2000)] = ""
    schedules: Annotated[int, Meta(ge=0, le=10_000_000)] = 1000
    shortest_interval: timedelta = SECOND
    emissions_per_minute: Rate = 60
    triggers_per_minute: Rate = 60
    requests_per_minute: Rate = 1200
    backlog: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    body_bytes: Annotated[int, Meta(ge=100, le=16_777_216)] = 100_000
    agent_shortest_interval: timedelta = 10 * SECOND
    agent_emissions_per_minute: Rate = 6
    agent_approval: bool = False
    agent_longest_life: timedelta | None = None
    agent_longest_hint: timedelta = timedelta(days=1)
    advisor_tokens_per_month: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 1_000_000
    revision: int = 0

    def __post_init__(self) -> None:
        for field in _DURATIONS:
            value: timedelta | None = getattr(self, field)
            if value is not None and not timedelta(0) <= value <= LONGEST_INTERVAL:
                raise InvalidInput(
                    f"{field} {spell_duration(value)} is out of range",
                    field=field,
                    value=spell_duration(value),
                    rule=f"0s to {spell_duration(LONGEST_INTERVAL)}",
                    fix=f"{field}: 1s",
                )

    def interval_for(self, origin: str) -> timedelta:
        """The shortest interval that a caller of that origin may ask for."""
        own = self.agent_shortest_interval if origin == "agent" else self.shortest_interval
        return max(own, self.shortest_interval)

    def emissions_for(self, origin: str) -> int:
        """How many occurrences a minute one schedule of such a caller may have."""
        own = self.agent_emissions_per_minute if origin == "agent" else self.emissions_per_minute
        return min(own, self.emissions_per_minute)


def find_namespace(tx: Transaction, name: str) -> Namespace | None:
    """What someone set up for a namespace, if anyone did."""
    rows = tx.get_objects(NAMESPACE, namespace=EVERYWHERE, names=[name])
    return _read(rows[0]) if rows else None


def namespace_of(tx: Transaction, name: str) -> Namespace:
    """What a namespace allows."""
    return find_namespace(tx, name) or Namespace(name=name)


def all_namespaces(tx: Transaction) -> list[Namespace]:
    """Every namespace that was set up, by name."""
    return [_read(row) for row in tx.get_objects(NAMESPACE, namespace=EVERYWHERE)]


def _read(row: Stored) -> Namespace:
    return replace(msgspec.json.decode(row.body, type=Namespace), revision=row.revision)
