"""Gates: a hard ceiling on live leases, at every commit, however many hammer at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.builders import (
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
from tests.conformance.databases import Database
from tests.conformance.hammer import ceilings_passed, hammer_together
from tests.conformance.together import held_open, meanwhile
from timewright.core.leasing import Gate
from timewright.core.moments import HOUR
from timewright.core.run import Run, RunState
from timewright.core.schedule import limit_gate, queue_gate
from timewright.ports import Renewal, Store

MAIL, CRM = queue_gate("default", "mail"), limit_gate("default", "crm")
LIMITS = {MAIL: 3, CRM: 2}


def hold(store: Store, *gates: str) -> dict[str, Gate]:
    return dict(store.write(lambda tx: tx.hold_gates(gates)))


def set_gates(store: Store, limits: dict[str, int]) -> None:
    store.write(lambda tx: tx.set_gates(limits))


def crowd(many: int) -> list[Run]:
    """Runs behind one gate, behind the other, behind both, and behind none."""
    behind = [(MAIL,), (CRM,), (MAIL, CRM), (MAIL,), ()]
    return [make_run(gates=behind[n % 5], priority=n % 7) for n in range(many)]


def test_a_gate_nobody_has_set_admits_one(store: Store) -> None:
    assert hold(store, MAIL) == {MAIL: Gate(limit=1, held=0)}
    assert store.read(lambda tx: tx.read_gates([MAIL])) == {MAIL: Gate(limit=1, held=0)}


def test_no_gates_are_no_trouble(store: Store) -> None:
    assert hold(store) == {}
    assert store.read(lambda tx: tx.read_gates([])) == {}
    set_gates(store, {})


def test_a_gate_admits_what_it_was_told_last(store: Store) -> None:
    set_gates(store, {MAIL: 5, CRM: 9})
    set_gates(store, {MAIL: 7})
    assert hold(store, CRM, MAIL, MAIL) == {MAIL: Gate(7), CRM: Gate(9)}


def test_a_gate_counts_live_leases_from_the_grant_to_the_end(store: Store) -> None:
    set_gates(store, LIMITS)
    runs = [queued(), queued(), make_run(gates=(MAIL, CRM))]
    add(store, *runs)
    held = leased(store, *runs)
    assert hold(store, MAIL, CRM) == {MAIL: Gate(3, 3), CRM: Gate(2, 1)}
    settle(store, ended(held[0]), ended(held[2], RunState.READY))
    assert hold(store, MAIL, CRM) == {MAIL: Gate(3, 1), CRM: Gate(2, 0)}
    assert store.read(lambda tx: tx.read_gates([MAIL, CRM])) == {MAIL: Gate(3, 1), CRM: Gate(2, 0)}


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
    store.write(lambda tx: tx.renew_leases([Renewal(run.id, held.fence, NOON + HOUR)], now=NOON))
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


def test_a_lowered_limit_takes_no_lease_away_and_admits_none_until_there_is_room(store: Store) -> None:
    set_gates(store, {MAIL: 3})
    runs = [queued() for _ in range(3)]
    add(store, *runs)
    held = leased(store, *runs)
    set_gates(store, {MAIL: 1})
    assert hold(store, MAIL)[MAIL] == Gate(1, 3)
    assert hold(store, MAIL)[MAIL].free == 0
    settle(store, ended(held[0]), ended(held[1]))
    assert hold(store, MAIL)[MAIL].free == 0
    settle(store, ended(held[2]))
    assert hold(store, MAIL)[MAIL].free == 1
    assert get(store, runs[0].id).state is RunState.SUCCEEDED


def test_whoever_holds_a_gate_is_waited_for(database: Database) -> None:
    one, two = database.open(), database.open()
    run = queued()
    add(one, run)
    set_gates(one, {MAIL: 1})

    def lease(tx: Any) -> None:
        assert tx.hold_gates([MAIL])[MAIL].free == 1
        tx.lease_runs([grant(run)])

    with held_open(one, lease) as held, meanwhile(lambda: hold(two, MAIL)) as other:
        with pytest.raises(TimeoutError):
            other.result(0.2)
        held.release()
        assert other.result(60)[MAIL].free == 0, "counted after the first has committed, not before"


def test_gates_in_any_order_are_no_deadlock(database: Database) -> None:
    one, two = database.open(), database.open()
    names = [f"limit:default/l{n}" for n in range(20)]
    set_gates(one, dict.fromkeys(names, 1))
    for _ in range(5):
        with meanwhile(lambda: hold(one, *names)), meanwhile(lambda: hold(two, *reversed(names))):
            pass


def test_sixteen_threads_never_pass_a_ceiling_and_lose_no_run(database: Database) -> None:
    stores = [database.open(), database.open()]
    set_gates(stores[0], LIMITS)
    runs = crowd(150)
    add(stores[0], *runs)
    assert hammer_together(stores, LIMITS, threads=16) == []
    check_all_done(stores[0], runs)


def test_four_processes_never_pass_a_ceiling_and_lose_no_run(database: Database) -> None:
    store = database.open()
    set_gates(store, LIMITS)
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
    """Every run was leased once, ended once, and holds no place any more."""
    found = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert {(run.state, run.fence) for run in found.values()} == {(RunState.SUCCEEDED, 1)}
    assert len(found) == len(runs)
    assert all(gate.held == 0 for gate in hold(store, MAIL, CRM).values())
    assert store.read(lambda tx: ceilings_passed(tx, dict.fromkeys(LIMITS, -1))) == [
        f"{gate}: 0 of -1" for gate in LIMITS
    ], "the check counts what it says it counts"


def start_process(database: Database) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.hammer", database.kind, database.place, json.dumps(LIMITS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
