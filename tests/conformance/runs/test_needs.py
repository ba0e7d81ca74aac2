"""Needs and offers: an instance reads only runs that it can start."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import apsw
import psycopg
import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    get_record,
    grant,
    make_progress,
    make_run,
    make_schedule,
    queued,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.needs import LeaseOffer, Needs, Offer
from timewright.core.run.run import Run
from timewright.ports import Store
from timewright.ports.rows import FirstReadyRuns
from timewright.ports.schedules import SetAsideSchedules
from timewright.stores.postgres.connection import PLANNER_SETTINGS
from timewright.stores.queries.ready_runs import MAX_PROBED_BUCKETS, MIN_LARGE_LEASE
from timewright.stores.statements import POSTGRES, SQLITE, load_statements

SEND, CLEAN = ("call:send",), ("call:clean",)
SENDER = LeaseOffer(offer=Offer(functions=("send",)))


def ready(store: Store, offer: LeaseOffer, *, limit: int = 100) -> list[str]:
    return [run.id for run in store.write(lambda tx: tx.ready_runs(now=NOON, limit=limit, offer=offer))]


def has_ready(store: Store, offer: LeaseOffer) -> bool:
    return store.read(lambda tx: tx.read_pending_work(holder="w0", offer=offer)).has_ready_runs


def ids(*runs: Run) -> list[str]:
    return [run.id for run in runs]


def test_a_run_keeps_its_needs(store: Store) -> None:
    run = queued(needs=("call:send", "label:gpu", "queue:mail"))
    add(store, run)
    assert store.read(lambda tx: tx.get_runs([run.id]))[run.id] == run
    assert store.write(lambda tx: tx.ready_runs(now=NOON, limit=5)) == [run]


def test_only_runs_that_an_instance_can_run_are_ready_for_it(store: Store) -> None:
    mine, other, plain = make_run(needs=SEND), make_run(needs=CLEAN), make_run()
    add(store, mine, other, plain)
    assert sorted(ready(store, SENDER)) == ids(mine, plain)
    assert ready(store, LeaseOffer(offer=Offer(functions=("clean",), queues=("mail",)))) == []
    assert has_ready(store, SENDER)


def test_pending_work_ignores_runs_that_an_instance_cannot_start(store: Store) -> None:
    add(store, make_run(needs=CLEAN))
    assert not has_ready(store, SENDER)
    add(store, make_run(needs=SEND))
    assert has_ready(store, SENDER)
    full = LeaseOffer(
        offer=SENDER.offer, free={"process": 0}, slot_of=lambda needs: "process" if needs else ""
    )
    assert not has_ready(store, full)


def test_runs_of_several_buckets_come_in_one_order(store: Store) -> None:
    runs = [
        make_run(needs=SEND if number % 2 else CLEAN, priority=number % 5, planned_at=NOON - number * MINUTE)
        for number in range(40)
    ]
    add(store, *runs)
    both = LeaseOffer(offer=Offer(functions=("send", "clean")))
    best = sorted(runs, key=lambda run: (run.priority, run.planned_at, run.id))[:7]
    assert sorted(ready(store, both, limit=7)) == sorted(ids(*best))


def test_a_crowded_bucket_is_read_as_far_as_its_runs_are_the_best(store: Store) -> None:
    urgent = [make_run(needs=SEND, priority=1) for _ in range(70)]
    others = [make_run(needs=(f"call:f{number}",), priority=9) for number in range(40) for _ in range(3)]
    add(store, *others, *urgent)
    every = LeaseOffer(offer=Offer(functions=("send", *(f"f{number}" for number in range(40)))))
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=75, offer=every))
    assert {run.id for run in urgent} <= {run.id for run in found}
    assert len(found) == 75


def test_runs_are_read_up_to_the_free_slots_of_each_kind(store: Store) -> None:
    add(store, *(make_run(needs=SEND) for _ in range(9)), *(make_run() for _ in range(9)))

    def slot_of(needs: Needs) -> str:
        return "process" if needs else ""

    offer = LeaseOffer(offer=SENDER.offer, free={"process": 2}, slot_of=slot_of)
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=6, offer=offer))
    # One more than can start says that others wait.
    assert [sum(run.needs == needs for run in found) for needs in (SEND, ())] == [3, 6]


def test_a_new_bucket_of_another_process_is_seen_at_once(database: Database) -> None:
    here, there = database.open(), database.open()
    assert not has_ready(here, SENDER)
    run = make_run(needs=SEND)
    add(there, run)
    assert has_ready(here, SENDER)
    assert ready(here, SENDER) == [run.id]


def test_a_bucket_of_a_transaction_that_was_undone_is_registered_again(store: Store) -> None:
    def fails(tx: Any) -> None:
        tx.add_runs([make_run(needs=SEND)])
        assert tx.ready_runs(now=NOON, limit=5, offer=SENDER)
        raise KeyError

    with pytest.raises(KeyError):
        store.write(fails)
    run = make_run(needs=SEND)
    add(store, run)
    assert ready(store, SENDER) == [run.id]


def test_many_buckets_are_served(store: Store) -> None:
    names = [f"f{number}" for number in range(MAX_PROBED_BUCKETS + 50)]
    runs = [make_run(needs=(f"call:{name}",)) for name in names]
    add(store, *runs, make_run(needs=CLEAN))
    offer = LeaseOffer(offer=Offer(functions=tuple(names)))
    assert has_ready(store, offer)
    assert sorted(ready(store, offer, limit=1000)) == ids(*runs)
    store.write(lambda tx: tx.lease_runs([grant(run) for run in runs]))
    assert not has_ready(store, offer)


def test_the_first_ready_run_of_each_set_of_needs_is_found(store: Store) -> None:
    first, second, other = make_run(needs=SEND), make_run(needs=SEND), make_run(needs=CLEAN)
    add(store, first, second, other, make_run())
    assert store.read(lambda tx: sorted(run.id for run in tx.select(FirstReadyRuns()))) == ids(first, other)


def test_a_schedule_that_nobody_can_run_is_set_aside_until_someone_can(store: Store) -> None:
    schedule = make_schedule()
    store.write(lambda tx: tx.put_schedules([schedule_write(schedule, make_progress(next_at=NOON))]))
    store.write(lambda tx: tx.set_aside([(schedule.id, SEND)], until=NOON + HOUR))
    assert store.write(lambda tx: tx.due_schedules(until=NOON, limit=5)) == []
    assert [one.id for one in store.read(lambda tx: tx.select(SetAsideSchedules(5)))] == [schedule.id]
    assert get_record(store, schedule.id).progress.next_at == NOON

    def wake(offer: LeaseOffer) -> int:
        pending = store.read(lambda tx: tx.read_pending_work(offer=offer, with_held=True))
        woken = store.write(lambda tx: tx.wake_waiting_schedules(offer, now=NOON + MINUTE))
        assert pending.has_wakeable_schedules is bool(woken)
        return woken

    assert wake(LeaseOffer(offer=Offer(functions=("clean",)))) == 0
    assert wake(SENDER) == 1
    assert wake(SENDER) == 0
    (due,) = store.write(lambda tx: tx.due_schedules(until=NOON + MINUTE, limit=5))
    assert due.schedule.id == schedule.id


# 5,000 copies of every run that waits for another function.
COPIES = """
INSERT INTO runs
    (id, namespace, dedupe_scope, planned_at, fire_at, state, ready_bucket, exclusive, created_at, extra)
SELECT r.id || '-' || n, r.namespace, r.id || '-' || n, r.planned_at, r.fire_at, r.state, r.ready_bucket, 0,
    r.created_at, r.extra
FROM runs r, {numbers} WHERE r.ready_bucket LIKE '%other%'
"""
NUMBERS = {
    "sqlite": "(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 5000) SELECT n FROM c)",
    "postgres": "generate_series(1, 5000) AS n",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_leasing_reads_no_row_of_another_bucket(own_database: Database, kind: str) -> None:
    """By counted rows and by the plans of its queries, while 100,000 runs wait for 20 other functions."""
    store = own_database.open()
    add(store, *(make_run(needs=SEND) for _ in range(3)))
    count = rows_read_by_leasing if kind == "postgres" else steps_of_leasing
    few = [count(store), count(store)][1]
    add(store, *(make_run(needs=(f"call:other{number}",)) for number in range(20)))
    own_database.sql(COPIES.format(numbers=NUMBERS[kind]))
    # As autovacuum does; without statistics PostgreSQL takes the table for a tiny one.
    own_database.sql("ANALYZE runs")
    assert own_database.sql("SELECT count(*) FROM runs WHERE state = 'ready'") == [(100_023,)]
    count(store)
    assert count(store) == few
    plans = plans_of_leasing(own_database, store)
    read = [step for step in plans if re.search(r"(SCAN|SEARCH) (runs|r)\b|Scan .*on runs", step)]
    assert read
    by_bucket = re.compile(r"runs_ready .*ready_bucket ?= ?|runs_deferred|runs_pkey")
    assert all(map(by_bucket.search, read)), "\n".join(plans)


def plans_of_leasing(database: Database, store: Any) -> list[str]:
    """The plan of each query of one leasing; PostgreSQL's conditions stand behind their scan."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def work(tx: Any) -> None:
        query = tx._query

        def record(name: str, given: dict[str, Any]) -> Any:
            asked.append((name, given))
            return query(name, given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tx, "_query", record)
            tx.ready_runs(now=NOON, limit=100, offer=SENDER)

    store.write(work)
    if database.kind == "sqlite":
        statements = load_statements(SQLITE)
        with closing(apsw.Connection(database.place)) as connection:
            plans = [
                connection.execute(f"EXPLAIN QUERY PLAN {statements[name].sql}", given).fetchall()
                for name, given in asked
            ]
        return [str(row[3]) for plan in plans for row in plan]
    with psycopg.connect(database.place) as session:
        for setting in PLANNER_SETTINGS:
            session.execute(f"SET {setting}".encode())
        sql = load_statements(POSTGRES)
        plans = [
            session.execute(f"EXPLAIN {sql[name].sql}".encode(), given).fetchall() for name, given in asked
        ]
    lines = "\n".join(str(row[0]) for plan in plans for row in plan)
    return re.sub(r"\n\s+(?=Index Cond|Filter)", " ", lines).splitlines()


def steps_of_leasing(store: Any) -> int:
    """The steps that SQLite executes for the reads of one leasing."""
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection = store._writer.connection
    connection.set_progress_handler(step, 1)
    try:
        assert len(ready(store, SENDER)) == 3
    finally:
        connection.set_progress_handler(None)
    return steps


def rows_read_by_leasing(store: Any) -> int:
    """The rows of `runs` that PostgreSQL fetches for the reads of one leasing."""

    sql = b"SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'runs'"

    def work(tx: Any) -> int:
        count = tx._executor._connection.query_int
        before = count(sql)
        assert len(tx.ready_runs(now=NOON, limit=100, offer=SENDER)) == 3
        return int(count(sql) - before)

    return store.write(work)


@pytest.mark.parametrize("kind", ["postgres"])
def test_large_leases_are_made_one_after_another(store: Store, database: Database) -> None:
    add(store, *(make_run(needs=SEND) for _ in range(5)))
    turn = "SELECT pg_try_advisory_xact_lock(hashtext('timewright.leasing'))"

    with psycopg.connect(database.place) as other:

        def others_may_lease(limit: int) -> bool:
            def work(tx: Any) -> bool:
                tx.ready_runs(now=NOON, limit=limit, offer=SENDER)
                (row,) = other.execute(turn).fetchall()
                other.rollback()
                return bool(row[0])

            return store.write(work)

        assert not others_may_lease(MIN_LARGE_LEASE)
        assert others_may_lease(MIN_LARGE_LEASE - 1)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_process_that_is_suspended_while_it_leases_keeps_nobody_from_leasing(
    store: Store, database: Database
) -> None:
    runs = [make_run(needs=SEND) for _ in range(5)]
    add(store, *runs)

    with psycopg.connect(database.place) as suspended:
        suspended.execute("SELECT pg_advisory_xact_lock(hashtext('timewright.leasing'))")
        assert ready(store, SENDER, limit=MIN_LARGE_LEASE) == ids(*runs)
