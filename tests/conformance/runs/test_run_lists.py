"""Lists of runs: newest first, in pages, filtered, and along the history of a schedule."""

from __future__ import annotations

from datetime import datetime
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
    make_progress,
    make_run,
    make_schedule,
    new_id,
    pages,
    put,
    schedule_write,
    settle,
    with_previous_runs,
)
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.run.run import Run, RunState
from timewright.errors import InvalidInput
from timewright.ports import RunFilter, Store
from timewright.ports.schedules import NextSchedules


def find(store: Store, **which: Any) -> list[str]:
    return [run.id for run in store.read(lambda tx: tx.find(RunFilter(**which))).rows]


def history(store: Store, schedule_id: str, many: int) -> list[Run]:
    """Add finished runs, an hour apart; returns them oldest first."""
    made = [make_run(schedule_id, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(many)]
    return admit(store, schedule_id, *made)


def test_runs_are_listed_newest_first(store: Store) -> None:
    runs = [make_run(planned_at=NOON + n * MINUTE) for n in (2, 0, 1)]
    add(store, *runs)
    assert find(store) == [runs[0].id, runs[2].id, runs[1].id]


def test_the_runs_of_a_schedule_are_listed_newest_first_and_no_other(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, schedule_write(other))
    mine, theirs = history(store, nightly, 3), history(store, other.id, 3)
    assert find(store, schedule_id=nightly) == [run.id for run in reversed(mine)]
    assert find(store, schedule_id=other.id) == [run.id for run in reversed(theirs)]
    assert find(store, schedule_id=new_id("schedule")) == []


@pytest.mark.parametrize("of_schedule", [True, False])
def test_an_empty_queue_does_not_filter_and_an_empty_namespace_matches_nothing(
    store: Store, nightly: str, of_schedule: bool
) -> None:
    runs = [make_run(nightly, planned_at=NOON, state=RunState.SUCCEEDED)]
    runs += [make_run(nightly, planned_at=NOON + HOUR, state=RunState.SUCCEEDED, queue="mail")]
    admit(store, nightly, *runs)
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    newest_first = [run.id for run in reversed(runs)]
    assert find(store, **which) == find(store, queue="", **which) == newest_first
    assert find(store, queue="mail", **which) == newest_first[:1]
    assert find(store, namespace="", **which) == []


@pytest.mark.parametrize("of_schedule", [True, False])
def test_pages_of_runs_join_to_the_whole_list(store: Store, nightly: str, of_schedule: bool) -> None:
    runs = history(store, nightly, 25)
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    every = pages(lambda c: store.read(lambda tx: tx.find(RunFilter(limit=10, cursor=c, **which))))
    assert [len(page) for page in every] == [10, 10, 5]
    assert [run.id for page in every for run in page] == [run.id for run in reversed(runs)]


@pytest.mark.parametrize("of_schedule", [True, False])
def test_a_run_that_is_added_meanwhile_does_not_shift_the_pages(
    store: Store, nightly: str, of_schedule: bool
) -> None:
    runs = history(store, nightly, 6)
    which: dict[str, Any] = {"schedule_id": nightly} if of_schedule else {}
    first = store.read(lambda tx: tx.find(RunFilter(limit=3, **which)))
    admit(store, nightly, make_run(nightly, planned_at=NOON + DAY))
    rest = store.read(lambda tx: tx.find(RunFilter(limit=3, cursor=first.cursor, **which)))
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
            lambda tx: tx.find(RunFilter(schedule_id=nightly, state=RunState.FAILED, limit=6, cursor=c))
        )
    )
    assert [run.id for page in every for run in page] == failed
    assert [len(page) for page in every] == [6, 6, 6, 2]


def test_a_cursor_of_another_schedule_returns_nothing(store: Store, nightly: str) -> None:
    other = make_schedule("other")
    put(store, schedule_write(other))
    mine, theirs = history(store, nightly, 4), history(store, other.id, 4)
    page = store.read(lambda tx: tx.find(RunFilter(schedule_id=nightly, limit=2, cursor=theirs[2].id)))
    assert {run.schedule_id for run in page.rows} <= {nightly}
    assert mine


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_that_makes_no_page_of_runs_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        find(store, limit=limit)


def test_relinking_repairs_a_history_with_a_gap(store: Store, nightly: str) -> None:
    runs = [make_run(nightly, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(3)]
    admit(store, nightly, *runs)
    first, _, last = with_previous_runs("", runs)
    store.write(lambda tx: tx.repair_history(relink=[(last.id, first.id)]))
    assert find(store, schedule_id=nightly) == [last.id, first.id]
    store.write(lambda tx: tx.repair_history())


def test_a_skipped_run_counts_the_occurrences_before_it(store: Store, nightly: str) -> None:
    skipped = make_run(nightly, planned_at=NOON + 2 * HOUR, state=RunState.SKIPPED, reason="quiet")
    succeeded = make_run(nightly, planned_at=NOON + 3 * HOUR, state=RunState.SUCCEEDED)
    admit(store, nightly, skipped, succeeded)
    before = [get(store, one.id) for one in (skipped, succeeded)]
    folded = [replace(one, planned_at=NOON, last_of=one.planned_at, dropped=3, previous="") for one in before]
    store.write(lambda tx: tx.repair_history(fold=folded))
    after = [get(store, one.id) for one in before]
    assert after == [folded[0], before[1]], "only skipped runs count others"


def test_a_schedule_and_its_first_run_are_one_transaction(store: Store) -> None:
    schedule = make_schedule()
    run = make_run(schedule.id)

    def work(tx: Any) -> None:
        tx.put_schedules([schedule_write(schedule, make_progress())])
        assert tx.add_runs([run]) == {run.id}

    store.write(work)
    assert get(store, run.id) == run


def test_a_list_since_an_instant_is_complete_in_every_state(store: Store, nightly: str) -> None:
    runs = [
        make_run(nightly, planned_at=NOON + n * HOUR, state=state, exclusive=False)
        for n, state in enumerate(RunState)
    ]
    store.write(lambda tx: tx.add_runs(runs))
    for since in (NOON, NOON + 2 * HOUR, NOON + 2 * HOUR + MINUTE):
        assert find(store, since=since) == [run.id for run in reversed(runs) if run.planned_at >= since]
        for run in runs:
            assert find(store, since=since, state=run.state) == [run.id] * (run.planned_at >= since)


def test_recent_runs_follow_the_history_of_each_schedule(store: Store, nightly: str) -> None:
    other = make_schedule("hourly")
    put(store, schedule_write(other), schedule_write(make_schedule("idle")))
    for schedule_id in (nightly, other.id):
        times = (NOON + n * HOUR for n in range(5))
        admit(
            store, schedule_id, *(make_run(schedule_id, planned_at=at, state=RunState.FAILED) for at in times)
        )
    marks = store.read(lambda tx: tx.recent_runs([nightly, other.id, "nobody"], limit_each=3))
    for schedule_id in (nightly, other.id):
        newest = find(store, schedule_id=schedule_id)[:3]
        assert [mark.run for mark in marks[schedule_id]] == newest[::-1]
    assert set(marks) == {nightly, other.id}


def test_the_first_start_of_a_retried_run_is_that_of_its_first_attempt(store: Store, nightly: str) -> None:
    run, unstarted = make_run(nightly, planned_at=NOON), make_run()
    admit(store, nightly, run)
    add(store, unstarted)
    for n in range(2):
        now = NOON + n * HOUR
        (held,) = leased(store, get(store, run.id), at=now)
        after, attempt = ended(held, RunState.READY, at=now + MINUTE)
        settle(store, (replace(after, started_at=now), replace(attempt, started_at=now)))
    (mark,) = store.read(lambda tx: tx.recent_runs([nightly], limit_each=3))[nightly]
    assert mark.started_at == NOON


def test_next_schedules_come_by_wake_up(store: Store) -> None:
    late, soon = make_schedule("late"), make_schedule("soon")
    never, theirs = make_schedule("never"), make_schedule("soon", namespace="other")
    put(
        store,
        schedule_write(late, make_progress(next_at=NOON + 2 * HOUR)),
        schedule_write(soon, make_progress(next_at=NOON + HOUR)),
        schedule_write(never, make_progress(next_at=None)),
        schedule_write(theirs, make_progress(next_at=NOON + HOUR)),
    )

    def upcoming(until: datetime, limit: int = 10) -> list[str]:
        which = NextSchedules(namespace="default", until=until, limit=limit)
        return [one.id for one in store.read(lambda tx: tx.select(which))]

    assert upcoming(NOON + DAY) == [soon.id, late.id]
    assert upcoming(NOON + DAY, limit=1) == [soon.id]
    assert upcoming(NOON + HOUR) == [soon.id]
