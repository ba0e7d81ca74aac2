"""Plans which ready runs to lease now, with a reason for each run that waits. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from timewright.core.run.needs import LeaseOffer, SlotCount
from timewright.core.run.run import Run, RunState

_READY = RunState.READY


class WaitReason(StrEnum):
    """Why a run does not start now."""

    LIMIT = "limit"
    CAPACITY = "capacity"
    INSTANCE = "instance"
    BACKOFF = "backoff"
    BUDGET = "budget"
    PROVIDER = "provider"
    PAUSE = "pause"
    PARKED = "parked"
    LEASED = "leased"
    HELD = "held"
    TERMINAL = "terminal"


class LimitUsage(Struct, frozen=True):
    """A concurrency limit: its capacity, and how many leases hold it."""

    capacity: int
    held: int = 0

    @property
    def free(self) -> int:
        """How many more leases fit; 0 if the capacity was lowered below `held`."""
        return max(self.capacity - self.held, 0)


class WaitingRun(Struct, frozen=True):
    """A waiting run: why it waits, for what, and until when."""

    run_id: str
    reason: WaitReason
    blocked_by: str = ""
    until: datetime | None = None


class LeasePlan(Struct, frozen=True, kw_only=True):
    """The runs to lease now, in order, and the runs that wait."""

    now: datetime
    leases: tuple[Run, ...]
    waiting: tuple[WaitingRun, ...]
    limits: dict[str, LimitUsage]


def lease_order(
    run: Run, *, ageing: timedelta | None = None, now: datetime | None = None
) -> tuple[int, datetime, str]:
    """Sort key: smaller priority first, then older, then by id; `ageing` raises waiting runs."""
    priority = run.priority
    if ageing is not None and now is not None:
        priority -= max(now - run.planned_at, timedelta(0)) // ageing
    return priority, run.planned_at, run.id


def plan_leases(
    runs: Iterable[Run],
    *,
    limits: Mapping[str, LimitUsage],
    capacity: int | None = None,
    ageing: Mapping[tuple[str, str], timedelta] | None = None,
    offer: LeaseOffer | None = None,
    now: datetime,
) -> LeasePlan:
    """Plan leases in order until a limit, the capacity or a slot of the instance is reached.

    A run with a limit that is missing in `limits` waits, because an unreadable limit counts as full. The keys
    of `ageing` are namespace and queue. With `offer`, runs that the instance cannot run wait.
    """
    slots = SlotCount(offer) if offer is not None else None
    free = {name: limit_key.free for name, limit_key in limits.items()}
    max_leases = None if capacity is None else max(capacity, 0)
    leases: list[Run] = []
    waiting: list[WaitingRun] = []
    for run in _sort_runs(runs, ageing or {}, now=now):
        ready = run.state is _READY and run.fire_at <= now
        blocked = None if ready else _wait_reason(run, now=now)
        if ready:
            full_limit = (
                next((limit_key for limit_key in run.limit_keys if free.get(limit_key, 0) < 1), None)
                if run.limit_keys
                else None
            )
            if full_limit is not None:
                blocked = WaitingRun(run.id, WaitReason.LIMIT, blocked_by=full_limit)
            elif max_leases is not None and len(leases) >= max_leases:
                blocked = WaitingRun(run.id, WaitReason.CAPACITY)
            elif slots is not None and not slots.take(run.needs, priority=run.priority):
                lacks = slots.offer.offer.lacks(run.needs)
                reason = WaitReason.INSTANCE if lacks else WaitReason.CAPACITY
                blocked = WaitingRun(run.id, reason, blocked_by=lacks[0] if lacks else "")
        if blocked is not None:
            waiting.append(blocked)
            continue
        if run.limit_keys:
            for limit_key in set(run.limit_keys):
                free[limit_key] -= 1
        leases.append(run)
    return LeasePlan(now=now, leases=tuple(leases), waiting=tuple(waiting), limits=dict(limits))


def _sort_runs(
    runs: Iterable[Run], ageing: Mapping[tuple[str, str], timedelta], *, now: datetime
) -> list[Run]:
    if not ageing:
        return sorted(runs, key=lease_order)
    return sorted(
        runs, key=lambda run: lease_order(run, ageing=ageing.get((run.namespace, run.queue)), now=now)
    )


def _wait_reason(run: Run, *, now: datetime) -> WaitingRun | None:
    """Return why this run may not start regardless of limits, if so."""
    if run.state is RunState.READY:
        return _future_wait(run) if run.fire_at > now else None
    if run.state is RunState.PARKED:
        return WaitingRun(run.id, WaitReason.PARKED)
    if run.state is RunState.HELD:
        return WaitingRun(run.id, WaitReason.HELD)
    if run.state is RunState.LEASED:
        return WaitingRun(run.id, WaitReason.LEASED, until=run.lease_until)
    return WaitingRun(run.id, WaitReason.TERMINAL)


def _future_wait(run: Run) -> WaitingRun:
    """Return why a run with a future `fire_at` waits: budget, provider, pause or backoff."""
    for wait_reason in (WaitReason.BUDGET, WaitReason.PROVIDER, WaitReason.PAUSE):
        if run.reason.startswith(f"{wait_reason.value}: "):
            return WaitingRun(run.id, wait_reason, blocked_by=run.reason.split(": ")[1], until=run.fire_at)
    return WaitingRun(run.id, WaitReason.BACKOFF, until=run.fire_at)
