"""Transactions: atomicity, snapshots, concurrency and translated errors."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    entry,
    get,
    get_record,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
    stored,
)
from tests.conformance.support.concurrency import TIMEOUT_S, all_at_once, held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.core.run.run import Run, RunState
from timewright.errors import OutcomeUnknown, StoreReadOnly, StoreUnavailable
from timewright.ports import ProgressUpdate, PruneRequest, RunFilter, ScheduleFilter, Store
from timewright.ports.rows import AuditFilter, LeasedRuns
from timewright.stores.sqlite import store as sqlite


class Stop(Exception):
    """Raised by a test inside a transaction."""


def count(store: Store) -> int:
    return len(store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows)


def test_work_that_raises_changes_nothing_and_its_error_comes_through(store: Store) -> None:
    schedule, run = make_schedule(), make_run()

    def work(tx: Any) -> None:
        tx.put_schedules([schedule_write(schedule)])
        tx.add_runs([run])
        tx.put_objects([stored("calendar")])
        tx.add_audit([entry()])
        tx.set_limits({"limit:default/x": 3})
        raise Stop

    with pytest.raises(Stop):
        store.write(work)
    assert count(store) == 0
    assert store.read(lambda tx: tx.find(ScheduleFilter())).rows == ()
    assert store.read(lambda tx: tx.get_objects("calendar")) == []
    assert store.read(lambda tx: tx.find(AuditFilter())).rows == ()
    assert store.read(lambda tx: tx.check_audit()).entries == 0


@pytest.mark.parametrize("stops", [False, True])
def test_prepared_writes_are_invisible_until_committed(database: Database, *, stops: bool) -> None:
    store, other = database.open(), database.open()
    add(store, make_run())

    def wait(*_: Any, **__: Any) -> None:
        assert count(other) == 1
        if stops:
            raise Stop

    store._commit_timer.wait = wait
    if stops:
        with pytest.raises(Stop):
            store.write(lambda tx: tx.add_runs([make_run()]), commit_at=NOON)
    else:
        store.write(lambda tx: tx.add_runs([make_run()]), commit_at=NOON)
    assert count(other) == count(store) == (1 if stops else 2)


def test_a_store_works_on_after_work_that_raised(store: Store) -> None:
    for _ in range(20):
        with pytest.raises(Stop):
            store.write(_add_and_stop)
        with pytest.raises(Stop):
            store.read(lambda tx: _stop())
    add(store, make_run())
    assert count(store) == 1


def _add_and_stop(tx: Any) -> None:
    tx.add_runs([make_run()])
    raise Stop


def _add(run: Run, tx: Any) -> None:
    tx.add_runs([run])


def _stop() -> None:
    raise Stop


def test_even_an_interrupt_leaves_nothing_half_done(store: Store) -> None:
    def work(tx: Any) -> None:
        tx.add_runs([make_run()])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write(work)
    assert count(store) == 0
    add(store, make_run())
    assert count(store) == 1


def test_write_and_read_return_the_result_of_the_work(store: Store) -> None:
    assert store.write(lambda tx: {"a": [1, None]}) == {"a": [1, None]}
    assert store.read(lambda tx: None) is None


def test_a_transaction_sees_its_own_writes(store: Store) -> None:
    run = make_run()

    def work(tx: Any) -> None:
        tx.add_runs([run])
        assert tx.get_runs([run.id]) == {run.id: run}
        assert tx.ready_runs(now=NOON, limit=5) == [run]

    store.write(work)


def test_a_transaction_is_invisible_before_its_commit(database: Database) -> None:
    one, two = database.open(), database.open()
    run = make_run()
    with held_open(one, lambda tx: tx.add_runs([run])) as held:
        assert two.read(lambda tx: tx.get_runs([run.id])) == {}
        assert one.read(lambda tx: tx.get_runs([run.id])) == {}
        held.release()
        assert two.read(lambda tx: tx.get_runs([run.id])) == {run.id: run}


def test_a_read_sees_one_snapshot(database: Database) -> None:
    one, two = database.open(), database.open()
    schedule = make_schedule()
    put(one, schedule_write(schedule, make_progress(runs=1)))
    looked, written = threading.Event(), threading.Event()

    def look(tx: Any) -> list[int]:
        first = tx.get_schedules([schedule.id])[schedule.id].progress.runs
        looked.set()
        assert written.wait(TIMEOUT_S)
        return [
            first,
            tx.get_schedules([schedule.id])[schedule.id].progress.runs,
            len(tx.select(LeasedRuns())),
        ]

    with meanwhile(lambda: one.read(look)) as reading:
        assert looked.wait(TIMEOUT_S)
        two.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, make_progress(runs=2))]))
        run = make_run()
        add(two, run)
        leased(two, run)
        written.set()
        assert reading.result(TIMEOUT_S) == [1, 1, 0]
    assert get_record(one, schedule.id).progress.runs == 2


WRITES = {
    "put_schedules": lambda tx: tx.put_schedules([schedule_write(make_schedule())]),
    "save_progress": lambda tx: tx.save_progress([ProgressUpdate("sch_x", make_progress())]),
    "add_runs": lambda tx: tx.add_runs([make_run()]),
    "set_limits": lambda tx: tx.set_limits({"limit:default/x": 1}),
    "put_objects": lambda tx: tx.put_objects([stored("a")]),
    "delete_object": lambda tx: tx.delete_object("calendar", namespace="default", name="a"),
    "add_audit": lambda tx: tx.add_audit([entry()]),
    "put_meta": lambda tx: tx.put_meta("a", "b"),
    "ready_runs_of_bucket": lambda tx: tx.ready_runs(now=NOON + HOUR, limit=1),
    "prune": lambda tx: tx.prune(PruneRequest(older_than=NOON + HOUR)),
}


@pytest.mark.parametrize("verb", WRITES)
def test_a_read_cannot_write(store: Store, verb: str) -> None:
    add(store, make_run(state=RunState.SUCCEEDED), make_run(fire_at=NOON + HOUR))
    with pytest.raises(StoreReadOnly):
        store.read(WRITES[verb])
    assert count(store) == 2


def test_a_hundred_writers_at_once_all_get_their_own_answer(store: Store) -> None:
    runs = [make_run() for _ in range(100)]
    answers = all_at_once([partial(add, store, run) for run in runs])
    assert answers == [{run.id} for run in runs]
    assert count(store) == 100


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_group_commit_continues_until_every_waiting_write_is_done(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_GROUP_COMMITS", 2)
    first = [make_run() for _ in range(5)]
    for run in first:
        store._waiting.append(sqlite._WriteJob(partial(_add, run)))
    last = make_run()
    assert add(store, last) == {last.id}
    assert count(store) == 6


def test_one_failing_write_of_a_group_fails_alone(store: Store) -> None:
    def fail(tx: Any) -> None:
        tx.add_runs([make_run()])
        raise Stop

    good = [make_run() for _ in range(20)]
    works: list[Any] = [partial(add, store, run) for run in good]
    works[5:5] = [lambda: store.write(fail)] * 5
    answers = all_at_once(works)
    assert sum(isinstance(answer, Stop) for answer in answers) == 5
    assert [answer for answer in answers if not isinstance(answer, Stop)] == [{run.id} for run in good]
    assert count(store) == 20


def test_readers_and_writers_do_not_wait_for_each_other(database: Database) -> None:
    store = database.open()
    run = make_run()
    add(store, run)
    with held_open(store, lambda tx: tx.add_runs([make_run()])):
        answers = all_at_once([lambda: get(store, run.id)] * 4)
    assert answers == [run] * 4


def test_committed_rows_survive_reopening(database: Database) -> None:
    first = database.open()
    run = make_run()
    add(first, run)
    first.close()
    assert get(database.open(), run.id) == run


def test_a_closed_store_raises(database: Database) -> None:
    store = database.open()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.write(lambda tx: tx.add_runs([make_run()]))
    with pytest.raises(StoreUnavailable):
        store.read(lambda tx: tx.read_pending_work().wake_at)
    store.close()


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_connection_lost_in_a_transaction_rolls_back_and_the_next_one_works(store: Store) -> None:
    def cut(tx: Any) -> None:
        tx.add_runs([make_run()])
        tx._query.__self__._connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailable):
        store.write(cut)
    assert count(store) == 0
    add(store, make_run())
    assert count(store) == 1


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_connection_lost_at_commit_raises_outcome_unknown(own_database: Database) -> None:
    store = own_database.open()
    own_database.sql(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'"
    )
    own_database.sql(
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION cut()"
    )
    with pytest.raises(OutcomeUnknown) as caught:
        add(store, make_run())
    assert "read" in str(caught.value.fix)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_deadlock_is_tried_again_from_the_start(database: Database) -> None:
    one, two = database.open(), database.open()
    first, second = make_schedule("first"), make_schedule("second")
    put(one, schedule_write(first), schedule_write(second))
    meeting = threading.Barrier(2)
    tries: list[int] = []

    def crossed(store: Store, mine: str, theirs: str) -> None:
        def work(tx: Any) -> None:
            tries.append(1)
            tx.get_schedules([mine], lock=True)
            if len(tries) <= 2:
                meeting.wait(TIMEOUT_S)
            tx.get_schedules([theirs], lock=True)

        store.write(work)

    answers = all_at_once(
        [lambda: crossed(one, first.id, second.id), lambda: crossed(two, second.id, first.id)]
    )
    assert answers == [None, None]
    assert len(tries) > 2


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_commit_is_synchronous_whatever_the_server_default(database: Database) -> None:
    store = database.open()
    assert database.sql("SHOW synchronous_commit") == [("off",)]

    def asked(tx: Any) -> Any:
        tx.get_meta("anything")  # a transaction begins with its first statement
        return tx._query.__self__._connection.execute("SHOW synchronous_commit").fetchone()[0]

    assert store.write(asked) == "on"
