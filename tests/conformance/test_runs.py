"""Runs: one durable row per occurrence, added once, found again, never two in flight."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.builders import (
    NOON,
    TICK,
    add,
    admit,
    ended,
    get,
    leased,
    linked_after,
    make_run,
    make_schedule,
    make_standing,
    new_id,
    pages,
    put,
    queued,
    revised,
    settle,
)
from tests.conformance.databases import Database
from tests.conformance.together import all_at_once
from timewright.core.admission import Flight
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.run import Run, RunState
from timewright.errors import Conflict, InvalidInput
from timewright.ports import Change, RunFilter, Store, Transaction


@pytest.fixture
def nightly(store: Store) -> str:
    schedule = make_schedule("nightly")
    put(store, revised(schedule))
    return schedule.id


def find(store: Store, **which: Any) -> list[str]:
    return [run.id for run in store.read(lambda tx: tx.find_runs(RunFilter(**which))).rows]


def by_hand(many: int) -> list[Run]:
    ids = [new_id() for _ in range(many)]
    return [make_run(id=run_id, lane=run_id, alone=False) for run_id in ids]


def occurrence(store: Store, schedule_id: str, at: datetime) -> Run | None:
    return store.read(lambda tx: tx.find_occurrence(schedule_id, at))


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
def test_an_occurrence_stays_decided_whatever_became_of_it(
    store: Store, nightly: str, state: RunState
) -> None:
    add(store, make_run(nightly, state=state))
    assert add(store, make_run(nightly)) == set()


def test_occurrences_a_microsecond_apart_are_two(store: Store, nightly: str) -> None:
    one, two = make_run(nightly, state=RunState.HELD), make_run(nightly, planned_at=NOON + TICK)
    assert len(add(store, one, two)) == 2


def test_the_same_instant_of_two_schedules_is_two_occurrences(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, revised(other))
    assert len(add(store, make_run(nightly), make_run(other.id))) == 2


def test_a_run_in_a_lane_of_its_own_stands_beside_the_occurrence(store: Store, nightly: str) -> None:
    run_id = new_id()
    occurrence = make_run(nightly)
    by_hand = make_run(nightly, id=run_id, lane=run_id, alone=False)
    assert add(store, occurrence, by_hand) == {occurrence.id, by_hand.id}


def test_two_runs_cannot_have_one_id(store: Store) -> None:
    run = make_run()
    add(store, run)
    with pytest.raises(Conflict):
        add(store, replace(run, planned_at=NOON + HOUR, lane="another"))


@pytest.mark.parametrize("many", [0, 1, 600])
def test_new_runs_are_added_in_parts_and_are_there_for_whoever_asks_next(store: Store, many: int) -> None:
    def added(tx: Transaction, runs: list[Run]) -> dict[str, Run]:
        for start in range(0, many, 200):
            tx.add_new_runs(runs[start : start + 200])
        return tx.get_runs([run.id for run in runs])

    def got(tx: Transaction, runs: list[Run]) -> dict[str, Run]:
        return tx.get_runs([run.id for run in runs])

    for runs in (by_hand(many), by_hand(many)):  # the second time the server knows what is said
        assert store.write(partial(added, runs=runs)) == {run.id: run for run in runs}
        assert store.read(partial(got, runs=runs)) == {run.id: run for run in runs}


@pytest.mark.parametrize("many", [1, 600])
@pytest.mark.parametrize("asks", [True, False])
def test_a_new_run_that_is_there_already_is_refused_with_its_whole_transaction(
    store: Store, many: int, asks: bool
) -> None:
    there, other, last = by_hand(many), by_hand(many), by_hand(1)
    store.write(lambda tx: tx.add_new_runs(there))

    def work(tx: Transaction) -> None:
        tx.add_new_runs(other)
        tx.add_new_runs(there)
        if asks:
            tx.find_runs(RunFilter())

    with pytest.raises(Conflict):
        store.write(work)
    store.write(lambda tx: tx.add_new_runs(last))
    assert set(find(store, limit=1000)) == {run.id for run in (*there, *last)}


def test_a_transaction_that_is_given_up_after_new_runs_leaves_none_of_them(store: Store) -> None:
    store.write(lambda tx: tx.add_new_runs(by_hand(600)))
    before = set(find(store, limit=1000))

    def work(tx: Transaction) -> None:
        tx.add_new_runs(by_hand(600))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(work)
    assert set(find(store, limit=1000)) == before


def test_many_admitters_of_the_same_occurrences_make_each_of_them_once(database: Database) -> None:
    schedule = make_schedule()
    stores = [database.open() for _ in range(3)]
    put(stores[0], revised(schedule))
    batches = [
        [make_run(schedule.id, planned_at=NOON + n * MINUTE, alone=False) for n in range(20)]
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
    assert store.read(lambda tx: tx.in_flight([nightly])) == {nightly: Flight(live=1)}


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
def test_a_run_that_is_not_in_flight_leaves_room_for_the_next(
    store: Store, nightly: str, done: RunState
) -> None:
    add(store, make_run(nightly, state=done))
    assert len(add(store, make_run(nightly, planned_at=NOON + HOUR))) == 1


def test_runs_that_may_overlap_are_in_flight_together(store: Store, nightly: str) -> None:
    runs = [make_run(nightly, planned_at=NOON + n * HOUR, alone=False) for n in range(3)]
    assert len(add(store, *runs)) == 3


def test_queue_entries_are_never_in_each_others_way(store: Store) -> None:
    assert len(add(store, *(queued() for _ in range(5)))) == 5


def test_a_held_run_cannot_become_ready_while_another_is_in_flight(store: Store, nightly: str) -> None:
    live = make_run(nightly)
    waiting = make_run(nightly, planned_at=NOON + HOUR, state=RunState.HELD)
    add(store, live, waiting)
    ready = Change(replace(waiting, state=RunState.READY), RunState.HELD, 0)
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


def test_what_is_under_way_is_counted_for_many_schedules_at_once(store: Store) -> None:
    schedules = [make_schedule(f"s{n}") for n in range(4)]
    put(store, *(revised(s) for s in schedules))
    a, b, c, d = (s.id for s in schedules)
    add(
        store,
        make_run(a),
        make_run(a, planned_at=NOON + HOUR, state=RunState.HELD),
        make_run(a, planned_at=NOON + 2 * HOUR, state=RunState.HELD),
        make_run(b, state=RunState.LEASED),
        make_run(c, state=RunState.SUCCEEDED),
    )
    counts = store.read(lambda tx: tx.in_flight([a, b, c, d]))
    assert counts.get(a) == Flight(live=1, held=2)
    assert counts.get(b) == Flight(live=1)
    assert counts.get(c, Flight()) == Flight()
    assert counts.get(d, Flight()) == Flight()
    assert store.read(lambda tx: tx.in_flight([])) == {}


def test_live_runs_are_the_ready_leased_and_held_ones_oldest_first(store: Store, nightly: str) -> None:
    runs = [
        make_run(nightly, planned_at=NOON + 2 * HOUR, state=RunState.HELD),
        make_run(nightly, planned_at=NOON + HOUR, state=RunState.HELD),
        make_run(nightly, planned_at=NOON + 3 * HOUR),
        make_run(nightly, planned_at=NOON, state=RunState.SUCCEEDED),
        make_run(nightly, planned_at=NOON - HOUR, state=RunState.PARKED),
    ]
    add(store, *runs)
    live = store.read(lambda tx: tx.live_runs([nightly]))
    assert [run.id for run in live] == [runs[1].id, runs[0].id, runs[2].id]
    assert store.read(lambda tx: tx.live_runs([])) == []


def test_the_first_held_run_is_freeable_when_its_schedule_has_nothing_in_flight(store: Store) -> None:
    schedules = [make_schedule(f"s{n}") for n in range(3)]
    put(store, *(revised(s) for s in schedules))
    a, b, c = (s.id for s in schedules)
    free = [make_run(a, planned_at=NOON + n * HOUR, state=RunState.HELD) for n in (1, 0, 2)]
    blocked = [make_run(b), make_run(b, planned_at=NOON + HOUR, state=RunState.HELD)]
    parked = [
        make_run(c, state=RunState.PARKED),
        make_run(c, planned_at=NOON + HOUR, state=RunState.HELD),
    ]
    add(store, *free, *blocked, *parked)
    found = store.write(lambda tx: tx.freeable_runs(limit=10))
    assert {run.id for run in found} == {free[1].id, parked[1].id}
    assert len(store.write(lambda tx: tx.freeable_runs(limit=1))) == 1
    (only,) = store.write(lambda tx: tx.freeable_runs(limit=10, schedule_ids=[c, b]))
    assert only.id == parked[1].id
    assert store.write(lambda tx: tx.freeable_runs(limit=10, schedule_ids=[])) == []


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
    admit(store, nightly, make_run(nightly, id=run_id, lane=run_id, alone=False))
    assert store.read(lambda tx: tx.find_occurrence(nightly, NOON)) is None


def history(store: Store, schedule_id: str, many: int) -> list[Run]:
    """So many finished runs, an hour apart, oldest first."""
    made = [make_run(schedule_id, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(many)]
    return admit(store, schedule_id, *made)


def test_runs_are_listed_newest_first(store: Store) -> None:
    runs = [make_run(planned_at=NOON + n * MINUTE) for n in (2, 0, 1)]
    add(store, *runs)
    assert find(store) == [runs[0].id, runs[2].id, runs[1].id]


def test_the_runs_of_a_schedule_are_listed_newest_first_and_no_other(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, revised(other))
    mine, theirs = history(store, nightly, 3), history(store, other.id, 3)
    assert find(store, schedule_id=nightly) == [run.id for run in reversed(mine)]
    assert find(store, schedule_id=other.id) == [run.id for run in reversed(theirs)]
    assert find(store, schedule_id=new_id("schedule")) == []


@pytest.mark.parametrize("of_schedule", [True, False])
def test_pages_of_runs_join_to_the_whole_list(store: Store, nightly: str, of_schedule: bool) -> None:
    runs = history(store, nightly, 25)
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    every = pages(lambda c: store.read(lambda tx: tx.find_runs(RunFilter(limit=10, cursor=c, **which))))
    assert [len(page) for page in every] == [10, 10, 5]
    assert [run.id for page in every for run in page] == [run.id for run in reversed(runs)]


@pytest.mark.parametrize("of_schedule", [True, False])
def test_a_run_that_is_added_meanwhile_does_not_shift_the_pages(
    store: Store, nightly: str, of_schedule: bool
) -> None:
    runs = history(store, nightly, 6)
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    first = store.read(lambda tx: tx.find_runs(RunFilter(limit=3, **which)))
    admit(store, nightly, make_run(nightly, planned_at=NOON + DAY))
    rest = store.read(lambda tx: tx.find_runs(RunFilter(limit=3, cursor=first.cursor, **which)))
    assert [r.id for r in (*first.rows, *rest.rows)] == [r.id for r in reversed(runs)]
    assert rest.cursor == ""


@pytest.mark.parametrize("of_schedule", [True, False])
def test_runs_are_narrowed_by_state_queue_and_time(store: Store, nightly: str, of_schedule: bool) -> None:
    runs = admit(
        store,
        nightly,
        make_run(nightly, state=RunState.FAILED),
        make_run(nightly, planned_at=NOON + HOUR, state=RunState.SUCCEEDED, queue="mail"),
        make_run(nightly, planned_at=NOON + 2 * HOUR, state=RunState.FAILED, queue="mail"),
        make_run(nightly, planned_at=NOON + 3 * HOUR),
    )
    ids = [run.id for run in runs]
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    assert find(store, state=RunState.FAILED, **which) == [ids[2], ids[0]]
    assert find(store, queue="mail", **which) == [ids[2], ids[1]]
    assert find(store, queue="mail", state=RunState.FAILED, **which) == [ids[2]]
    assert find(store, since=NOON + HOUR, **which) == [ids[3], ids[2], ids[1]]
    assert find(store, until=NOON + HOUR, **which) == [ids[1], ids[0]]
    assert find(store, since=NOON + TICK, until=NOON + HOUR - TICK, **which) == []
    assert find(store, namespace="elsewhere", **which) == []


def test_a_narrow_question_over_a_long_history_still_fills_its_pages(store: Store, nightly: str) -> None:
    states = [RunState.FAILED if n % 10 == 0 else RunState.SUCCEEDED for n in range(200)]
    made = [make_run(nightly, planned_at=NOON + n * MINUTE, state=s) for n, s in enumerate(states)]
    failed = [run.id for run in reversed(admit(store, nightly, *made)) if run.state is RunState.FAILED]
    every = pages(
        lambda c: store.read(
            lambda tx: tx.find_runs(RunFilter(schedule_id=nightly, state=RunState.FAILED, limit=6, cursor=c))
        )
    )
    assert [run.id for page in every for run in page] == failed
    assert [len(page) for page in every] == [6, 6, 6, 2]


def test_a_cursor_of_another_schedule_never_opens_its_history(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, revised(other))
    mine, theirs = history(store, nightly, 4), history(store, other.id, 4)
    page = store.read(lambda tx: tx.find_runs(RunFilter(schedule_id=nightly, limit=2, cursor=theirs[2].id)))
    assert {run.schedule_id for run in page.rows} <= {nightly}
    assert mine


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_that_makes_no_page_of_runs_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        find(store, limit=limit)


def test_a_history_whose_middle_was_lost_is_mended_by_linking(store: Store, nightly: str) -> None:
    runs = [make_run(nightly, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(3)]
    admit(store, nightly, *runs)
    first, _, last = linked_after("", runs)
    store.write(lambda tx: tx.link_runs([(last.id, first.id)]))
    assert find(store, schedule_id=nightly) == [last.id, first.id]
    store.write(lambda tx: tx.link_runs([]))


def test_a_schedule_and_its_first_run_are_one_transaction(store: Store) -> None:
    schedule = make_schedule()
    run = make_run(schedule.id)

    def work(tx: Any) -> None:
        tx.put_schedules([revised(schedule, make_standing())])
        assert tx.add_runs([run]) == {run.id}

    store.write(work)
    assert get(store, run.id) == run


def test_a_list_since_an_instant_is_the_same_whatever_the_state_and_age(store: Store, nightly: str) -> None:
    runs = [
        make_run(nightly, planned_at=NOON + n * HOUR, state=state, alone=False)
        for n, state in enumerate(RunState)
    ]
    store.write(lambda tx: tx.add_runs(runs))
    for since in (NOON, NOON + 2 * HOUR, NOON + 2 * HOUR + MINUTE):
        assert find(store, since=since) == [run.id for run in reversed(runs) if run.planned_at >= since]
        for run in runs:
            assert find(store, since=since, state=run.state) == [run.id] * (run.planned_at >= since)


def test_the_newest_marks_of_several_schedules_are_those_of_their_chains(store: Store, nightly: str) -> None:
    other = make_schedule("hourly")
    put(store, revised(other), revised(make_schedule("idle")))
    for schedule_id in (nightly, other.id):
        times = (NOON + n * HOUR for n in range(5))
        admit(
            store, schedule_id, *(make_run(schedule_id, planned_at=at, state=RunState.FAILED) for at in times)
        )
    marks = store.read(lambda tx: tx.newest_marks([nightly, other.id, "nobody"], each=3))
    for schedule_id in (nightly, other.id):
        newest = find(store, schedule_id=schedule_id)[:3]
        assert [mark.run for mark in marks[schedule_id]] == newest[::-1]
    assert set(marks) == {nightly, other.id}


def test_what_comes_next_is_given_by_when_it_is_looked_at(store: Store) -> None:
    late, soon = make_schedule("late"), make_schedule("soon")
    never, theirs = make_schedule("never"), make_schedule("soon", namespace="other")
    put(
        store,
        revised(late, make_standing(next_at=NOON + 2 * HOUR)),
        revised(soon, make_standing(next_at=NOON + HOUR)),
        revised(never, make_standing(next_at=None)),
        revised(theirs, make_standing(next_at=NOON + HOUR)),
    )

    def upcoming(until: datetime, limit: int = 10) -> list[str]:
        return store.read(lambda tx: tx.upcoming("default", until=until, limit=limit))

    assert upcoming(NOON + DAY) == [soon.id, late.id]
    assert upcoming(NOON + DAY, limit=1) == [soon.id]
    assert upcoming(NOON + HOUR) == [soon.id]
