"""Many workers on one store: each leases what the ceilings allow, looks whether they held, and settles.

As a program it is one more process at the same rows: `python -m tests.conformance.hammer KIND PLACE LIMITS`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conformance.builders import LEASE, NOON, ended
from tests.conformance.databases import open_store
from timewright.core.leasing import Gate, plan_leases
from timewright.core.run import Attempt, Run
from timewright.ports import Grant, Store, Transaction
from timewright.testing.clock import ManualClock

AT_ONCE = 3

Take = Callable[[Transaction, str], list[Run]]


def take(tx: Transaction, holder: str) -> list[Run]:
    """Read what may start, hold the gates, count, and lease: one transaction."""
    runs = tx.ready_runs(now=NOON, limit=AT_ONCE)
    gates = tx.hold_gates({gate for run in runs for gate in run.gates})
    return lease_planned(tx, runs, gates, holder=holder)


def hammer(store: Store, limits: Mapping[str, int], *, holder: str, take: Take = take) -> list[str]:
    """Work until nothing is ready; gives back every ceiling that was passed, before or after a commit."""
    passed: list[str] = []

    def turn(tx: Transaction) -> tuple[list[Run], list[str]]:
        return take(tx, holder), ceilings_passed(tx, limits)

    while store.write(lambda tx: bool(tx.ready_runs(now=NOON, limit=1))):
        taken, before = store.write(turn)
        settled = [ended(run) for run in taken]
        passed += before + store.read(lambda tx: ceilings_passed(tx, limits))
        if settled:
            _settle(store, settled)
    return passed


def hammer_together(
    stores: list[Any], limits: Mapping[str, int], *, threads: int, take: Take = take
) -> list[str]:
    """So many threads over those stores; every ceiling that was passed."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(hammer, stores[n % len(stores)], limits, holder=f"t{n}", take=take)
            for n in range(threads)
        ]
        return [line for future in futures for line in future.result(100)]


def ceilings_passed(tx: Transaction, limits: Mapping[str, int]) -> list[str]:
    """Gates with more live leases than they admit, counted from the runs themselves."""
    live = Counter(gate for run in tx.leased_runs() for gate in run.gates)
    return [f"{gate}: {live[gate]} of {most}" for gate, most in limits.items() if live[gate] > most]


def _settle(store: Store, settled: list[tuple[Run, Attempt]]) -> None:
    store.write(lambda tx: tx.settle_runs(settled))


def lease_planned(tx: Transaction, runs: list[Run], gates: Mapping[str, Gate], *, holder: str) -> list[Run]:
    """Lease what the gates allow, as they were counted."""
    plan = plan_leases(runs, gates=gates, capacity=AT_ONCE, now=NOON)
    grants = [
        Grant(run=run, lease_id=f"lease_{run.id}", holder=holder, leased_at=NOON, lease_until=NOON + LEASE)
        for run in plan.leases
    ]
    return tx.lease_runs(grants)


def main(arguments: list[str]) -> None:
    """One process of several: say what was passed, as JSON."""
    kind, place, limits = arguments
    store = open_store(kind, place, clock=ManualClock(NOON))
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.readline()
    passed = hammer_together([store], json.loads(limits), threads=4)
    store.close()
    sys.stdout.write(json.dumps(passed) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
