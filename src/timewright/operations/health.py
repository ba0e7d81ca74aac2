"""Is it alive, how late is it, what waits for a person."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.ledger.leader import leader_of
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.ports import Transaction

MOST_COUNTED = 1000
# Of each kind, whoever's they are: so many rows cost a few milliseconds, whatever the history.
MOST_LOOKED_AT = 20_000


class Ask(Request, frozen=True, kw_only=True):
    """Nothing to say: it is the whole house that is asked about."""


class Health(Struct, frozen=True, kw_only=True):
    """How the house does. Counts stop at a thousand, and are those of the namespace.

    `late_by` is how long the most overdue look has been waiting: much more than a second says that no engine
    is running, or that it cannot keep up. `leader` is the instance that leads, where
    instances have one; `policy_file` says why nothing is leased from queues, if that is so.
    """

    alive: bool
    now: datetime
    next_wake: datetime | None
    late_by: timedelta
    next_lease_end: datetime | None
    parked_schedules: int
    parked_runs: int
    ready_runs: int
    leased_runs: int
    held_runs: int
    leader: str
    policy_file: str


@operations.add("", "health", Ask, scope="read", examples=({},))
def health(context: Context, _ask: Ask) -> Health:
    """Say whether the store answers, how late the house is, and how much waits for a person."""
    now = context.now()
    file = context.policies()
    refusal = file.refusal if file is not None else None

    def work(tx: Transaction) -> Health:
        wake = tx.next_wake()
        counts: Counter[str] = Counter()
        for one in tx.count_live(now=now, most=MOST_LOOKED_AT):
            if one.namespace == context.namespace:
                counts[one.kind] += one.count
        counted = {kind: min(count, MOST_COUNTED) for kind, count in counts.items()}
        return Health(
            alive=True,
            now=now,
            next_wake=wake,
            late_by=max(now - wake, ZERO) if wake is not None else ZERO,
            next_lease_end=tx.next_lease_end(),
            parked_schedules=counted.get("parked_schedule", 0),
            parked_runs=counted.get("parked", 0),
            ready_runs=min(counted.get("ready", 0) + counted.get("waiting", 0), MOST_COUNTED),
            leased_runs=counted.get("leased", 0),
            held_runs=counted.get("held", 0),
            leader=leader_of(tx, now=now),
            policy_file=refusal.message if refusal is not None else "",
        )

    return context.store.read(work)
