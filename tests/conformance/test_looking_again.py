"""Whoever looks again sees what others have kept meanwhile, and nothing that was undone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.conformance.builders import NOON, add, make_run, make_schedule, make_standing, put, revised
from tests.conformance.databases import Database
from timewright.core.catch_up import Flight
from timewright.core.moments import HOUR
from timewright.core.schedule import Schedule
from timewright.ports import Due, ScheduleFilter, Stood, Store, Transaction


def looked(store: Store, schedule: Schedule) -> Due:
    """A schedule by its name, by its id and on a page: the same, whichever way it is looked at."""

    def work(tx: Transaction) -> list[Due | None]:
        by_id = tx.get_schedules([schedule.id])[schedule.id]
        (on_page,) = tx.find_schedules(ScheduleFilter()).rows
        return [tx.get_named(schedule.namespace, schedule.name), by_id, on_page]

    first, *others = store.read(work)
    assert first is not None
    assert others == [first, first]
    return first


def test_what_another_store_writes_is_seen_by_the_next_look(database: Database) -> None:
    here, there = database.open(), database.open()
    schedule, standing = make_schedule(), make_standing()
    put(here, revised(schedule, standing))
    for _ in range(2):
        assert looked(there, schedule) == Due(schedule, standing, Flight())
    moved = replace(standing, next_at=NOON + 2 * HOUR, runs=5)
    here.write(lambda tx: tx.stand([Stood(schedule.id, moved)]))
    assert looked(there, schedule).standing == moved
    edited = replace(schedule, revision=2, description="another")
    put(here, revised(edited, moved, replaces=1))
    assert looked(there, schedule).schedule == edited
    add(here, make_run(schedule.id, alone=True))
    assert looked(there, schedule).flight.live == 1
    assert looked(here, schedule) == looked(there, schedule)


def test_what_was_undone_is_never_looked_at_again(store: Store) -> None:
    schedule, standing = make_schedule(), make_standing()
    put(store, revised(schedule, standing))
    undone = replace(schedule, revision=2, description="undone")

    def work(tx: Transaction) -> None:
        tx.put_schedules([revised(undone, standing, replaces=1)])
        found = tx.get_named(schedule.namespace, schedule.name)
        assert found is not None
        assert found.schedule == undone
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        store.write(work)
    assert looked(store, schedule).schedule == schedule
    kept = replace(schedule, revision=2, description="kept")
    put(store, revised(kept, standing, replaces=1))
    assert looked(store, schedule).schedule == kept
