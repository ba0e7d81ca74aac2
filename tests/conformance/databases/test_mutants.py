"""Mutation tests: with one guard removed from the SQL or the schema, a test of this suite must fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.runs import test_leases, test_limits, test_ready, test_runs
from tests.conformance.schedules import test_due, test_schedules
from tests.conformance.support.builders import NOON, add, make_run, new_id
from tests.conformance.support.databases import Database
from tests.conformance.support.hammer import AT_ONCE, Take, hammer_from_threads, lease_planned
from timewright.core.moments import HOUR
from timewright.core.run.leasing import LimitUsage
from timewright.core.run.run import Run, RunState
from timewright.errors import Conflict, TimewrightError
from timewright.ports import Store

BROKEN = (AssertionError, TimewrightError, ValueError, pytest.fail.Exception)

NO_FENCE = (r"runs\.fence = (\S+)", r"\1 IS NOT NULL")
WITHOUT_GUARD = {
    "settle without its fence": (
        "settle_runs",
        *NO_FENCE,
        test_leases.test_a_result_of_a_lost_lease_changes_nothing,
    ),
    "lease without its fence": (
        "lease_runs",
        *NO_FENCE,
        test_leases.test_a_lease_read_under_an_older_fence_is_not_granted,
    ),
    "renew without its fence": (
        "renew_leases",
        *NO_FENCE,
        test_leases.test_only_renewals_with_a_matching_fence_are_returned,
    ),
    "lease that does not move the fence": (
        "lease_runs",
        r"fence = runs\.fence \+ 1",
        "fence = runs.fence",
        test_leases.test_the_fence_rises_by_one_with_every_lease_and_never_falls,
    ),
    "lease in any state": (
        "lease_runs",
        r"runs\.state \|\| '' = 'ready'",
        "runs.state <> ''",
        lambda store: test_leases.test_a_run_that_is_not_ready_is_not_leased(store, RunState.PARKED),
    ),
    "change without its state": (
        "change_runs",
        r"runs\.state = (\S+)",
        r"\1 IS NOT NULL",
        test_leases.test_a_change_needs_the_same_state_and_fence,
    ),
    "change of a leased run": (
        "change_runs",
        r"AND \S+ <> 'leased'",
        "",
        test_leases.test_a_leased_run_is_never_rewritten,
    ),
    "edit without its revision": (
        "revise_schedules",
        r"schedules\.revision = (\S+)",
        r"\1 IS NOT NULL",
        test_schedules.test_an_edit_of_a_revision_that_is_not_the_last_is_a_conflict_and_changes_nothing,
    ),
    "limit holds that are never deleted": (
        "delete_limit_holds",
        r"WHERE ",
        "WHERE 1 = 0 AND ",
        test_limits.test_a_limit_counts_leases_from_grant_to_end,
    ),
    "deferred runs that wake too early": (
        "wake_deferred_runs",
        r"fire_at <= \S+",
        "fire_at <= 4102444800000000",
        test_ready.test_only_deferred_runs_that_are_due_wake,
    ),
}
WITHOUT_LOCK = {
    "due schedules": (
        "due_schedules",
        test_due.test_two_claimers_at_the_same_time_never_get_the_same_schedule,
    ),
    "limits": ("lock_limits", test_limits.test_a_locked_limit_blocks_other_transactions),
}


def statements_of(store: Any) -> dict[str, Any]:
    """The statements of a store's writing executor."""
    return store._writer._statements if hasattr(store, "_writer") else store._statements


def mutate(store: Store, statement: str, guard: str, instead: str) -> None:
    statements = statements_of(store)
    for form in (statement, f"{statement}_shared"):
        if form in statements:
            mutated, changes = re.subn(guard, instead, statements[form].sql)
            assert changes, f"{form} has no guard {guard}"
            statements[form] = replace(statements[form], sql=mutated)


class Mutated(Database):
    """A database whose stores all lack a guard."""

    def __init__(self, database: Database, *mutation: str) -> None:
        super().__init__(database.kind, database.place, clock=database.clock)
        self._mutation = mutation

    def open(self, **options: Any) -> Any:
        store = super().open(**options)
        mutate(store, *self._mutation)
        return store


@pytest.mark.parametrize("mutant", WITHOUT_GUARD)
def test_the_suite_fails_without_a_guard(store: Store, mutant: str) -> None:
    statement, guard, instead, promise = WITHOUT_GUARD[mutant]
    mutate(store, statement, guard, instead)
    with pytest.raises(BROKEN):
        promise(store)


@pytest.mark.parametrize("mutant", WITHOUT_LOCK)
@pytest.mark.parametrize("kind", ["postgres"])  # on SQLite the one writer is the lock
def test_the_suite_fails_without_a_row_lock(database: Database, mutant: str) -> None:
    statement, promise = WITHOUT_LOCK[mutant]
    mutated = Mutated(database, statement, r"FOR UPDATE.*", "")
    try:
        with pytest.raises(BROKEN):
            promise(mutated)
    finally:
        mutated.close()


@pytest.fixture
def without_unique_index(own_database: Database) -> Iterator[Database]:
    """A database without the unique index of occurrences, and stores whose inserts do not use it."""
    own_database.open().close()
    own_database.sql("DROP INDEX runs_occurrence")
    clause = r"ON CONFLICT \([^)]*\) WHERE dedupe_scope <> id DO NOTHING"
    mutated = Mutated(own_database, "insert_runs", clause, "")
    yield mutated
    mutated.close()


def test_the_suite_fails_without_the_unique_index(without_unique_index: Database) -> None:
    with pytest.raises(AssertionError):
        test_runs.test_many_admitters_of_the_same_occurrences_make_each_of_them_once(without_unique_index)


def test_the_suite_fails_when_two_may_be_in_flight(own_database: Database) -> None:
    store = own_database.open()
    own_database.sql("DROP INDEX runs_one_in_flight")
    schedule_id = new_id("schedule")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_runs.test_a_schedule_has_at_most_one_run_in_flight(
            store, schedule_id, RunState.READY, RunState.LEASED
        )


def test_the_unique_index_admits_only_one_run_in_flight(store: Store) -> None:
    schedule_id = new_id("schedule")
    add(store, make_run(schedule_id))
    with pytest.raises(Conflict):
        add(store, make_run(schedule_id, planned_at=NOON + HOUR))


def count_before(limits: dict[str, LimitUsage]) -> Take:
    """A wrong way to lease: the limits were counted in an earlier transaction."""

    def take(tx: Any, holder: str) -> list[Run]:
        return lease_planned(tx, tx.ready_runs(now=NOON, limit=AT_ONCE), limits, holder=holder)

    return take


def test_the_stress_test_fails_when_leases_are_counted_before_the_limit_is_locked(database: Database) -> None:
    stores = [database.open(), database.open()]
    test_limits.set_limits(stores[0], test_limits.LIMITS)
    add(stores[0], *test_limits.crowd(60))
    counted = stores[0].read(lambda tx: tx.get_limits(test_limits.LIMITS))
    assert hammer_from_threads(stores, test_limits.LIMITS, threads=16, take=count_before(counted))


@pytest.mark.parametrize("kind", ["postgres"])
def test_the_stress_test_fails_when_limits_are_read_without_a_lock(database: Database) -> None:
    barrier = threading.Barrier(2)

    def take(tx: Any, holder: str) -> list[Run]:
        runs = tx.ready_runs(now=NOON, limit=AT_ONCE)
        limits = tx.get_limits({key for run in runs for key in run.limit_keys}, lock=True)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(2.0)
        return lease_planned(tx, runs, limits, holder=holder)

    mutated = Mutated(database, "lock_limits", r"FOR UPDATE.*", "")
    try:
        stores = [mutated.open(), mutated.open()]
        test_limits.set_limits(stores[0], test_limits.LIMITS)
        add(stores[0], *test_limits.crowd(60))
        assert hammer_from_threads(stores, test_limits.LIMITS, threads=16, take=take)
    finally:
        mutated.close()
