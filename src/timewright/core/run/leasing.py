"""Plans which ready runs to lease now, with a reason for each run that waits. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heapify, heappop, heappush, heapreplace

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import from_micros, to_micros
from timewright.core.policies.limits import KEY_MARK, is_grouped_key
from timewright.core.run.needs import LeaseOffer, SlotCount
from timewright.core.run.run import Run, RunState

_READY = RunState.READY


class WaitReason(StrEnum):
    """Why a run does not start now."""

    LIMIT = "limit"
    RATE = "rate"
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


# One start of a key with weight 1, in the unit in which shares are counted.
SHARE_UNIT = 1_000_000


class LimitUsage(Struct, frozen=True):
    """A limit: its capacity and how many leases hold it, its rate, and the share that its key has used.

    `rate_interval` are the microseconds between starts; 0 means no rate. `arrival_at` is when the next start
    is due at that rate, in microseconds; up to `burst` - 1 starts may come before they are due. `share_used`
    counts starts divided by the weight.
    """

    capacity: int
    held: int = 0
    rate_interval: int = 0
    burst: int = 1
    arrival_at: int = 0
    weight: int = 1
    share_used: int = 0

    @property
    def free(self) -> int:
        """How many more leases fit; 0 if the capacity was lowered below `held`."""
        return max(self.capacity - self.held, 0)

    @property
    def rate_opens_at(self) -> datetime | None:
        """The first instant at which the rate allows another start; None without a rate."""
        if not self.rate_interval:
            return None
        return from_micros(max(self.arrival_at - (self.burst - 1) * self.rate_interval, 0))

    def closed_until(self, *, now: datetime) -> datetime | None:
        """The instant before which the rate allows no start, if it lies ahead."""
        opens_at = self.rate_opens_at
        return opens_at if opens_at is not None and opens_at > now else None

    def startable(self, *, now: datetime) -> int:
        """How many runs may start now."""
        if not self.rate_interval:
            return self.free
        micros = to_micros(now)
        ahead = micros + (self.burst - 1) * self.rate_interval - max(self.arrival_at, micros)
        return min(self.free, max(ahead // self.rate_interval + 1, 0))

    def after_start(self, *, now: datetime) -> LimitUsage:
        """The limit with one more lease that starts now."""
        arrival_at = max(self.arrival_at, to_micros(now)) + self.rate_interval if self.rate_interval else 0
        used = self.share_used + SHARE_UNIT // self.weight
        return replace(self, held=self.held + 1, arrival_at=arrival_at, share_used=used)


class LimitGroup(Struct, frozen=True, kw_only=True):
    """The ready runs with the same needs and limits, some of which have a key or a rate.

    `waits_for` is the limit key that is full, `rate` if they wait until `open_at`, or empty.
    """

    needs: tuple[str, ...]
    limit_keys: tuple[str, ...]
    share_used: int = 0
    waits_for: str = ""
    open_at: datetime | None = None
    may_be_empty: bool = False


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
    free = {name: usage.free for name, usage in limits.items()}
    rated = {name: usage for name, usage in limits.items() if usage.rate_interval}
    max_leases = None if capacity is None else max(capacity, 0)
    leases: list[Run] = []
    waiting: list[WaitingRun] = []
    for run in _share_starts(_sort_runs(runs, ageing or {}, now=now), limits):
        ready = run.state is _READY and run.fire_at <= now
        blocked = None if ready else _wait_reason(run, now=now)
        if ready and run.limit_keys:
            blocked = _limit_wait(run, free, rated, now=now)
        if ready and blocked is None:
            if max_leases is not None and len(leases) >= max_leases:
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
                if limit_key in rated:
                    rated[limit_key] = rated[limit_key].after_start(now=now)
        leases.append(run)
    return LeasePlan(now=now, leases=tuple(leases), waiting=tuple(waiting), limits=dict(limits))


def use_limits(
    limits: Mapping[str, LimitUsage], granted: Iterable[Run], *, now: datetime
) -> dict[str, LimitUsage]:
    """The limits after these runs were leased; only those with a rate or a key, whose state is stored."""
    after = {key: usage for key, usage in limits.items() if usage.rate_interval or is_grouped_key(key)}
    for run in granted:
        for key in set(run.limit_keys) & after.keys():
            after[key] = after[key].after_start(now=now)
    return after


def update_groups(
    candidates: Iterable[Run], granted: Iterable[Run], limits: Mapping[str, LimitUsage], *, now: datetime
) -> list[LimitGroup]:
    """The groups of these candidates after some were granted; `limits` are those after the grants."""
    left: dict[tuple[tuple[str, ...], tuple[str, ...]], set[str]] = {}
    for run in candidates:
        if share_key(run.limit_keys):
            left.setdefault((run.needs, run.limit_keys), set()).add(run.id)
    for run in granted:
        if run.limit_keys:
            left.get((run.needs, run.limit_keys), set()).discard(run.id)
    groups = []
    for (needs, keys), waiting in left.items():
        used = limits[share_key(keys)].share_used
        full = next((key for key in keys if is_grouped_key(key) and not limits[key].free), "")
        opens = [limits[key].closed_until(now=now) for key in keys if key in limits]
        open_at = max((at for at in opens if at is not None), default=None)
        groups.append(
            LimitGroup(
                needs=needs,
                limit_keys=keys,
                share_used=used,
                waits_for=full or ("rate" if open_at is not None else ""),
                open_at=open_at,
                may_be_empty=not waiting,
            )
        )
    return groups


def share_key(limit_keys: Iterable[str]) -> str:
    """The limit key whose share the runs use: the first with a key or a rate."""
    return next((key for key in limit_keys if is_grouped_key(key)), "")


def share_limit(limit_key: str) -> str:
    """The limit among whose keys the shares are."""
    return limit_key.partition(KEY_MARK)[0]


def allocate_starts(
    groups: Sequence[tuple[tuple[str, ...], int]],
    limits: Mapping[str, LimitUsage],
    *,
    count: int,
    now: datetime,
) -> list[int]:
    """How many of `count` starts each group gets, by the shares of their keys; a hint of how many to read.

    A group is given by its limit keys and its priority.
    """
    left = {key: usage.startable(now=now) for key, usage in limits.items()}
    used = {key: usage.share_used for key, usage in limits.items()}
    shares = [share_key(keys) for keys, _ in groups]
    counts = [0] * len(groups)
    heap = [(priority, used.get(shares[i], 0), i) for i, (_, priority) in enumerate(groups)]
    heapify(heap)
    while heap and count:
        priority, _, number = heap[0]
        keys, share = groups[number][0], shares[number]
        grouped = [key for key in keys if key in left and is_grouped_key(key)]
        if any(left[key] < 1 for key in grouped):
            heappop(heap)
            continue
        for key in grouped:
            left[key] -= 1
        weight = limits[share].weight if share in limits else 1
        used[share] = used.get(share, 0) + SHARE_UNIT // weight
        counts[number] += 1
        count -= 1
        heapreplace(heap, (priority, used[share], number))
    return counts


def _share_starts(runs: list[Run], limits: Mapping[str, LimitUsage]) -> list[Run]:
    """Order runs by priority; of equal ones, the keys of one limit take turns by their shares.

    The turns of a limit are compared with other runs by the oldest run that still waits under that limit.
    """
    queues: dict[str, list[Run]] = {}
    plain: list[Run] = []
    for run in runs:
        share = share_key(run.limit_keys) if run.limit_keys else ""
        queues.setdefault(share, []).append(run) if share else plain.append(run)
    if not queues:
        return runs
    by_limit: dict[str, list[str]] = {}
    for share in queues:
        by_limit.setdefault(share_limit(share), []).append(share)
    position = {run.id: number for number, run in enumerate(runs)}
    ordered = [[(position[run.id], run) for run in plain]]
    ordered += [_take_turns(shares, queues, limits, position) for shares in by_limit.values()]
    if len(ordered[0]) == 0 and len(ordered) == 2:
        return [run for _, run in ordered[1]]
    return [run for _, run in sorted((one for part in ordered for one in part), key=lambda one: one[0])]


def _take_turns(
    shares: list[str],
    queues: Mapping[str, list[Run]],
    limits: Mapping[str, LimitUsage],
    position: Mapping[str, int],
) -> list[tuple[int, Run]]:
    """The runs of the keys of one limit in turns, in the positions that these runs have by age."""
    positions = sorted(position[run.id] for share in shares for run in queues[share])
    taken = dict.fromkeys(shares, 0)
    heap: list[tuple[int, int, int, str]] = []

    def push(share: str, used: int) -> None:
        if taken[share] < len(queues[share]):
            run = queues[share][taken[share]]
            heappush(heap, (run.priority, used, position[run.id], share))

    for share in shares:
        push(share, limits[share].share_used if share in limits else 0)
    turns: list[tuple[int, Run]] = []
    while heap:
        _, used, _, share = heappop(heap)
        turns.append((positions[len(turns)], queues[share][taken[share]]))
        taken[share] += 1
        push(share, used + SHARE_UNIT // (limits[share].weight if share in limits else 1))
    return turns


def _limit_wait(
    run: Run, free: Mapping[str, int], rated: Mapping[str, LimitUsage], *, now: datetime
) -> WaitingRun | None:
    """The first limit that does not let a run start now, if there is one."""
    for key in run.limit_keys:
        if free.get(key, 0) < 1:
            return WaitingRun(run.id, WaitReason.LIMIT, blocked_by=key)
        until = rated[key].closed_until(now=now) if key in rated else None
        if until is not None:
            return WaitingRun(run.id, WaitReason.RATE, blocked_by=key, until=until)
    return None


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
