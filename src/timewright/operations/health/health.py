"""System health: whether the store answers, how late the engine is, and what waits for a person."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.ledger.leader import current_leader
from timewright.operations.context import OperationContext
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import Transaction

MAX_COUNT = 1000
# Per kind, across namespaces: counting this many rows takes a few milliseconds.
MAX_ROWS_SCANNED = 20_000


class GetHealth(OperationRequest, frozen=True, kw_only=True):
    """No parameters."""


class SystemHealth(Struct, frozen=True, kw_only=True):
    """The health of the system. Counts are those of the namespace and stop at 1000.

    `late_by` is how long the most overdue schedule has been waiting: more than a few seconds means that no
    engine is running, or that it cannot keep up. `leader` is the leading instance, if instances elect one;
    `policy_file` is the error of the policy file, because of which no queue leases anything.
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


@operations.add("", "health", GetHealth, scope="read", examples=({},))
def health(context: OperationContext, _request: GetHealth) -> SystemHealth:
    """Show whether the store answers, how late the engine is, and how much waits for a person."""
    now = context.now()
    file = context.queue_policy_file()
    error = file.error if file is not None else None

    def work(tx: Transaction) -> SystemHealth:
        wake = tx.read_pending_work().wake_at
        counts: Counter[str] = Counter()
        for one in tx.count_live(now=now, max_rows=MAX_ROWS_SCANNED):
            if one.namespace == context.namespace:
                counts[one.kind] += one.count
        counted = {kind: min(count, MAX_COUNT) for kind, count in counts.items()}
        return SystemHealth(
            alive=True,
            now=now,
            next_wake=wake,
            late_by=max(now - wake, ZERO) if wake is not None else ZERO,
            next_lease_end=tx.read_pending_work(with_lease_end=True).lease_expires_at,
            parked_schedules=counted.get("parked_schedule", 0),
            parked_runs=counted.get("parked", 0),
            ready_runs=min(counted.get("ready", 0) + counted.get("waiting", 0), MAX_COUNT),
            leased_runs=counted.get("leased", 0),
            held_runs=counted.get("held", 0),
            leader=current_leader(tx, now=now),
            policy_file=error.message if error is not None else "",
        )

    return context.store.read(work)
