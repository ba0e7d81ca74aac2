"""Schedules and revisions: unique names, and edits of the latest revision only."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    get_record,
    make_progress,
    make_schedule,
    new_id,
    pages,
    put,
    schedule_write,
)
from timewright.core.moments import HOUR
from timewright.core.recurrence.triggers import Every
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import Conflict, InvalidInput, NotFound
from timewright.ports import ScheduleFilter, Store
from timewright.ports.schedules import RevisionsOf, ScheduleHead, SchedulesAtStart, SchedulesNamed


def names(rows: Any) -> list[str]:
    return [due.schedule.name for due in rows]


def find(store: Store, **which: Any) -> list[str]:
    return names(store.read(lambda tx: tx.find(ScheduleFilter(**which))).rows)


@pytest.mark.parametrize("many", [0, 1, 250])
def test_schedules_are_written_many_at_a_time_and_come_back_by_id(store: Store, many: int) -> None:
    rows = [schedule_write(make_schedule(f"s{n:03}")) for n in range(many)]
    put(store, *rows)
    found = store.read(lambda tx: tx.get_schedules([row.schedule.id for row in rows]))
    assert {i: due.schedule for i, due in found.items()} == {row.schedule.id: row.schedule for row in rows}


def test_a_new_schedule_comes_back_with_its_progress_and_nothing_in_flight(store: Store) -> None:
    schedule, progress = make_schedule(), make_progress(failures=2, runs=7)
    put(store, schedule_write(schedule, progress))
    due = get_record(store, schedule.id)
    assert (due.schedule, due.progress) == (schedule, progress)
    assert (due.in_flight.live, due.in_flight.held, due.last_run) == (0, 0, "")


def test_an_id_that_does_not_exist_is_left_out(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    asked = [schedule.id, new_id("schedule")]
    assert list(store.read(lambda tx: tx.get_schedules(asked))) == [schedule.id]
    assert store.read(lambda tx: tx.get_schedules([])) == {}


def test_a_locked_read_gives_the_same_rows(store: Store) -> None:
    schedule = make_schedule()
    put(store, schedule_write(schedule))
    locked = store.write(lambda tx: tx.get_schedules([schedule.id], lock=True))
    assert locked[schedule.id].schedule == schedule


def test_a_schedule_is_found_by_name_only_in_its_namespace(store: Store) -> None:
    here, there = make_schedule("report", namespace="here"), make_schedule("report", namespace="there")
    put(store, schedule_write(here), schedule_write(there))

    def found(namespace: str, name: str) -> list[str]:
        return [one.id for one in store.read(lambda tx: tx.select(SchedulesNamed(namespace, [name])))]

    assert (found("here", "report"), found("there", "report")) == ([here.id], [there.id])
    assert found("elsewhere", "report") == found("here", "Report") == []


def test_a_name_is_taken_once_per_namespace(store: Store) -> None:
    put(store, schedule_write(make_schedule("report")))
    with pytest.raises(Conflict, match="report"):
        put(store, schedule_write(make_schedule("report")))
    assert len(find(store)) == 1


def test_a_name_cannot_be_given_twice_in_one_batch(store: Store) -> None:
    with pytest.raises(Conflict):
        put(store, schedule_write(make_schedule("report")), schedule_write(make_schedule("report")))
    assert find(store) == []


def test_a_large_batch_with_a_taken_name_changes_nothing(store: Store) -> None:
    put(store, schedule_write(make_schedule("s150")))
    with pytest.raises(Conflict):
        put(store, *(schedule_write(make_schedule(f"s{n:03}")) for n in range(200)))
    assert find(store, limit=1000) == ["s150"]


def test_an_edit_replaces_the_last_revision_and_keeps_the_old_one(store: Store) -> None:
    first = make_schedule(trigger=Every(HOUR, NOON))
    second = replace(first, revision=2, trigger=Every(2 * HOUR, NOON))
    put(store, schedule_write(first))
    put(store, schedule_write(second, replaces=1))
    assert get_record(store, first.id).schedule == second
    wanted = [(first.id, 1), (first.id, 2), (first.id, 3)]
    assert store.read(lambda tx: tx.get_revisions(wanted)) == {(first.id, 1): first, (first.id, 2): second}
    assert store.read(lambda tx: tx.get_revisions([])) == {}


def test_an_old_revision_is_restored_as_a_new_one(store: Store) -> None:
    first = make_schedule(description="as it was")
    put(store, schedule_write(first))
    put(store, schedule_write(replace(first, revision=2, description="worse"), replaces=1))
    old = store.read(lambda tx: tx.get_revisions([(first.id, 1)]))[first.id, 1]
    put(store, schedule_write(replace(old, revision=3), replaces=2, actor="ada", reason="back"))
    assert get_record(store, first.id).schedule == replace(first, revision=3)
    assert len(store.read(lambda tx: tx.get_revisions((first.id, n) for n in (1, 2, 3)))) == 3


def test_revisions_come_newest_first_with_actor_and_reason(store: Store) -> None:
    first = make_schedule()
    put(store, schedule_write(first, actor="ada", reason="new"))
    put(
        store,
        schedule_write(replace(first, revision=2), replaces=1, actor="bo", reason="slower", at=NOON + HOUR),
    )
    history = store.read(lambda tx: tx.select(RevisionsOf(first.id)))
    assert [(s.revision, at, actor, reason) for s, at, actor, reason in history] == [
        (2, NOON + HOUR, "bo", "slower"),
        (1, NOON, "ada", "new"),
    ]
    assert store.read(lambda tx: tx.select(RevisionsOf(first.id, limit=1)))[0].schedule.revision == 2


def test_an_edit_of_a_revision_that_is_not_the_last_is_a_conflict_and_changes_nothing(store: Store) -> None:
    first = make_schedule()
    put(store, schedule_write(first))
    put(store, schedule_write(replace(first, revision=2), replaces=1))
    with pytest.raises(Conflict, match="revision 2") as caught:
        put(store, schedule_write(replace(first, revision=2, description="late"), replaces=1))
    assert caught.value.fix
    assert get_record(store, first.id).schedule.description == ""


def test_one_stale_edit_undoes_its_whole_batch(store: Store) -> None:
    one, two = make_schedule("one"), make_schedule("two")
    put(store, schedule_write(one), schedule_write(two))
    with pytest.raises(Conflict):
        put(
            store,
            schedule_write(replace(one, revision=2, description="new"), replaces=1),
            schedule_write(replace(two, revision=8, description="new"), replaces=7),
        )
    assert get_record(store, one.id).schedule == one


def test_an_edit_of_a_schedule_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        put(store, schedule_write(make_schedule(), replaces=1))


def test_an_edit_cannot_take_the_name_of_another(store: Store) -> None:
    one, two = make_schedule("one"), make_schedule("two")
    put(store, schedule_write(one), schedule_write(two))
    with pytest.raises(Conflict, match="one"):
        put(store, schedule_write(replace(two, name="one", revision=2), replaces=1))


def test_a_rename_frees_the_old_name(store: Store) -> None:
    one = make_schedule("one")
    put(store, schedule_write(one))
    put(store, schedule_write(replace(one, name="uno", revision=2), replaces=1))
    put(store, schedule_write(make_schedule("one")))
    assert find(store) == ["one", "uno"]


def test_a_list_is_ordered_by_name_code_point_by_code_point(store: Store) -> None:
    for name in ("b", "A", "_", "a", "B", "é", "Z", "-"):
        put(store, schedule_write(make_schedule(name)))
    assert find(store) == ["-", "A", "B", "Z", "_", "a", "b", "é"]


def test_pages_join_to_the_whole_list_without_a_gap_or_a_repeat(store: Store) -> None:
    put(store, *(schedule_write(make_schedule(f"s{n:02}", namespace=f"n{n % 3}")) for n in range(25)))
    every = pages(lambda c: store.read(lambda tx: tx.find(ScheduleFilter(limit=10, cursor=c))))
    assert [len(page) for page in every] == [10, 10, 5]
    listed = [(due.schedule.namespace, due.schedule.name) for page in every for due in page]
    assert listed == sorted(listed)
    assert len(set(listed)) == 25


def test_a_list_that_fills_its_page_exactly_has_no_next_page(store: Store) -> None:
    put(store, *(schedule_write(make_schedule(f"s{n}")) for n in range(4)))
    page = store.read(lambda tx: tx.find(ScheduleFilter(limit=4)))
    assert (len(page.rows), page.cursor) == (4, "")


def test_a_row_added_behind_the_cursor_does_not_shift_the_pages(store: Store) -> None:
    put(store, *(schedule_write(make_schedule(name)) for name in ("b", "d", "f", "h")))
    first = store.read(lambda tx: tx.find(ScheduleFilter(limit=2)))
    put(store, schedule_write(make_schedule("a")))
    rest = store.read(lambda tx: tx.find(ScheduleFilter(limit=2, cursor=first.cursor)))
    assert names(first.rows) + names(rest.rows) == ["b", "d", "f", "h"]


def test_a_list_is_narrowed_by_namespace_state_group_and_beginning(store: Store) -> None:
    put(
        store,
        schedule_write(make_schedule("mail-a", group="mail")),
        schedule_write(make_schedule("mail-b", group="mail"), make_progress(state=ScheduleState.PAUSED)),
        schedule_write(make_schedule("sync", namespace="other")),
        schedule_write(make_schedule("ma%l", group="odd")),
    )
    assert find(store, namespace="other") == ["sync"]
    assert find(store, state=ScheduleState.PAUSED) == ["mail-b"]
    assert find(store, group="mail") == ["mail-a", "mail-b"]
    assert find(store, name_prefix="mail") == ["mail-a", "mail-b"]
    assert find(store, name_prefix="ma%") == ["ma%l"]
    assert find(store, group="mail", state=ScheduleState.ACTIVE) == ["mail-a"]


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**12])
def test_a_limit_that_makes_no_page_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        find(store, limit=limit)


def test_active_schedules_that_run_at_the_start_are_found(store: Store) -> None:
    first, plain = make_schedule("first", run_at_start=True), make_schedule("plain")
    archived = make_schedule("archived", run_at_start=True)
    gone = make_progress(state=ScheduleState.ARCHIVED, next_at=None)
    rows = [schedule_write(first), schedule_write(plain), schedule_write(archived, gone)]
    store.write(lambda tx: tx.put_schedules(rows))
    assert [one.id for one in store.read(lambda tx: tx.select(SchedulesAtStart()))] == [first.id]


def test_heads_are_found_by_name_in_any_state(store: Store) -> None:
    one, other = make_schedule("one"), make_schedule("other")
    archived = make_progress(state=ScheduleState.ARCHIVED, next_at=None)
    elsewhere = make_schedule("one", namespace="elsewhere")
    rows = [schedule_write(one), schedule_write(other, archived), schedule_write(elsewhere)]
    store.write(lambda tx: tx.put_schedules(rows))
    found = store.read(lambda tx: tx.select(SchedulesNamed("default", ["one", "other", "nobody"])))
    assert sorted(found, key=attrgetter("name")) == [
        ScheduleHead(one.id, "one", 1, ScheduleState.ACTIVE),
        ScheduleHead(other.id, "other", 1, ScheduleState.ARCHIVED),
    ]
