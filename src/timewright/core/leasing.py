"""Which ready runs start now: the read-only plan, with a reason for everyone who waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from timewright.core.run import Run, RunState

_READY = RunState.READY


class Waits(StrEnum):
    """Why a run is not started now."""

    CEILING = "ceiling"
    CAPACITY = "capacity"
    BACKOFF = "backoff"
    BUDGET = "budget"
    PROVIDER = "provider"
    PARKED = "parked"
    LEASED = "leased"
    HELD = "held"
    TERMINAL = "terminal"


class Gate(Struct, frozen=True):
    """A hard ceiling: how many live leases it admits, and how many it has."""

    limit: int
    held: int = 0

    @property
    def free(self) -> int:
        """How many more may be granted; never negative, also after the limit was lowered."""
        return max(self.limit - self.held, 0)


class Waiting(Struct, frozen=True):
    """A run that waits, why, and for what or until when."""

    run_id: str
    reason: Waits
    gate: str = ""
    until: datetime | None = None


class LeasePlan(Struct, frozen=True, kw_only=True):
    """What would be leased now, in order, and what waits and why."""

    now: datetime
    leases: tuple[Run, ...]
    waiting: tuple[Waiting, ...]
    gates: dict[str, Gate]


def order(
    run: Run, *, ageing: timedelta | None = None, now: datetime | None = None
) -> tuple[int, datetime, str]:
    """Smaller priority first, then the older, then by id; with ageing, waiting raises a run step by step."""
    priority = run.priority
    if ageing is not None and now is not None:
        priority -= max(now - run.planned_at, timedelta(0)) // ageing
    return priority, run.planned_at, run.id


def plan_leases(
    runs: Iterable[Run],
    *,
    gates: Mapping[str, Gate],
    capacity: int | None = None,
    ageing: Mapping[tuple[str, str], timedelta] | None = None,
    now: datetime,
) -> LeasePlan:
    """Grant in order until a ceiling or the capacity is met; the plan changes nothing.

    A run under a gate that is not in `gates` waits: a ceiling nobody can read is a closed one. `ageing` is
    by namespace and queue.
    """
    free = {name: gate.free for name, gate in gates.items()}
    most = None if capacity is None else max(capacity, 0)
    leases: list[Run] = []
    waiting: list[Waiting] = []
    for run in _in_order(runs, ageing or {}, now=now):
        ready = run.state is _READY and run.fire_at <= now
        blocked = None if ready else _why_not(run, now=now)
        if ready:
            full = next((gate for gate in run.gates if free.get(gate, 0) < 1), None) if run.gates else None
            if full is not None:
                blocked = Waiting(run.id, Waits.CEILING, gate=full)
            elif most is not None and len(leases) >= most:
                blocked = Waiting(run.id, Waits.CAPACITY)
        if blocked is not None:
            waiting.append(blocked)
            continue
        if run.gates:
            for gate in set(run.gates):
                free[gate] -= 1
        leases.append(run)
    return LeasePlan(now=now, leases=tuple(leases), waiting=tuple(waiting), gates=dict(gates))


def _in_order(
    runs: Iterable[Run], ageing: Mapping[tuple[str, str], timedelta], *, now: datetime
) -> list[Run]:
    if not ageing:
        return sorted(runs, key=order)
    return sorted(runs, key=lambda run: order(run, ageing=ageing.get((run.namespace, run.queue)), now=now))


def _why_not(run: Run, *, now: datetime) -> Waiting | None:
    """Why this run may not start whatever the ceilings say, if so."""
    if run.state is RunState.READY:
        return _later(run) if run.fire_at > now else None
    if run.state is RunState.PARKED:
        return Waiting(run.id, Waits.PARKED)
    if run.state is RunState.HELD:
        return Waiting(run.id, Waits.HELD)
    if run.state is RunState.LEASED:
        return Waiting(run.id, Waits.LEASED, until=run.lease_until)
    return Waiting(run.id, Waits.TERMINAL)


def _later(run: Run) -> Waiting:
    """What a run waits for whose instant lies ahead; one that was deferred says so in its reason."""
    for waits in (Waits.BUDGET, Waits.PROVIDER):
        if run.reason.startswith(f"{waits.value}: "):
            return Waiting(run.id, waits, gate=run.reason.split(": ")[1], until=run.fire_at)
    return Waiting(run.id, Waits.BACKOFF, until=run.fire_at)
