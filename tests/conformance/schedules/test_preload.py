"""Preloading due schedules: nothing is decided or locked."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.conformance.support.builders import (
    NOON,
    TICK,
    get_record,
    make_progress,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.concurrency import held_open
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.engine.sleep_plan import preload
from timewright.ports import Store
from timewright.ports.schedules import DueSchedules


def due_at_noon(store: Store, *names: str) -> list[str]:
    made = [schedule_write(make_schedule(name), make_progress(next_at=NOON, wake_at=NOON)) for name in names]
    put(store, *made)
    return [row.schedule.id for row in made]


def foreseen(store: Store, *, until: datetime, limit: int = 10) -> list[str]:
    return [
        schedule.name
        for schedule in store.read(lambda tx: preload(tx, DueSchedules(until=until, limit=limit)))
    ]


def test_schedules_due_by_until_are_preloaded_up_to_the_limit(store: Store) -> None:
    due_at_noon(store, "a", "b", "c")
    put(
        store, schedule_write(make_schedule("later"), make_progress(next_at=NOON + HOUR, wake_at=NOON + HOUR))
    )
    assert foreseen(store, until=NOON - TICK) == []
    assert sorted(foreseen(store, until=NOON)) == ["a", "b", "c"]
    assert len(foreseen(store, until=NOON, limit=2)) == 2


def test_preloaded_definitions_are_not_read_again(database: Database) -> None:
    due_at_noon(database.open(), "a")
    store = database.open()
    store.read(lambda tx: preload(tx, DueSchedules(until=NOON, limit=10)))
    database.sql("UPDATE revisions SET body = 'unreadable'")
    (due,) = store.write(lambda tx: tx.due_schedules(until=NOON, limit=10))
    assert due.schedule.name == "a"


def test_an_unreadable_schedule_does_not_prevent_preloading_others(database: Database) -> None:
    store = database.open()
    broken, sound = due_at_noon(store, "broken", "sound")
    database.sql("UPDATE revisions SET body = 'unreadable' WHERE schedule_id = ?", [broken])
    again = database.open()
    assert "broken" not in foreseen(again, until=NOON)
    assert get_record(again, sound).schedule.name == "sound"


@pytest.mark.parametrize("kind", ["postgres"])
def test_preloading_waits_for_no_lock(database: Database) -> None:
    store = database.open()
    due_at_noon(store, "a")
    with held_open(store, lambda tx: tx.due_schedules(until=NOON, limit=10)):
        assert foreseen(store, until=NOON) == ["a"]
