"""Stress test of limits: many workers lease, check the limits, and settle.

`python -m tests.conformance.support.hammer KIND PLACE LIMITS` runs one more process on the same store.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conformance.support.builders import LEASE, NOON, ended
from tests.conformance.support.databases import open_store
from timewright.core.run.leasing import LimitUsage, plan_leases
from timewright.core.run.run import Attempt, Run
from timewright.ports import Grant, Store, Transaction
from timewright.ports.rows import LeasedRuns
from timewright.testing.clock import ManualClock

AT_ONCE = 3

Take = Callable[[Transaction, str], list[Run]]


def take(tx: Transaction, holder: str) -> list[Run]:
    """Read ready runs, lock the limits, count and lease, in one transaction."""
    runs = tx.ready_runs(now=NOON, limit=AT_ONCE)
    limits = tx.get_limits({key for run in runs for key in run.limit_keys}, lock=True)
    return lease_planned(tx, runs, limits, holder=holder)


def hammer(store: Store, limits: Mapping[str, int], *, holder: str, take: Take = take) -> list[str]:
    """Work until nothing is ready; returns every limit that was exceeded."""
    passed: list[str] = []

    def turn(tx: Transaction) -> tuple[list[Run], list[str]]:
        return take(tx, holder), exceeded_limits(tx, limits)

    while store.write(lambda tx: bool(tx.ready_runs(now=NOON, limit=1))):
        taken, before = store.write(turn)
        settled = [ended(run) for run in taken]
        passed += before + store.read(lambda tx: exceeded_limits(tx, limits))
        if settled:
            _settle(store, settled)
    return passed


def hammer_from_threads(
    stores: list[Any], limits: Mapping[str, int], *, threads: int, take: Take = take
) -> list[str]:
    """Run threads over stores; returns every limit that was exceeded."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(hammer, stores[n % len(stores)], limits, holder=f"t{n}", take=take)
            for n in range(threads)
        ]
        return [line for future in futures for line in future.result(100)]


def exceeded_limits(tx: Transaction, limits: Mapping[str, int]) -> list[str]:
    """Return the limits with more live leases than capacity, counted from the runs."""
    live = Counter(key for run in tx.select(LeasedRuns()) for key in run.limit_keys)
    return [f"{key}: {live[key]} of {capacity}" for key, capacity in limits.items() if live[key] > capacity]


def _settle(store: Store, settled: list[tuple[Run, Attempt]]) -> None:
    store.write(lambda tx: tx.settle_runs(settled))


def lease_planned(
    tx: Transaction, runs: list[Run], limits: Mapping[str, LimitUsage], *, holder: str
) -> list[Run]:
    """Lease what the limits allow, as counted."""
    plan = plan_leases(runs, limits=limits, capacity=AT_ONCE, now=NOON)
    grants = [
        Grant(run=run, lease_id=f"lease_{run.id}", holder=holder, leased_at=NOON, lease_until=NOON + LEASE)
        for run in plan.leases
    ]
    return tx.lease_runs(grants)


def main(arguments: list[str]) -> None:
    """Run as one of several processes; prints the exceeded limits as JSON."""
    kind, place, limits = arguments
    store = open_store(kind, place, clock=ManualClock(NOON))
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.readline()
    passed = hammer_from_threads([store], json.loads(limits), threads=4)
    store.close()
    sys.stdout.write(json.dumps(passed) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
