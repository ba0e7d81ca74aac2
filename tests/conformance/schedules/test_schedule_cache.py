"""The row cache: it sees commits of other stores and never a rolled back write."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    add,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.core.run.catch_up import InFlightCounts
from timewright.core.schedule.schedule import Schedule
from timewright.ports import ProgressUpdate, ScheduleFilter, ScheduleRecord, Store, Transaction


def read_three_ways(store: Store, schedule: Schedule) -> ScheduleRecord:
    """Read a schedule by name, by id and on a page; all three are equal."""

    def work(tx: Transaction) -> list[ScheduleRecord | None]:
        by_id = tx.get_schedules([schedule.id])[schedule.id]
        (on_page,) = tx.find(ScheduleFilter()).rows
        snapshot = tx.get_schedule_snapshot(schedule.namespace, schedule.name)
        return [snapshot.record if snapshot is not None else None, by_id, on_page]

    first, *others = store.read(work)
    assert first is not None
    assert others == [first, first]
    return first


def test_the_cache_sees_writes_of_another_store(database: Database) -> None:
    here, there = database.open(), database.open()
    schedule, progress = make_schedule(), make_progress()
    put(here, schedule_write(schedule, progress))
    for _ in range(2):
        assert read_three_ways(there, schedule) == ScheduleRecord(schedule, progress, InFlightCounts())
    moved = replace(progress, next_at=NOON + 2 * HOUR, runs=5)
    here.write(lambda tx: tx.save_progress([ProgressUpdate(schedule.id, moved)]))
    assert read_three_ways(there, schedule).progress == moved
    edited = replace(schedule, revision=2, description="another")
    put(here, schedule_write(edited, moved, replaces=1))
    assert read_three_ways(there, schedule).schedule == edited
    add(here, make_run(schedule.id, exclusive=True))
    assert read_three_ways(there, schedule).in_flight.live == 1
    assert read_three_ways(here, schedule) == read_three_ways(there, schedule)


def test_a_rolled_back_page_is_not_cached(store: Store) -> None:
    schedule, progress = make_schedule(), make_progress()
    put(store, schedule_write(schedule, progress))
    undone = replace(schedule, revision=2, description="undone")

    def work(tx: Transaction) -> None:
        tx.put_schedules([schedule_write(undone, progress, replaces=1)])
        found = tx.get_schedule_snapshot(schedule.namespace, schedule.name)
        assert found is not None
        assert found.record.schedule == undone
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        store.write(work)
    assert read_three_ways(store, schedule).schedule == schedule
    kept = replace(schedule, revision=2, description="kept")
    put(store, schedule_write(kept, progress, replaces=1))
    assert read_three_ways(store, schedule).schedule == kept
