"""Every guard is needed: with one taken away, the promise it keeps is seen to break.

A mutant is a store whose book of statements, or whose tables, lack one guard. For each there is a promise
of this folder that must notice; a suite that still passes would prove nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance import test_due, test_gates, test_leases, test_ready, test_runs, test_schedules
from tests.conformance.builders import NOON, add, make_run, new_id
from tests.conformance.databases import Database
from tests.conformance.hammer import AT_ONCE, Take, hammer_together, lease_planned
from timewright.core.leasing import Gate
from timewright.core.moments import HOUR
from timewright.core.run import Run, RunState
from timewright.errors import Conflict, TimewrightError
from timewright.ports import Store

BROKEN = (AssertionError, TimewrightError, ValueError, pytest.fail.Exception)

NO_FENCE = (r"runs\.fence = (\S+)", r"\1 IS NOT NULL")
WITHOUT_GUARD = {
    "settle without its fence": (
        "settle_runs",
        *NO_FENCE,
        test_leases.test_an_answer_from_a_lost_lease_changes_nothing_and_leaves_no_attempt,
    ),
    "lease without its fence": (
        "lease_runs",
        *NO_FENCE,
        test_leases.test_a_lease_read_under_an_older_fence_is_not_granted,
    ),
    "renew without its fence": (
        "renew_leases",
        *NO_FENCE,
        test_leases.test_only_renewals_whose_fence_still_holds_are_given_back,
    ),
    "lease that does not move the fence": (
        "lease_runs",
        r"fence = runs\.fence \+ 1",
        "fence = runs.fence",
        test_leases.test_the_fence_rises_by_one_with_every_lease_and_never_falls,
    ),
    "lease of whatever is there": (
        "lease_runs",
        r"runs\.state \|\| '' = 'ready'",
        "runs.state <> ''",
        lambda store: test_leases.test_a_run_that_is_not_ready_is_not_leased(store, RunState.PARKED),
    ),
    "change without its state": (
        "change_runs",
        r"runs\.state = (\S+)",
        r"\1 IS NOT NULL",
        test_leases.test_a_change_holds_only_for_the_state_and_fence_it_was_read_with,
    ),
    "change of what is leased": (
        "change_runs",
        r"AND \S+ <> 'leased'",
        "",
        test_leases.test_a_leased_run_is_never_rewritten_behind_its_holders_back,
    ),
    "edit without its revision": (
        "revise_schedules",
        r"schedules\.revision = (\S+)",
        r"\1 IS NOT NULL",
        test_schedules.test_an_edit_of_a_revision_that_is_not_the_last_is_a_conflict_and_changes_nothing,
    ),
    "places that are never freed": (
        "delete_holds",
        r"WHERE ",
        "WHERE 1 = 0 AND ",
        test_gates.test_a_gate_counts_live_leases_from_the_grant_to_the_end,
    ),
    "waking too early": (
        "awaken",
        r"fire_at <= \S+",
        "fire_at <= 4102444800000000",
        test_ready.test_a_run_that_wakes_wakes_nobody_beside_it,
    ),
}
WITHOUT_LOCK = {
    "due schedules": (
        "due_schedules",
        test_due.test_two_claimers_at_the_same_time_never_get_the_same_schedule,
    ),
    "gates": ("hold_gates", test_gates.test_whoever_holds_a_gate_is_waited_for),
}


def book_of(store: Any) -> dict[str, Any]:
    """The statements a store speaks; its writer's, where it has one."""
    return store._writer._book if hasattr(store, "_writer") else store._book


def mutate(store: Store, statement: str, guard: str, instead: str) -> None:
    book = book_of(store)
    for form in (statement, f"{statement}_alike"):
        if form in book:
            mutated, changes = re.subn(guard, instead, book[form].sql)
            assert changes, f"{form} has no guard {guard}"
            book[form] = replace(book[form], sql=mutated)


class Mutated(Database):
    """A database whose every store lacks a guard."""

    def __init__(self, database: Database, *mutation: str) -> None:
        super().__init__(database.kind, database.place, clock=database.clock)
        self._mutation = mutation

    def open(self, **options: Any) -> Any:
        store = super().open(**options)
        mutate(store, *self._mutation)
        return store


@pytest.mark.parametrize("mutant", WITHOUT_GUARD)
def test_a_promise_notices_when_its_guard_is_gone(store: Store, mutant: str) -> None:
    statement, guard, instead, promise = WITHOUT_GUARD[mutant]
    mutate(store, statement, guard, instead)
    with pytest.raises(BROKEN):
        promise(store)


@pytest.mark.parametrize("mutant", WITHOUT_LOCK)
@pytest.mark.parametrize("kind", ["postgres"])  # on SQLite the one writer is the lock
def test_a_promise_notices_when_its_lock_is_gone(database: Database, mutant: str) -> None:
    statement, promise = WITHOUT_LOCK[mutant]
    mutated = Mutated(database, statement, r"FOR UPDATE.*", "")
    try:
        with pytest.raises(BROKEN):
            promise(mutated)
    finally:
        mutated.close()


@pytest.fixture
def no_key(own_database: Database) -> Iterator[Database]:
    """A database without the unique key of occurrences, and stores that do not ask for it."""
    own_database.open().close()
    own_database.sql("DROP INDEX runs_occurrence")
    mutated = Mutated(own_database, "insert_runs", r"ON CONFLICT \([^)]*\) WHERE lane <> id DO NOTHING", "")
    yield mutated
    mutated.close()


def test_a_promise_notices_when_the_unique_key_is_gone(no_key: Database) -> None:
    with pytest.raises(AssertionError):
        test_runs.test_many_admitters_of_the_same_occurrences_make_each_of_them_once(no_key)


def test_a_promise_notices_when_two_may_be_in_flight(own_database: Database) -> None:
    store = own_database.open()
    own_database.sql("DROP INDEX runs_one_in_flight")
    schedule_id = new_id("schedule")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_runs.test_a_schedule_has_at_most_one_run_in_flight(
            store, schedule_id, RunState.READY, RunState.LEASED
        )


def test_the_index_is_what_keeps_two_from_being_in_flight(store: Store) -> None:
    schedule_id = new_id("schedule")
    add(store, make_run(schedule_id))
    with pytest.raises(Conflict):
        add(store, make_run(schedule_id, planned_at=NOON + HOUR))


def counted_first(gates: dict[str, Gate]) -> Take:
    """What is forbidden: the gates were counted in another transaction, before this one began."""

    def take(tx: Any, holder: str) -> list[Run]:
        return lease_planned(tx, tx.ready_runs(now=NOON, limit=AT_ONCE), gates, holder=holder)

    return take


def test_the_hammer_notices_when_leases_are_counted_before_the_gate_is_held(database: Database) -> None:
    stores = [database.open(), database.open()]
    test_gates.set_gates(stores[0], test_gates.LIMITS)
    add(stores[0], *test_gates.crowd(60))
    counted = stores[0].read(lambda tx: tx.read_gates(test_gates.LIMITS))
    assert hammer_together(stores, test_gates.LIMITS, threads=16, take=counted_first(counted))


@pytest.mark.parametrize("kind", ["postgres"])
def test_the_hammer_notices_when_the_gate_is_read_and_not_held(database: Database) -> None:
    barrier = threading.Barrier(2)

    def take(tx: Any, holder: str) -> list[Run]:
        runs = tx.ready_runs(now=NOON, limit=AT_ONCE)
        gates = tx.hold_gates({gate for run in runs for gate in run.gates})
        with suppress(threading.BrokenBarrierError):
            barrier.wait(2.0)
        return lease_planned(tx, runs, gates, holder=holder)

    mutated = Mutated(database, "hold_gates", r"FOR UPDATE.*", "")
    try:
        stores = [mutated.open(), mutated.open()]
        test_gates.set_gates(stores[0], test_gates.LIMITS)
        add(stores[0], *test_gates.crowd(60))
        assert hammer_together(stores, test_gates.LIMITS, threads=16, take=take)
    finally:
        mutated.close()
