"""Pruning by age, count and size; decided occurrences stay decided."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    admit,
    ended,
    entry,
    get_record,
    leased,
    make_progress,
    make_run,
    make_schedule,
    new_id,
    pages,
    put,
    schedule_write,
    settle,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.run.run import TERMINAL_STATES, Attempt, Run, RunState
from timewright.ports import Page, PruneRequest, RunFilter, Store
from timewright.ports.rows import RunsWithNeeds
from timewright.ports.workflow import DependencyWait


def prune(store: Store, **what: Any) -> int:
    gone: int = store.write(lambda tx: tx.prune(PruneRequest(**what)))
    return gone


def left(store: Store) -> list[str]:
    """Return the ids of all runs, oldest first."""
    return [run.id for run in reversed(store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows)]


def finished(many: int, **fields: Any) -> list[Run]:
    return [
        make_run(
            planned_at=NOON + n * MINUTE, state=RunState.SUCCEEDED, finished_at=NOON + n * MINUTE, **fields
        )
        for n in range(many)
    ]


def test_runs_older_than_an_instant_are_pruned(store: Store) -> None:
    runs = finished(10)
    add(store, *runs)
    assert prune(store, older_than=NOON + 4 * MINUTE) == 4
    assert left(store) == [run.id for run in runs[4:]]
    assert prune(store, older_than=NOON + 4 * MINUTE) == 0


def test_runs_beyond_the_count_are_pruned_oldest_first(store: Store) -> None:
    runs = finished(10)
    add(store, *runs)
    assert prune(store, keep_runs=3) == 7
    assert left(store) == [run.id for run in runs[7:]]
    assert prune(store, keep_runs=3) == 0
    assert prune(store, keep_runs=100) == 0


def test_keeping_zero_runs_deletes_all_finished_ones(store: Store) -> None:
    add(store, *finished(4))
    assert prune(store, keep_runs=0) == 4


def test_an_empty_prune_request_deletes_nothing(store: Store) -> None:
    add(store, *finished(3))
    assert prune(store) == 0
    assert len(left(store)) == 3


def test_pruning_respects_the_limit(store: Store) -> None:
    runs = finished(10)
    add(store, *runs)
    assert prune(store, keep_runs=2, limit=5) == 5
    assert left(store) == [run.id for run in runs[5:]]
    assert prune(store, keep_runs=2, limit=5) == 3


def test_pruning_by_size_stops_when_the_size_is_reached(store: Store) -> None:
    bytes_that_do_not_shrink = random.Random(1).randbytes(1000).hex()
    add(store, *finished(800, payload={"text": bytes_that_do_not_shrink}))
    assert prune(store, keep_bytes=1 << 40) == 0
    goes = 0
    while gone := prune(store, keep_bytes=1_200_000, limit=50):
        goes += gone
    assert 0 < goes < 800
    assert len(left(store)) == 800 - goes


@pytest.mark.parametrize("state", list(RunState))
def test_only_finished_runs_are_pruned(store: Store, state: RunState) -> None:
    run = make_run(state=state)
    add(store, run, *finished(2))
    prune(store, older_than=NOON + DAY)
    assert (run.id in left(store)) is (state not in TERMINAL_STATES)


def test_pruning_skips_unfinished_runs(store: Store) -> None:
    parked = [make_run(planned_at=NOON - n * MINUTE, state=RunState.PARKED) for n in range(1, 60)]
    add(store, *parked, *finished(5))
    assert prune(store, older_than=NOON + DAY, limit=10) == 5


def test_the_attempts_of_a_run_go_with_it(store: Store) -> None:
    runs = [make_run(), make_run(planned_at=NOON + HOUR)]
    add(store, *runs)
    settle(store, *(ended(run) for run in leased(store, *runs)))
    assert prune(store, older_than=NOON + HOUR) == 1
    assert list(store.read(lambda tx: tx.get_run_rows(Attempt, [run.id for run in runs]))) == [runs[1].id]


def test_pruning_a_run_deletes_its_dependency_wait(store: Store) -> None:
    schedule, (gone, kept) = make_schedule(), finished(2)
    put(store, schedule_write(schedule))
    add(store, gone, kept)
    store.write(lambda tx: tx.put_run_rows([DependencyWait(one.id, schedule.id) for one in (gone, kept)]))
    assert prune(store, keep_runs=1) == 1
    waiting = store.read(lambda tx: tx.select(RunsWithNeeds([schedule.id])))
    assert [run.id for run in waiting] == [kept.id]


def test_a_pruned_occurrence_is_never_due_again(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule, make_progress(cursor=NOON, next_at=NOON + HOUR)))
    admit(store, schedule.id, make_run(schedule.id, planned_at=NOON + HOUR, state=RunState.SUCCEEDED))
    progress = make_progress(cursor=NOON + HOUR, next_at=NOON + 2 * HOUR)
    from timewright.ports import ProgressUpdate

    store.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, progress)]))
    assert prune(store, older_than=NOON + DAY) == 1
    assert get_record(store, schedule.id).progress == progress, "the cursor stays past what is gone"
    assert store.write(lambda tx: tx.due_schedules(until=NOON + HOUR, limit=10)) == []
    (due,) = store.write(lambda tx: tx.due_schedules(until=NOON + 2 * HOUR, limit=10))
    assert due.progress.cursor >= NOON + HOUR


def test_a_history_is_listed_up_to_where_it_was_pruned(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    runs = admit(
        store,
        schedule.id,
        *(make_run(schedule.id, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(6)),
    )
    assert prune(store, older_than=NOON + 3 * HOUR) == 3
    page = store.read(lambda tx: tx.find(RunFilter(schedule_id=schedule.id)))
    assert [run.id for run in page.rows] == [run.id for run in reversed(runs[3:])]
    assert store.read(lambda tx: tx.find_occurrence(schedule.id, NOON)) is None


def test_a_run_that_ended_lately_is_not_old_however_long_it_waited(store: Store) -> None:
    run = make_run(planned_at=NOON - 30 * DAY)
    add(store, run)
    (held,) = leased(store, run, at=NOON)
    settle(store, ended(held, at=NOON + MINUTE))
    assert prune(store, older_than=NOON) == 0
    assert prune(store, older_than=NOON + MINUTE + TICK) == 1


def test_schedules_objects_and_the_audit_log_are_not_history(database: Database) -> None:
    store = database.open()
    put(store, schedule_write(make_schedule()))
    store.write(lambda tx: tx.add_audit([entry()]))
    add(store, *finished(3))
    assert prune(store, keep_runs=0, older_than=NOON + DAY, keep_bytes=0) == 3
    for table, many in (("schedules", 1), ("revisions", 1), ("audit", 1), ("runs", 0)):
        assert database.sql(f"SELECT count(*) FROM {table}") == [(many,)]


def test_pruning_a_store_that_is_empty_is_no_trouble(store: Store) -> None:
    assert prune(store, older_than=NOON, keep_runs=0, keep_bytes=0) == 0


def test_a_queue_entry_that_was_pruned_is_forgotten(store: Store) -> None:
    run_id = new_id()
    run = make_run(id=run_id, dedupe_scope=run_id, state=RunState.SUCCEEDED)
    add(store, run)
    assert prune(store, older_than=NOON + DAY) == 1
    assert store.read(lambda tx: tx.get_runs([run_id])) == {}


def test_parked_runs_are_listed_after_newer_runs_were_pruned(store: Store) -> None:
    job = make_schedule()
    put(store, schedule_write(job))
    states = (RunState.SUCCEEDED, RunState.PARKED, RunState.SUCCEEDED, RunState.PARKED, RunState.SUCCEEDED)
    times = [NOON + n * MINUTE for n in range(len(states))]
    made = [
        make_run(job.id, planned_at=at, state=state, finished_at=at)
        for at, state in zip(times, states, strict=True)
    ]
    admit(store, job.id, *made)
    parked = [run.id for run in made if run.state is RunState.PARKED][::-1]
    assert store.write(lambda tx: tx.prune(PruneRequest(older_than=NOON + HOUR))) == 3
    whole = pages(lambda cursor: _of(store, job.id, limit=10, cursor=cursor))
    assert [[run.id for run in page] for page in whole] == [parked]
    singly = pages(lambda cursor: _of(store, job.id, limit=1, cursor=cursor))
    assert [run.id for page in singly for run in page] == parked


def _of(store: Store, schedule_id: str, *, limit: int, cursor: str) -> Page:
    which = RunFilter(schedule_id=schedule_id, limit=limit, cursor=cursor)
    return store.read(lambda tx: tx.find(which))
