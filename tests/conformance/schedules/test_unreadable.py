"""Unreadable rows: parked or listed apart, while all others work."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.support.builders import (
    LEASE,
    NOON,
    add,
    get_record,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.damage import SCHEDULE_DAMAGE
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.core.run.run import RunState
from timewright.errors import UnreadableRow
from timewright.ports import Page, ProgressUpdate, RunFilter, ScheduleFilter, Transaction

RUN_DAMAGE = {
    "a source of a later version": "UPDATE runs SET source = 'oracle' WHERE id = ?",
    "an extra that is not JSON": "UPDATE runs SET extra = '{' WHERE id = ?",
    "an extra of another shape": """UPDATE runs SET extra = '{"missed": "many"}' WHERE id = ?""",
    "an instant beyond the calendar": "UPDATE runs SET created_at = 9000000000000000000 WHERE id = ?",
}


@pytest.mark.parametrize("damage", SCHEDULE_DAMAGE)
def test_an_unreadable_due_schedule_is_parked_and_the_others_continue(
    database: Database, damage: str
) -> None:
    store = database.open()
    rows = [schedule_write(make_schedule(f"s{n}"), make_progress(next_at=NOON)) for n in range(3)]
    put(store, *rows)
    bad = rows[1].schedule.id
    database.sql(SCHEDULE_DAMAGE[damage], [bad])
    found = store.write(lambda tx: tx.due_schedules(until=NOON, limit=10))
    assert [due.schedule.name for due in found] == ["s0", "s2"]
    ((state, reason, wake_at),) = database.sql(
        "SELECT state, reason, wake_at FROM schedules WHERE id = ?", [bad]
    )
    assert (state, wake_at) == ("parked", None)
    assert reason.startswith("unreadable: ")
    assert len(store.write(lambda tx: tx.due_schedules(until=NOON, limit=10))) == 2, (
        "and it stays out of the way"
    )


@pytest.mark.parametrize("damage", SCHEDULE_DAMAGE)
def test_reading_an_unreadable_schedule_raises(database: Database, damage: str) -> None:
    store = database.open()
    good, bad = schedule_write(make_schedule("good")), schedule_write(make_schedule("bad"))
    put(store, good, bad)
    database.sql(SCHEDULE_DAMAGE[damage], [bad.schedule.id])
    with pytest.raises(UnreadableRow):
        store.read(lambda tx: tx.get_schedules([bad.schedule.id]))
    assert get_record(store, good.schedule.id).schedule == good.schedule


@pytest.mark.parametrize("damage", RUN_DAMAGE)
def test_an_unreadable_ready_run_does_not_block_the_others(database: Database, damage: str) -> None:
    store = database.open()
    runs = [make_run() for _ in range(3)]
    add(store, *runs)
    database.sql(RUN_DAMAGE[damage], [runs[1].id])
    found = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10))
    assert [run.id for run in found] == [runs[0].id, runs[2].id]
    assert database.sql("SELECT state, reason FROM runs WHERE id = ?", [runs[1].id]) == [
        ("parked", "unreadable")
    ]


@pytest.mark.parametrize("damage", RUN_DAMAGE)
def test_an_unreadable_expired_lease_does_not_block_the_others(database: Database, damage: str) -> None:
    store = database.open()
    runs = [make_run(limit_keys=("limit:default/x",)) for _ in range(3)]
    add(store, *runs)
    leased(store, *runs)
    database.sql(RUN_DAMAGE[damage], [runs[1].id])
    found = store.write(lambda tx: tx.expired_leases(now=NOON + LEASE, limit=10))
    assert [run.id for run in found] == [runs[0].id, runs[2].id]
    assert database.sql("SELECT state, reason FROM runs WHERE id = ?", [runs[1].id]) == [
        ("parked", "unreadable")
    ]
    assert store.write(lambda tx: tx.get_limits(["limit:default/x"], lock=True))["limit:default/x"].held == 2


def test_reading_an_unreadable_run_names_it(database: Database) -> None:
    store = database.open()
    good, bad = make_run(), make_run()
    add(store, good, bad)
    database.sql("UPDATE runs SET state = 'dreaming' WHERE id = ?", [bad.id])
    with pytest.raises(UnreadableRow, match=bad.id):
        store.read(lambda tx: tx.get_runs([bad.id]))
    assert list(store.read(lambda tx: tx.get_runs([good.id]))) == [good.id]


def test_a_run_in_a_state_of_a_later_version_is_never_started(database: Database) -> None:
    store = database.open()
    run = make_run()
    add(store, run)
    database.sql("UPDATE runs SET state = 'dreaming' WHERE id = ?", [run.id])
    assert store.write(lambda tx: tx.ready_runs(now=NOON, limit=10)) == []
    assert leased(store, run) == []


def test_a_list_of_schedules_lists_unreadable_rows_apart(
    database: Database,
) -> None:
    store = database.open()
    rows = [schedule_write(make_schedule(f"s{n}")) for n in range(4)]
    put(store, *rows)
    bad = rows[1].schedule
    database.sql("UPDATE revisions SET body = 'x' WHERE schedule_id = ?", [bad.id])
    page = store.read(lambda tx: tx.find(ScheduleFilter(limit=2)))
    assert [due.schedule.name for due in page.rows] == ["s0"]
    assert [(one.id, one.name) for one in page.unreadable] == [(bad.id, "s1")]
    assert "cannot be read" in page.unreadable[0].error
    rest = store.read(lambda tx: tx.find(ScheduleFilter(limit=2, cursor=page.cursor)))
    assert ([due.schedule.name for due in rest.rows], rest.unreadable) == (["s2", "s3"], ())


@pytest.mark.parametrize("of_schedule", [False, True])
def test_a_list_of_runs_lists_unreadable_rows_apart(database: Database, of_schedule: bool) -> None:
    store = database.open()
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    runs: list[Any] = []
    for n in range(5):
        before = runs[-1].id if runs else ""
        at = NOON + n * HOUR
        runs.append(make_run(schedule.id, planned_at=at, state=RunState.SUCCEEDED, previous=before))
    add(store, *runs)
    store.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, make_progress(), runs[-1].id)]))
    database.sql("UPDATE runs SET extra = 'x' WHERE id = ?", [runs[2].id])
    seen: list[str] = []
    told: list[str] = []
    cursor = ""
    while True:
        which = RunFilter(schedule_id=schedule.id if of_schedule else None, limit=2, cursor=cursor)
        page = store.read(partial(_page_of_runs, which=which))
        seen += [run.id for run in page.rows]
        told += [one.id for one in page.unreadable]
        cursor = page.cursor
        if not cursor:
            break
    assert seen == [run.id for run in reversed(runs) if run is not runs[2]]
    assert told == [runs[2].id]


def _page_of_runs(tx: Transaction, which: RunFilter) -> Page:
    return tx.find(which)


def test_a_parked_unreadable_schedule_works_again_after_a_new_revision(
    database: Database,
) -> None:
    from msgspec.structs import replace

    store = database.open()
    schedule = make_schedule()
    put(store, schedule_write(schedule, make_progress(next_at=NOON)))
    database.sql("UPDATE revisions SET body = 'x'")
    assert store.write(lambda tx: tx.due_schedules(until=NOON, limit=10)) == []
    put(store, schedule_write(replace(schedule, revision=2), make_progress(next_at=NOON + HOUR), replaces=1))
    (due,) = store.write(lambda tx: tx.due_schedules(until=NOON + HOUR, limit=10))
    assert due.schedule == replace(schedule, revision=2)
