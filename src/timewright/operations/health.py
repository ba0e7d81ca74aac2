"""Is it alive, how late is it, what waits for a person."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from timewright.core.moments import ZERO
from timewright.core.run import RunState
from timewright.core.schedule import ScheduleState
from timewright.operations.context import Context
from timewright.operations.registry import Request, operations
from timewright.ports import RunFilter, ScheduleFilter, Transaction

MOST_COUNTED = 1000


class Ask(Request, frozen=True, kw_only=True):
    """Nothing to say: it is the whole house that is asked about."""


class Health(Struct, frozen=True, kw_only=True):
    """How the house does. Counts stop at a thousand, and are those of the namespace.

    `late_by` is how long the most overdue look has been waiting: much more than a second says that no engine
    is running, or that it cannot keep up.
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


@operations.add("", "health", Ask, scope="read", examples=({},))
def health(context: Context, _ask: Ask) -> Health:
    """Say whether the store answers, how late the house is, and how much waits for a person."""
    now = context.now()

    def work(tx: Transaction) -> Health:
        wake = tx.next_wake()

        def runs(state: RunState) -> int:
            which = RunFilter(namespace=context.namespace, state=state, limit=MOST_COUNTED)
            return len(tx.find_runs(which).rows)

        parked = ScheduleFilter(namespace=context.namespace, state=ScheduleState.PARKED, limit=MOST_COUNTED)
        return Health(
            alive=True,
            now=now,
            next_wake=wake,
            late_by=max(now - wake, ZERO) if wake is not None else ZERO,
            next_lease_end=tx.next_lease_end(),
            parked_schedules=len(tx.find_schedules(parked).rows),
            parked_runs=runs(RunState.PARKED),
            ready_runs=runs(RunState.READY),
            leased_runs=runs(RunState.LEASED),
            held_runs=runs(RunState.HELD),
        )

    return context.store.read(work)
