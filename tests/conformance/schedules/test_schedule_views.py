"""Schedules for display: always current, and unchanged rows return the same object."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

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
    stored,
)
from tests.conformance.support.damage import SCHEDULE_DAMAGE
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.schedule.upstream import EndKind
from timewright.errors import UnreadableRow
from timewright.ports import Page, ProgressUpdate, ScheduleFilter, Store
from timewright.ports.schedules import ScheduleSnapshot, SchedulesWithIds
from timewright.ports.workflow import Link

NAMES = ["a", "a b", "ab", "abc", "b", "ä", "\U0001f600", "z"]


def shown(store: Store, **which: Any) -> Page:
    return store.read(lambda tx: tx.list_schedules(ScheduleFilter(**{"namespace": "default", **which})))


def look(store: Store, name: str) -> ScheduleSnapshot:
    found = store.read(lambda tx: tx.get_schedule_snapshot("default", name))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "which",
    [
        {},
        {"name_prefix": "a"},
        {"name_prefix": "ab"},
        {"name_prefix": "ä"},
        {"name_prefix": "nobody"},
        {"group": "g"},
        {"state": ScheduleState.ACTIVE},
        {"state": ScheduleState.PAUSED},
        {"state": ScheduleState.PAUSED, "name_prefix": "a"},
        {"namespace": "elsewhere"},
        {"namespace": ""},
    ],
)
def test_list_schedules_returns_the_same_pages_as_find(store: Store, which: dict[str, Any]) -> None:
    rows = [
        schedule_write(
            make_schedule(name, group="g" if number % 2 else None),
            make_progress(state=ScheduleState.PAUSED if number % 3 == 1 else ScheduleState.ACTIVE),
        )
        for number, name in enumerate(NAMES)
    ]
    put(store, *rows, schedule_write(make_schedule("a", namespace="elsewhere")))
    for limit in (1, 3, 100):
        cursor, wanted = "", {"namespace": "default", **which, "limit": limit}
        for _ in range(len(NAMES) + 1):
            asked = ScheduleFilter(**wanted, cursor=cursor)
            expected = store.read(methodcaller("find", asked))
            for _ in range(2):
                page = store.read(methodcaller("list_schedules", asked))
                assert [(one.schedule, one.progress) for one in page.rows] == [
                    (due.schedule, due.progress) for due in expected.rows
                ]
                assert page.cursor == expected.cursor
            cursor = expected.cursor
            if not cursor:
                break


def test_an_unchanged_schedule_is_the_same_object(store: Store) -> None:
    rows = [schedule_write(make_schedule(name)) for name in "abc"]
    put(store, *rows)
    page, before = shown(store), look(store, "b")
    assert shown(store) is page
    assert look(store, "b") is before
    moved = make_progress(next_at=NOON + 2 * HOUR, runs=1)
    store.write(lambda tx: tx.save_progress([ProgressUpdate(rows[1].schedule.id, moved)]))
    after = shown(store)
    assert [one is other for one, other in zip(after.rows, page.rows, strict=True)] == [True, False, True]
    assert after.rows[1].progress == look(store, "b").record.progress == moved
    edited = replace(rows[1].schedule, description="new", revision=2)
    put(store, schedule_write(edited, moved, replaces=1))
    assert shown(store).rows[1].schedule == look(store, "b").record.schedule == edited


def test_rolled_back_rows_are_not_cached(store: Store) -> None:
    row = schedule_write(make_schedule("a"))
    put(store, row)

    class Undone(Exception):
        """Raised by a test to roll back a transaction."""

    def never(tx: Any) -> None:
        tx.put_schedules([schedule_write(replace(row.schedule, description="never", revision=2), replaces=1)])
        assert tx.list_schedules(ScheduleFilter(namespace="default")).rows[0].schedule.description == "never"
        assert tx.get_schedule_snapshot("default", "a").record.schedule.description == "never"
        raise Undone

    with pytest.raises(Undone):
        store.write(never)
    put(store, schedule_write(replace(row.schedule, description="meant", revision=2), replaces=1))
    assert shown(store).rows[0].schedule.description == "meant"
    assert look(store, "a").record.schedule.description == "meant"


def test_a_snapshot_says_which_related_rows_exist(store: Store) -> None:
    one, other = make_schedule("one"), make_schedule("other")
    put(store, schedule_write(one), schedule_write(other))
    nothing = dict.fromkeys(("has_downstream", "has_manual_runs", "has_notes", "has_skips"), False)
    assert look(store, "one") == ScheduleSnapshot(look(store, "one").record, **nothing)
    link = Link(upstream=one.id, downstream=other.id, kind="after", on=EndKind.SUCCESS)
    store.write(lambda tx: tx.replace_links(other.id, [link]))
    assert look(store, "one") == ScheduleSnapshot(
        look(store, "one").record, **{**nothing, "has_downstream": True}
    )
    assert look(store, "other") == ScheduleSnapshot(look(store, "other").record, **nothing)
    made = make_run(other.id, planned_at=NOON + HOUR, created_at=NOON, dedupe_scope="by hand")
    add(store, made)
    assert look(store, "other").has_manual_runs
    note = stored(f"{one.id}/2026-03-10T12:00:00Z", kind="note")
    store.write(lambda tx: tx.put_objects([note]))
    assert (look(store, "one").has_notes, look(store, "other").has_notes) == (True, False)
    assert store.read(lambda tx: tx.get_schedule_snapshot("elsewhere", "one")) is None


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
def test_an_unreadable_schedule_is_listed_apart_and_raises_when_read_alone(
    database: Database, damage: str
) -> None:
    store = database.open()
    rows = [schedule_write(make_schedule(name)) for name in ("bad", "good")]
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
    rows = [schedule_write(make_schedule(name)) for name in ("bad", "good")]
    put(store, *rows)
    database.sql(SCHEDULE_DAMAGE["a body that is not JSON"], [rows[0].schedule.id])
    ids = [*(row.schedule.id for row in rows), "sch_nobody"]
    names = {one.id: one.name for one in store.read(lambda tx: tx.select(SchedulesWithIds(ids)))}
    assert names == {rows[0].schedule.id: "bad", rows[1].schedule.id: "good"}
    assert store.read(lambda tx: tx.select(SchedulesWithIds([]))) == []
