"""Runs: one row per occurrence, added once, never two in flight."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    admit,
    ended,
    get,
    leased,
    make_run,
    make_schedule,
    new_id,
    put,
    queued,
    schedule_write,
    settle,
)
from tests.conformance.support.concurrency import all_at_once
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.admission import InFlightCounts
from timewright.core.run.run import Run, RunState
from timewright.errors import Conflict
from timewright.ports import RunChange, RunFilter, Store, Transaction
from timewright.ports.rows import LiveRuns, ReleasableRuns, RunsBesideOccurrence
from timewright.stores.queries.runs import SqlRunQueries


def find(store: Store, **which: Any) -> list[str]:
    return [run.id for run in store.read(lambda tx: tx.find(RunFilter(**which))).rows]


def by_hand(many: int) -> list[Run]:
    ids = [new_id() for _ in range(many)]
    return [make_run(id=run_id, dedupe_scope=run_id, exclusive=False) for run_id in ids]


def occurrence(store: Store, schedule_id: str, at: datetime) -> Run | None:
    return store.read(lambda tx: tx.find_occurrence(schedule_id, at))


def test_the_runs_of_an_instant_beside_its_occurrence_are_found(store: Store, nightly: str) -> None:
    own, backfilled = make_run(nightly), make_run(nightly, dedupe_scope="backfill:bf_1", exclusive=False)
    manual_id = new_id()
    manual = make_run(nightly, id=manual_id, dedupe_scope=manual_id, exclusive=False)
    later = make_run(nightly, dedupe_scope="backfill:bf_1", planned_at=NOON + TICK, exclusive=False)
    add(store, own, backfilled, manual, later)
    which = RunsBesideOccurrence(schedule_id=nightly, planned_at=NOON)
    found = store.read(lambda tx: tx.select(which))
    assert found == sorted([backfilled, manual], key=attrgetter("id"))


@pytest.mark.parametrize("many", [0, 1, 300])
def test_runs_are_added_many_at_a_time_and_all_of_them_are_new(store: Store, many: int) -> None:
    runs = [make_run() for _ in range(many)]
    assert add(store, *runs) == {run.id for run in runs}
    assert store.read(lambda tx: tx.get_runs([run.id for run in runs])) == {run.id: run for run in runs}


def test_a_run_that_does_not_exist_is_left_out(store: Store) -> None:
    run = make_run()
    add(store, run)
    assert list(store.read(lambda tx: tx.get_runs([new_id(), run.id]))) == [run.id]
    assert list(store.write(lambda tx: tx.get_runs([new_id(), run.id], lock=True))) == [run.id]
    assert store.read(lambda tx: tx.get_runs([])) == {}


def test_the_same_occurrence_twice_is_an_ordinary_already_there(store: Store, nightly: str) -> None:
    first, second = make_run(nightly), make_run(nightly)
    assert add(store, first) == {first.id}
    assert add(store, second) == set()
    assert get(store, first.id) == first
    assert store.read(lambda tx: tx.get_runs([second.id])) == {}


def test_the_same_occurrence_twice_in_one_batch_is_one_run(store: Store, nightly: str) -> None:
    first, second = make_run(nightly), make_run(nightly)
    assert add(store, first, second) == {first.id}


def test_only_the_new_ones_of_a_batch_are_given_back(store: Store, nightly: str) -> None:
    runs = [make_run(nightly, planned_at=NOON + n * HOUR, state=RunState.HELD) for n in range(5)]
    add(store, runs[1], runs[3])
    again = [replace(run, id=new_id()) for run in runs]
    assert add(store, *again) == {again[0].id, again[2].id, again[4].id}


@pytest.mark.parametrize("state", list(RunState))
def test_an_occurrence_is_admitted_once_whatever_its_state(
    store: Store, nightly: str, state: RunState
) -> None:
    add(store, make_run(nightly, state=state))
    assert add(store, make_run(nightly)) == set()


def test_occurrences_a_microsecond_apart_are_two(store: Store, nightly: str) -> None:
    one, two = make_run(nightly, state=RunState.HELD), make_run(nightly, planned_at=NOON + TICK)
    assert len(add(store, one, two)) == 2


def test_the_same_instant_of_two_schedules_is_two_occurrences(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, schedule_write(other))
    assert len(add(store, make_run(nightly), make_run(other.id))) == 2


def test_a_run_with_its_own_dedupe_scope_exists_beside_the_occurrence(store: Store, nightly: str) -> None:
    run_id = new_id()
    occurrence = make_run(nightly)
    by_hand = make_run(nightly, id=run_id, dedupe_scope=run_id, exclusive=False)
    assert add(store, occurrence, by_hand) == {occurrence.id, by_hand.id}


def test_two_runs_cannot_have_one_id(store: Store) -> None:
    run = make_run()
    add(store, run)
    with pytest.raises(Conflict):
        add(store, replace(run, planned_at=NOON + HOUR, dedupe_scope="another"))


@pytest.mark.parametrize("many", [0, 1, 600])
def test_unique_runs_are_visible_to_the_next_query(store: Store, many: int) -> None:
    def added(tx: Transaction, runs: list[Run]) -> dict[str, Run]:
        for start in range(0, many, 200):
            tx.add_runs(runs[start : start + 200])
        return tx.get_runs([run.id for run in runs])

    def got(tx: Transaction, runs: list[Run]) -> dict[str, Run]:
        return tx.get_runs([run.id for run in runs])

    for runs in (by_hand(many), by_hand(many)):  # the second time the server has prepared the statement
        assert store.write(partial(added, runs=runs)) == {run.id: run for run in runs}
        assert store.read(partial(got, runs=runs)) == {run.id: run for run in runs}


@pytest.mark.parametrize("many", [1, 600])
@pytest.mark.parametrize("asks", [True, False])
def test_adding_an_existing_unique_run_fails_the_transaction(store: Store, many: int, asks: bool) -> None:
    there, other, last = by_hand(many), by_hand(many), by_hand(1)
    store.write(lambda tx: tx.add_runs(there))

    def work(tx: Transaction) -> None:
        tx.add_runs(other)
        tx.add_runs(there)
        if asks:
            tx.find(RunFilter())

    with pytest.raises(Conflict):
        store.write(work)
    store.write(lambda tx: tx.add_runs(last))
    assert set(find(store, limit=1000)) == {run.id for run in (*there, *last)}


def test_a_rolled_back_transaction_leaves_no_unique_runs(store: Store) -> None:
    store.write(lambda tx: tx.add_runs(by_hand(600)))
    before = set(find(store, limit=1000))

    def work(tx: Transaction) -> None:
        tx.add_runs(by_hand(600))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(work)
    assert set(find(store, limit=1000)) == before


def test_many_admitters_of_the_same_occurrences_make_each_of_them_once(database: Database) -> None:
    schedule = make_schedule()
    stores = [database.open() for _ in range(3)]
    put(stores[0], schedule_write(schedule))
    batches = [
        [make_run(schedule.id, planned_at=NOON + n * MINUTE, exclusive=False) for n in range(20)]
        for _ in range(12)
    ]
    answers = all_at_once([partial(add, stores[n % 3], *batch) for n, batch in enumerate(batches)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert sum(len(answer) for answer in answers) == 20
    assert database.sql("SELECT count(*), count(DISTINCT planned_at) FROM runs") == [(20, 20)]


@pytest.mark.parametrize("live", [RunState.READY, RunState.LEASED])
@pytest.mark.parametrize("second", [RunState.READY, RunState.LEASED])
def test_a_schedule_has_at_most_one_run_in_flight(
    store: Store, nightly: str, live: RunState, second: RunState
) -> None:
    add(store, make_run(nightly, state=live))
    with pytest.raises(Conflict):
        add(store, make_run(nightly, planned_at=NOON + HOUR, state=second))
    assert [run.state for run in store.read(lambda tx: tx.select(LiveRuns([nightly])))] == [live]


@pytest.mark.parametrize(
    "done",
    [
        RunState.HELD,
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.PARKED,
        RunState.SKIPPED,
        RunState.CANCELLED,
    ],
)
def test_a_finished_run_lets_the_next_one_in(store: Store, nightly: str, done: RunState) -> None:
    add(store, make_run(nightly, state=done))
    assert len(add(store, make_run(nightly, planned_at=NOON + HOUR))) == 1


def test_runs_that_may_overlap_are_in_flight_together(store: Store, nightly: str) -> None:
    runs = [make_run(nightly, planned_at=NOON + n * HOUR, exclusive=False) for n in range(3)]
    assert len(add(store, *runs)) == 3


def test_queue_entries_are_never_in_each_others_way(store: Store) -> None:
    assert len(add(store, *(queued() for _ in range(5)))) == 5


def test_a_held_run_cannot_become_ready_while_another_is_in_flight(store: Store, nightly: str) -> None:
    live = make_run(nightly)
    waiting = make_run(nightly, planned_at=NOON + HOUR, state=RunState.HELD)
    add(store, live, waiting)
    ready = RunChange(replace(waiting, state=RunState.READY), RunState.HELD, 0)
    with pytest.raises(Conflict):
        store.write(lambda tx: tx.change_runs([ready]))
    settle(store, ended(leased(store, live)[0]))
    assert store.write(lambda tx: tx.change_runs([ready])) == {waiting.id}


def test_a_failed_admission_leaves_nothing_of_its_batch(store: Store, nightly: str) -> None:
    add(store, make_run(nightly))
    batch = [make_run(), make_run(nightly, planned_at=NOON + HOUR), make_run()]
    with pytest.raises(Conflict):
        add(store, *batch)
    assert store.read(lambda tx: tx.get_runs([run.id for run in batch])) == {}


def test_in_flight_runs_are_counted_for_many_schedules(store: Store) -> None:
    schedules = [make_schedule(f"s{n}") for n in range(4)]
    put(store, *(schedule_write(s) for s in schedules))
    a, b, c, d = (s.id for s in schedules)
    add(
        store,
        make_run(a),
        make_run(a, planned_at=NOON + HOUR, state=RunState.HELD),
        make_run(a, planned_at=NOON + 2 * HOUR, state=RunState.HELD),
        make_run(b, state=RunState.LEASED),
        make_run(c, state=RunState.SUCCEEDED),
    )
    records = store.read(lambda tx: tx.get_schedules([a, b, c, d]))
    assert records[a].in_flight == InFlightCounts(live=1, held=2)
    assert records[b].in_flight == InFlightCounts(live=1)
    assert records[c].in_flight == InFlightCounts()
    assert records[d].in_flight == InFlightCounts()


def test_live_runs_are_the_ready_leased_and_held_ones_oldest_first(store: Store, nightly: str) -> None:
    runs = [
        make_run(nightly, planned_at=NOON + 2 * HOUR, state=RunState.HELD),
        make_run(nightly, planned_at=NOON + HOUR, state=RunState.HELD),
        make_run(nightly, planned_at=NOON + 3 * HOUR),
        make_run(nightly, planned_at=NOON, state=RunState.SUCCEEDED),
        make_run(nightly, planned_at=NOON - HOUR, state=RunState.PARKED),
    ]
    add(store, *runs)
    live = store.read(lambda tx: tx.select(LiveRuns([nightly])))
    assert [run.id for run in live] == [runs[1].id, runs[0].id, runs[2].id]
    assert store.read(lambda tx: tx.select(LiveRuns([]))) == []


def test_the_first_held_run_is_freeable_when_its_schedule_has_nothing_in_flight(store: Store) -> None:
    schedules = [make_schedule(f"s{n}") for n in range(3)]
    put(store, *(schedule_write(s) for s in schedules))
    a, b, c = (s.id for s in schedules)
    free = [make_run(a, planned_at=NOON + n * HOUR, state=RunState.HELD) for n in (1, 0, 2)]
    blocked = [make_run(b), make_run(b, planned_at=NOON + HOUR, state=RunState.HELD)]
    parked = [
        make_run(c, state=RunState.PARKED),
        make_run(c, planned_at=NOON + HOUR, state=RunState.HELD),
    ]
    add(store, *free, *blocked, *parked)
    found = store.write(lambda tx: tx.select(ReleasableRuns(limit=10)))
    assert {run.id for run in found} == {free[1].id, parked[1].id}
    assert len(store.write(lambda tx: tx.select(ReleasableRuns(limit=1)))) == 1
    (only,) = store.write(lambda tx: tx.select(ReleasableRuns(limit=10, schedule_ids=[c, b])))
    assert only.id == parked[1].id
    assert store.write(lambda tx: tx.select(ReleasableRuns(limit=10, schedule_ids=[]))) == []


def test_an_occurrence_is_found_by_its_instant(store: Store, nightly: str) -> None:
    runs = admit(
        store,
        nightly,
        make_run(nightly, state=RunState.SUCCEEDED),
        make_run(nightly, planned_at=NOON + HOUR, state=RunState.SKIPPED),
    )
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON)) == runs[0]
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON + HOUR)) == runs[1]
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON + TICK)) is None
    assert store.read(lambda tx: tx.find_occurrence(new_id("schedule"), NOON)) is None


def test_a_new_occurrence_is_not_searched_in_the_whole_history(
    store: Store, nightly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = range(100)
    old = [make_run(nightly, planned_at=NOON + hour * HOUR, state=RunState.SUCCEEDED) for hour in hours]
    admit(store, nightly, *old)
    read: list[int] = []
    follow = SqlRunQueries._follow_history

    def counting(queries: SqlRunQueries, start: str, *, max_rows: int) -> Any:
        rows = follow(queries, start, max_rows=max_rows)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(SqlRunQueries, "_follow_history", counting)
    assert occurrence(store, nightly, NOON + 200 * HOUR) is None
    assert sum(read) < 20
    assert occurrence(store, nightly, NOON + TICK) is None


def test_an_occurrence_that_was_dropped_is_found_in_the_row_that_counts_it(
    store: Store, nightly: str
) -> None:
    dropped = make_run(
        nightly, planned_at=NOON + HOUR, last_of=NOON + 5 * HOUR, dropped=5, state=RunState.SKIPPED
    )
    after = make_run(nightly, planned_at=NOON + 6 * HOUR)
    admit(store, nightly, make_run(nightly, state=RunState.SUCCEEDED), dropped, after)
    for hour in (1, 2, 5):
        found = occurrence(store, nightly, NOON + hour * HOUR)
        assert found is not None
        assert (found.id, found.dropped, found.last_of) == (dropped.id, 5, NOON + 5 * HOUR)
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON + 5 * HOUR + TICK)) is None
    following = occurrence(store, nightly, NOON + 6 * HOUR)
    assert following is not None
    assert following.id == after.id


def test_a_run_by_hand_at_the_same_instant_is_not_the_occurrence(store: Store, nightly: str) -> None:
    run_id = new_id()
    admit(store, nightly, make_run(nightly, id=run_id, dedupe_scope=run_id, exclusive=False))
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON)) is None
