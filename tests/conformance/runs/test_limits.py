"""Limits: the number of live leases never exceeds the capacity, under any concurrency."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    add,
    ended,
    get,
    grant,
    leased,
    make_run,
    new_id,
    queued,
    settle,
)
from tests.conformance.support.concurrency import held_open, meanwhile
from tests.conformance.support.databases import Database
from tests.conformance.support.hammer import exceeded_limits, hammer_from_threads
from timewright.core.moments import HOUR
from timewright.core.policies.limits import named_limit_key
from timewright.core.run.leasing import LimitUsage
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.schedule import queue_limit_key
from timewright.ports import Renewal, Store

MAIL, CRM = queue_limit_key("default", "mail"), named_limit_key("default", "crm")
LIMITS = {MAIL: 3, CRM: 2}


def hold(store: Store, *keys: str) -> dict[str, LimitUsage]:
    return dict(store.write(lambda tx: tx.get_limits(keys, lock=True)))


def set_limits(store: Store, limits: dict[str, int]) -> None:
    store.write(lambda tx: tx.set_limits(limits))


def crowd(many: int) -> list[Run]:
    """Make runs under one limit, under the other, under both, and under none."""
    behind = [(MAIL,), (CRM,), (MAIL, CRM), (MAIL,), ()]
    return [make_run(limit_keys=behind[n % 5], priority=n % 7) for n in range(many)]


def test_an_unset_limit_has_capacity_one(store: Store) -> None:
    assert hold(store, MAIL) == {MAIL: LimitUsage(capacity=1, held=0)}
    assert store.read(lambda tx: tx.get_limits([MAIL])) == {MAIL: LimitUsage(capacity=1, held=0)}


def test_locking_no_limits_returns_nothing(store: Store) -> None:
    assert hold(store) == {}
    assert store.read(lambda tx: tx.get_limits([])) == {}
    set_limits(store, {})


def test_a_limit_has_the_capacity_set_last(store: Store) -> None:
    set_limits(store, {MAIL: 5, CRM: 9})
    set_limits(store, {MAIL: 7})
    assert hold(store, CRM, MAIL, MAIL) == {MAIL: LimitUsage(7), CRM: LimitUsage(9)}


def test_a_limit_counts_leases_from_grant_to_end(store: Store) -> None:
    set_limits(store, LIMITS)
    runs = [queued(), queued(), make_run(limit_keys=(MAIL, CRM))]
    add(store, *runs)
    held = leased(store, *runs)
    assert hold(store, MAIL, CRM) == {MAIL: LimitUsage(3, 3), CRM: LimitUsage(2, 1)}
    settle(store, ended(held[0]), ended(held[2], RunState.READY))
    assert hold(store, MAIL, CRM) == {MAIL: LimitUsage(3, 1), CRM: LimitUsage(2, 0)}
    assert store.read(lambda tx: tx.get_limits([MAIL, CRM])) == {
        MAIL: LimitUsage(3, 1),
        CRM: LimitUsage(2, 0),
    }


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.LEASED])
def test_a_place_is_freed_however_the_lease_ends(store: Store, state: RunState) -> None:
    run = queued()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended(held, state))
    assert hold(store, MAIL)[MAIL].held == 0


def test_a_renewal_and_an_end_that_was_refused_free_no_place(store: Store) -> None:
    run = queued()
    add(store, run)
    (held,) = leased(store, run)
    store.write(lambda tx: tx.renew_leases([Renewal(run.id, held.fence, NOON + HOUR)]))
    settle(store, ended(replace(held, fence=held.fence + 1)))
    assert hold(store, MAIL)[MAIL].held == 1


def test_a_lease_that_was_refused_takes_no_place(store: Store) -> None:
    run = queued(state=RunState.PARKED)
    add(store, run)
    assert leased(store, run) == []
    assert hold(store, MAIL)[MAIL].held == 0


def test_a_run_that_is_admitted_leased_takes_its_place_at_once(store: Store) -> None:
    lease: dict[str, Any] = {
        "fence": 1,
        "lease_id": new_id("lease"),
        "leased_at": NOON,
        "lease_until": NOON + LEASE,
    }
    run = queued(state=RunState.LEASED, **lease)
    add(store, run)
    assert hold(store, MAIL)[MAIL].held == 1
    settle(store, ended(run))
    assert hold(store, MAIL)[MAIL].held == 0


def test_a_lowered_limit_revokes_no_lease(store: Store) -> None:
    set_limits(store, {MAIL: 3})
    runs = [queued() for _ in range(3)]
    add(store, *runs)
    held = leased(store, *runs)
    set_limits(store, {MAIL: 1})
    assert hold(store, MAIL)[MAIL] == LimitUsage(1, 3)
    assert hold(store, MAIL)[MAIL].free == 0
    settle(store, ended(held[0]), ended(held[1]))
    assert hold(store, MAIL)[MAIL].free == 0
    settle(store, ended(held[2]))
    assert hold(store, MAIL)[MAIL].free == 1
    assert get(store, runs[0].id).state is RunState.SUCCEEDED


def test_a_locked_limit_blocks_other_transactions(database: Database) -> None:
    one, two = database.open(), database.open()
    run = queued()
    add(one, run)
    set_limits(one, {MAIL: 1})

    def lease(tx: Any) -> None:
        assert tx.get_limits([MAIL], lock=True)[MAIL].free == 1
        tx.lease_runs([grant(run)])

    with held_open(one, lease) as held, meanwhile(lambda: hold(two, MAIL)) as other:
        with pytest.raises(TimeoutError):
            other.result(0.2)
        held.release()
        assert other.result(60)[MAIL].free == 0, "counted after the first has committed, not before"


def test_locking_limits_in_any_order_does_not_deadlock(database: Database) -> None:
    one, two = database.open(), database.open()
    names = [f"limit:default/l{n}" for n in range(20)]
    set_limits(one, dict.fromkeys(names, 1))
    for _ in range(5):
        with meanwhile(lambda: hold(one, *names)), meanwhile(lambda: hold(two, *reversed(names))):
            pass


def test_sixteen_threads_never_exceed_a_limit_and_lose_no_run(database: Database) -> None:
    stores = [database.open(), database.open()]
    set_limits(stores[0], LIMITS)
    runs = crowd(150)
    add(stores[0], *runs)
    assert hammer_from_threads(stores, LIMITS, threads=16) == []
    check_all_done(stores[0], runs)


def test_four_processes_never_exceed_a_limit_and_lose_no_run(database: Database) -> None:
    store = database.open()
    set_limits(store, LIMITS)
    runs = crowd(150)
    add(store, *runs)
    children = [start_process(database) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    passed = [json.loads(child.communicate(timeout=100)[0]) for child in children]
    assert passed == [[], [], [], []]
    check_all_done(store, runs)


def check_all_done(store: Store, runs: list[Run]) -> None:
    """Check that every run was leased and ended once and holds no limit."""
    found = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert {(run.state, run.fence) for run in found.values()} == {(RunState.SUCCEEDED, 1)}
    assert len(found) == len(runs)
    assert all(limit.held == 0 for limit in hold(store, MAIL, CRM).values())
    assert store.read(lambda tx: exceeded_limits(tx, dict.fromkeys(LIMITS, -1))) == [
        f"{key}: 0 of -1" for key in LIMITS
    ], "the check counts what it says it counts"


def start_process(database: Database) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.conformance.support.hammer",
            database.kind,
            database.place,
            json.dumps(LIMITS),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
