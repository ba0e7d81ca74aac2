"""What is due by an instant is read ahead of it: nothing is decided, nothing is held, nothing is missed."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.conformance.builders import NOON, TICK, get_due, make_schedule, make_standing, put, revised
from tests.conformance.databases import Database
from tests.conformance.together import held_open
from timewright.core.moments import HOUR
from timewright.ports import Store


def due_at_noon(store: Store, *names: str) -> list[str]:
    made = [revised(make_schedule(name), make_standing(next_at=NOON, wake_at=NOON)) for name in names]
    put(store, *made)
    return [row.schedule.id for row in made]


def foreseen(store: Store, *, until: datetime, limit: int = 10) -> list[str]:
    return [schedule.name for schedule in store.read(lambda tx: tx.foresee(until=until, limit=limit))]


def test_those_are_read_that_are_due_by_then_and_no_more_than_asked_for(store: Store) -> None:
    due_at_noon(store, "a", "b", "c")
    put(store, revised(make_schedule("later"), make_standing(next_at=NOON + HOUR, wake_at=NOON + HOUR)))
    assert foreseen(store, until=NOON - TICK) == []
    assert sorted(foreseen(store, until=NOON)) == ["a", "b", "c"]
    assert len(foreseen(store, until=NOON, limit=2)) == 2


def test_what_was_read_ahead_is_not_read_again(database: Database) -> None:
    due_at_noon(database.open(), "a")
    store = database.open()
    store.read(lambda tx: tx.foresee(until=NOON, limit=10))
    database.sql("UPDATE revisions SET body = 'unreadable'")
    (due,) = store.write(lambda tx: tx.due_schedules(now=NOON, limit=10))
    assert due.schedule.name == "a"


def test_one_that_cannot_be_read_keeps_nobody_else_from_being_foreseen(database: Database) -> None:
    store = database.open()
    broken, sound = due_at_noon(store, "broken", "sound")
    database.sql("UPDATE revisions SET body = 'unreadable' WHERE schedule_id = ?", [broken])
    again = database.open()
    assert "broken" not in foreseen(again, until=NOON)
    assert get_due(again, sound).schedule.name == "sound"


@pytest.mark.parametrize("kind", ["postgres"])
def test_whoever_looks_ahead_waits_for_nobody(database: Database) -> None:
    store = database.open()
    due_at_noon(store, "a")
    with held_open(store, lambda tx: tx.due_schedules(now=NOON, limit=10)):
        assert foreseen(store, until=NOON) == ["a"]
