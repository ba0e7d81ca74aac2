"""Looking again and again: what is shown is what the store holds, and what is the same stays the same."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.builders import NOON, add, make_run, make_schedule, make_standing, put, revised, stored
from tests.conformance.databases import Database
from tests.conformance.test_unreadable import SCHEDULE_DAMAGE
from timewright.core.moments import HOUR
from timewright.core.schedule import ScheduleState
from timewright.core.upstream import On
from timewright.errors import UnreadableRow
from timewright.ports import Page, ScheduleFilter, Stood, Store
from timewright.ports.links import Link
from timewright.ports.looks import Look

NAMES = ["a", "a b", "ab", "abc", "b", "ä", "\U0001f600", "z"]


def shown(store: Store, **which: Any) -> Page:
    return store.read(lambda tx: tx.list_shown(ScheduleFilter(**{"namespace": "default", **which})))


def look(store: Store, name: str) -> Look:
    found = store.read(lambda tx: tx.look_at("default", name))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "which",
    [
        {},
        {"name_starts": "a"},
        {"name_starts": "ab"},
        {"name_starts": "ä"},
        {"name_starts": "nobody"},
        {"group": "g"},
        {"state": ScheduleState.ACTIVE},
        {"state": ScheduleState.PAUSED},
        {"state": ScheduleState.PAUSED, "name_starts": "a"},
        {"namespace": "elsewhere"},
        {"namespace": ""},
    ],
)
def test_a_list_shows_page_by_page_what_a_search_finds(store: Store, which: dict[str, Any]) -> None:
    rows = [
        revised(
            make_schedule(name, group="g" if number % 2 else None),
            make_standing(state=ScheduleState.PAUSED if number % 3 == 1 else ScheduleState.ACTIVE),
        )
        for number, name in enumerate(NAMES)
    ]
    put(store, *rows, revised(make_schedule("a", namespace="elsewhere")))
    for limit in (1, 3, 100):
        cursor, wanted = "", {"namespace": "default", **which, "limit": limit}
        for _ in range(len(NAMES) + 1):
            asked = ScheduleFilter(**wanted, cursor=cursor)
            expected = store.read(methodcaller("find_schedules", asked))
            for _ in range(2):
                page = store.read(methodcaller("list_shown", asked))
                assert [(one.schedule, one.standing) for one in page.rows] == [
                    (due.schedule, due.standing) for due in expected.rows
                ]
                assert page.cursor == expected.cursor
            cursor = expected.cursor
            if not cursor:
                break


def test_what_has_not_changed_is_the_very_same_and_what_has_is_not(store: Store) -> None:
    rows = [revised(make_schedule(name)) for name in "abc"]
    put(store, *rows)
    page, before = shown(store), look(store, "b")
    assert shown(store) is page
    assert look(store, "b") is before
    moved = make_standing(next_at=NOON + 2 * HOUR, runs=1)
    store.write(lambda tx: tx.stand([Stood(rows[1].schedule.id, moved)]))
    after = shown(store)
    assert [one is other for one, other in zip(after.rows, page.rows, strict=True)] == [True, False, True]
    assert after.rows[1].standing == look(store, "b").due.standing == moved
    edited = replace(rows[1].schedule, description="new", revision=2)
    put(store, revised(edited, moved, replaces=1))
    assert shown(store).rows[1].schedule == look(store, "b").due.schedule == edited


def test_what_is_undone_is_not_remembered(store: Store) -> None:
    row = revised(make_schedule("a"))
    put(store, row)

    class Undone(Exception):
        """Ends a transaction that shall not be kept."""

    def never(tx: Any) -> None:
        tx.put_schedules([revised(replace(row.schedule, description="never", revision=2), replaces=1)])
        assert tx.list_shown(ScheduleFilter(namespace="default")).rows[0].schedule.description == "never"
        assert tx.look_at("default", "a").due.schedule.description == "never"
        raise Undone

    with pytest.raises(Undone):
        store.write(never)
    put(store, revised(replace(row.schedule, description="meant", revision=2), replaces=1))
    assert shown(store).rows[0].schedule.description == "meant"
    assert look(store, "a").due.schedule.description == "meant"


def test_a_look_says_whether_there_is_more_to_be_asked_for(store: Store) -> None:
    one, other = make_schedule("one"), make_schedule("other")
    put(store, revised(one), revised(other))
    nothing = {"is_asked_for": False, "has_made": False, "has_notes": False}
    assert look(store, "one") == Look(look(store, "one").due, **nothing)
    link = Link(upstream=one.id, downstream=other.id, kind="after", on=On.SUCCESS)
    store.write(lambda tx: tx.put_links(other.id, [link]))
    assert look(store, "one") == Look(look(store, "one").due, **{**nothing, "is_asked_for": True})
    assert look(store, "other") == Look(look(store, "other").due, **nothing)
    made = make_run(other.id, planned_at=NOON + HOUR, created_at=NOON, lane="by hand")
    add(store, made)
    assert look(store, "other").has_made
    note = stored(f"{one.id}/2026-03-10T12:00:00Z", kind="note")
    store.write(lambda tx: tx.put_objects([note]))
    assert (look(store, "one").has_notes, look(store, "other").has_notes) == (True, False)
    assert store.read(lambda tx: tx.look_at("elsewhere", "one")) is None


@pytest.mark.parametrize(
    "damage",
    [
        "a state of a later version",
        "hints that are not hints",
        "an instant beyond the calendar",
        "a body that is not JSON",
        "a revision that is not there",
    ],
)
def test_a_schedule_that_cannot_be_read_is_named_in_a_list_and_refused_by_a_look(
    database: Database, damage: str
) -> None:
    store = database.open()
    rows = [revised(make_schedule(name)) for name in ("bad", "good")]
    put(store, *rows)
    database.sql(SCHEDULE_DAMAGE[damage], [rows[0].schedule.id])
    for _ in range(2):
        page = shown(store)
        assert [one.schedule.name for one in page.rows] == ["good"]
        assert [(one.id, one.name) for one in page.unreadable] == [(rows[0].schedule.id, "bad")]
    with pytest.raises(UnreadableRow):
        look(store, "bad")


def test_schedules_are_named_by_their_ids(database: Database) -> None:
    store = database.open()
    rows = [revised(make_schedule(name)) for name in ("bad", "good")]
    put(store, *rows)
    database.sql(SCHEDULE_DAMAGE["a body that is not JSON"], [rows[0].schedule.id])
    ids = [*(row.schedule.id for row in rows), "sch_nobody"]
    names = store.read(lambda tx: tx.schedule_names(ids))
    assert names == {rows[0].schedule.id: "bad", rows[1].schedule.id: "good"}
    assert store.read(lambda tx: tx.schedule_names([])) == {}
