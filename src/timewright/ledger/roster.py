"""The roster: every instance tells of itself now and then, and whoever is silent for a day is forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from timewright.core.moments import DAY, ZERO
from timewright.ledger.key_shelf import EVERYWHERE
from timewright.ports import Stored, Transaction

INSTANCE = "instance"
KEPT = DAY
MOST_LOOKED_AT = 1000


class Instance(Struct, frozen=True, kw_only=True):
    """What an instance says of itself; `clock_offset` is how far the store's clock is ahead of its own."""

    id: str
    host: str
    version: str
    started_at: datetime
    capacity: int
    under_way: int = 0
    clock_offset: timedelta = ZERO
    stopped: bool = False
    admit: str = "any"
    shard: str = ""
    functions: tuple[str, ...] | None = None
    """The functions it can call, by name; nothing where that is not known."""


class Seen(Struct, frozen=True, kw_only=True):
    """An instance, and when it last told of itself by the store's clock."""

    instance: Instance
    at: datetime


def tell_of(tx: Transaction, instance: Instance, *, now: datetime) -> None:
    """Keep what an instance says of itself, and forget those who were silent for too long."""
    row = Stored(
        kind=INSTANCE,
        namespace=EVERYWHERE,
        name=instance.id,
        revision=1,
        body=msgspec.json.encode(instance),
        at=now,
    )
    tx.put_objects([row])
    # Pruning looks at the first names, and those that live longest have them.
    tx.prune_objects(INSTANCE, namespace=EVERYWHERE, older_than=now - KEPT, limit=MOST_LOOKED_AT)


def roster(tx: Transaction, *, limit: int) -> list[Seen]:
    """The instances that told of themselves, the youngest first."""
    rows = tx.newest_objects(INSTANCE, namespace=EVERYWHERE, limit=limit)
    return [Seen(instance=msgspec.json.decode(row.body, type=Instance), at=row.at) for row in rows]
