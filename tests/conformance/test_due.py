"""What is due: the longest waiting first, each held by one claimer, and where a schedule stands after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.builders import (
    NOON,
    TICK,
    add,
    admit,
    get_due,
    leased,
    make_run,
    make_schedule,
    make_standing,
    put,
    revised,
    settle,
)
from tests.conformance.builders import ended as ended_run
from tests.conformance.databases import Database
from tests.conformance.together import held_open, meanwhile
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import RunState
from timewright.core.schedule import Schedule, ScheduleState
from timewright.ports import Stood, Store
from timewright.ports.outlook import Outlook


def due(store: Store, *, now: datetime = NOON, limit: int = 100, since: datetime | None = None) -> list[str]:
    found = store.write(lambda tx: tx.due_schedules(now=now, limit=limit, since=since))
    return [each.schedule.name for each in found]


def waking(name: str, at: datetime | None, **fields: Any) -> Any:
    schedule = make_schedule(name, **fields)
    return revised(schedule, make_standing(next_at=at, wake_at=at))


def test_the_longest_waiting_comes_first(store: Store) -> None:
    put(store, waking("c", NOON), waking("a", NOON - HOUR), waking("b", NOON - MINUTE))
    assert due(store) == ["a", "b", "c"]


def test_those_who_wait_equally_long_come_in_order_of_their_ids(store: Store) -> None:
    rows = [waking(f"s{n}", NOON) for n in range(5)]
    put(store, *reversed(rows))
    assert due(store) == [row.schedule.name for row in sorted(rows, key=lambda row: row.schedule.id)]


def test_a_schedule_is_due_at_its_very_instant_and_not_a_microsecond_before(store: Store) -> None:
    put(store, waking("s", NOON))
    assert due(store, now=NOON - TICK) == []
    assert due(store, now=NOON) == ["s"]


def test_what_never_wakes_is_never_due(store: Store) -> None:
    put(store, waking("manual", None))
    assert due(store, now=NOON + timedelta(days=36_500)) == []


def test_being_due_is_about_when_to_look_and_not_about_what_was_chosen(store: Store) -> None:
    early = revised(make_schedule("early"), make_standing(next_at=NOON + MINUTE, wake_at=NOON))
    late = revised(make_schedule("late"), make_standing(next_at=NOON, wake_at=NOON + MINUTE))
    put(store, early, late)
    assert due(store, now=NOON) == ["early"]


@pytest.mark.parametrize(("limit", "many"), [(0, 0), (1, 1), (3, 3), (100, 5)])
def test_no_more_are_given_than_asked_for(store: Store, limit: int, many: int) -> None:
    put(store, *(waking(f"s{n}", NOON - n * MINUTE) for n in range(5)))
    assert len(due(store, limit=limit)) == many


def test_a_lower_bound_leaves_out_what_woke_before_it(store: Store) -> None:
    put(store, waking("old", NOON - HOUR), waking("new", NOON))
    assert due(store, since=NOON) == ["new"]
    assert due(store, since=NOON - HOUR) == ["old", "new"]
    assert due(store) == ["old", "new"]


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 1024])
def test_shards_share_out_every_schedule_and_none_twice(store: Store, shards: int) -> None:
    put(store, *(waking(f"s{n:03}", NOON) for n in range(200)))
    parts = [
        [each.schedule.name for each in part]
        for which in range(1, shards + 1)
        if (part := _part(store, (which, shards)))
    ]
    assert sorted(name for part in parts for name in part) == [f"s{n:03}" for n in range(200)]
    assert shards > 7 or min(len(part) for part in parts) > 100 / shards, "and fairly"


def _part(store: Store, shard: tuple[int, int]) -> list[Any]:
    return store.write(lambda tx: tx.due_schedules(now=NOON, limit=1000, shard=shard))


def test_a_shard_has_its_own_limit_and_order(store: Store) -> None:
    put(store, *(waking(f"s{n}", NOON - n * MINUTE) for n in range(40)))
    found = store.write(lambda tx: tx.due_schedules(now=NOON, limit=5, shard=(1, 2)))
    assert len(found) == 5
    waits = [each.standing.wake_at or NOON for each in found]
    assert waits == sorted(waits)


def test_a_due_schedule_comes_with_what_it_has_under_way(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    admit(
        store,
        row.schedule.id,
        make_run(row.schedule.id, planned_at=NOON - HOUR),
        make_run(row.schedule.id, planned_at=NOON - MINUTE, state=RunState.HELD),
        make_run(row.schedule.id, planned_at=NOON - TICK, state=RunState.SKIPPED),
    )
    (found,) = store.write(lambda tx: tx.due_schedules(now=NOON, limit=10))
    assert (found.flight.live, found.flight.held) == (1, 1)
    newest = store.read(lambda tx: tx.find_occurrence(row.schedule.id, NOON - TICK))
    assert newest is not None
    assert found.last_run == newest.id


def test_two_claimers_at_the_same_time_never_get_the_same_schedule(database: Database) -> None:
    one, two = database.open(), database.open()
    put(one, *(waking(f"s{n}", NOON) for n in range(6)))

    def claim(tx: Any) -> list[Any]:
        return list(tx.due_schedules(now=NOON, limit=3))

    def advance(tx: Any, claimed: list[Any]) -> list[str]:
        moved = [replace(each.standing, wake_at=NOON + HOUR, cursor=NOON) for each in claimed]
        tx.stand([Stood(c.schedule.id, standing) for c, standing in zip(claimed, moved, strict=True)])
        return [each.schedule.name for each in claimed]

    with held_open(one, claim, advance) as held:
        with meanwhile(lambda: two.write(lambda tx: advance(tx, claim(tx)))) as other:
            if database.kind == "postgres":
                other.result(60)  # has passed over what is held, while it is held
            held_names = held.release()
        assert sorted(held_names + other.result()) == [f"s{n}" for n in range(6)]


def test_postgres_passes_over_rows_that_another_holds_and_sqlite_waits_for_them(database: Database) -> None:
    one, two = database.open(), database.open()
    put(one, waking("held", NOON), waking("free", NOON))

    def claim(tx: Any) -> list[str]:
        return [each.schedule.name for each in tx.due_schedules(now=NOON, limit=1)]

    with held_open(one, claim) as held, meanwhile(lambda: due(two)) as other:
        assert held.first == ["held"]
        if database.kind == "postgres":
            assert other.result(60) == ["free"]
        else:
            with pytest.raises(TimeoutError):
                other.result(0.2)
        held.release()
        assert other.result(60) == (["free"] if database.kind == "postgres" else ["held", "free"])


def test_standing_is_written_for_many_and_read_back(store: Store) -> None:
    rows = [waking(f"s{n}", NOON) for n in range(50)]
    put(store, *rows)
    moved = {
        row.schedule.id: make_standing(
            state=ScheduleState.PAUSED,
            reason="asked",
            cursor=NOON + n * TICK,
            next_at=NOON + HOUR,
            failures=n,
            runs=n + 1,
            missed=n + 2,
            paused_at=NOON,
            paused_until=NOON + n * MINUTE,
            last_started_at=NOON - MINUTE,
            last_finished_at=NOON - TICK,
        )
        for n, row in enumerate(rows)
    }
    store.write(lambda tx: tx.stand([Stood(i, standing) for i, standing in moved.items()]))
    found = store.read(lambda tx: tx.get_schedules(moved))
    assert {i: each.standing for i, each in found.items()} == moved


def test_standing_of_nobody_changes_nothing(store: Store) -> None:
    put(store, waking("s", NOON))
    store.write(lambda tx: tx.stand([]))
    assert due(store) == ["s"]


def test_a_newest_run_stays_until_another_is_named(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    (run,) = admit(store, row.schedule.id, make_run(row.schedule.id))
    store.write(lambda tx: tx.stand([Stood(row.schedule.id, row.standing)]))
    assert get_due(store, row.schedule.id).last_run == run.id


def test_a_schedule_that_was_moved_on_is_due_again_only_at_its_new_instant(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    store.write(
        lambda tx: tx.stand([Stood(row.schedule.id, make_standing(next_at=NOON + HOUR, cursor=NOON))])
    )
    assert due(store, now=NOON + HOUR - TICK) == []
    assert due(store, now=NOON + HOUR) == ["s"]


def test_streaks_are_forgotten_and_nothing_else_is(store: Store) -> None:
    failing = revised(make_schedule("failing"), make_standing(failures=3, missed=4))
    steady = revised(make_schedule("steady"), make_standing(failures=2))
    put(store, failing, steady)
    store.write(lambda tx: tx.clear_streaks([failing.schedule.id]))
    store.write(lambda tx: tx.clear_streaks([]))
    assert get_due(store, failing.schedule.id).standing == replace(failing.standing, failures=0)
    assert get_due(store, steady.schedule.id).standing == steady.standing


def test_an_edit_moves_when_a_schedule_is_due(store: Store) -> None:
    schedule: Schedule = make_schedule("s")
    put(store, revised(schedule, make_standing(next_at=NOON)))
    put(store, revised(replace(schedule, revision=2), make_standing(next_at=NOON + HOUR), replaces=1))
    assert due(store, now=NOON) == []


def test_the_store_wakes_for_the_earliest_of_everything(store: Store) -> None:
    assert store.read(lambda tx: tx.next_wake()) is None
    put(store, waking("s", NOON + 3 * HOUR), waking("never", None))
    assert store.read(lambda tx: tx.next_wake()) == NOON + 3 * HOUR
    add(store, make_run(fire_at=NOON + 2 * HOUR))
    assert store.read(lambda tx: tx.next_wake()) == NOON + 2 * HOUR
    put(store, waking("sooner", NOON + HOUR + TICK))
    assert store.read(lambda tx: tx.next_wake()) == NOON + HOUR + TICK


def test_a_run_that_will_be_tried_again_wakes_the_store_at_its_instant(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended_run(held, RunState.READY, fire_at=NOON + 30 * MINUTE))
    assert store.read(lambda tx: tx.next_wake()) == NOON + 30 * MINUTE


def test_the_store_knows_when_the_first_live_lease_ends(store: Store) -> None:
    assert store.read(lambda tx: tx.next_lease_end()) is None
    runs = [make_run(), make_run()]
    add(store, *runs)
    leased(store, runs[0], length=2 * HOUR)
    leased(store, runs[1], length=HOUR)
    assert store.read(lambda tx: tx.next_lease_end()) == NOON + HOUR


def test_one_look_tells_what_each_question_alone_would(store: Store) -> None:
    def look(*, more: bool = True) -> Outlook:
        return store.read(lambda tx: tx.outlook(holder="worker-1", ends=more, held=more))

    assert look() == Outlook(has_ends=True)
    put(store, waking("s", NOON + 3 * HOUR))
    runs = [make_run(), make_run(fire_at=NOON + 2 * HOUR), make_run(state=RunState.HELD), make_run()]
    add(store, *runs)
    leased(store, runs[0], length=HOUR)
    seen = look()
    assert (seen.due, seen.asleep, seen.wake_at) == (NOON + 3 * HOUR, NOON + 2 * HOUR, NOON + 2 * HOUR)
    assert (seen.ready, seen.lease_end, seen.freeable) == (True, NOON + HOUR, True)
    assert seen.asked == ()
    quick = look(more=False)
    assert (quick.lease_end, quick.freeable, quick.wake_at) == (None, False, seen.wake_at)
    store.write(lambda tx: tx.ask_to_cancel([(runs[0].id, NOON + MINUTE)], at=NOON, reason="enough"))
    assert [run.id for run in look(more=False).asked] == [runs[0].id]
    assert look().lease_end == NOON + MINUTE


def test_whoever_serves_a_shard_wakes_for_its_own_at_once_and_for_others_later(store: Store) -> None:
    put(store, *[waking(f"s{n}", NOON + n * MINUTE) for n in range(20)])
    mine = {row.schedule.id for row in _part_at(store, (2, 2))}
    first = min(n for n in range(20) if _id_of(store, f"s{n}") in mine)

    def wake(shard: tuple[int, int] | None, patience: timedelta) -> datetime | None:
        seen = store.read(lambda tx: tx.outlook(holder="w0", shard=shard, patience=patience)).wake_at
        assert seen == store.read(lambda tx: tx.next_wake(shard=shard, patience=patience))
        return seen

    assert wake((1, 1), HOUR) == NOON
    assert wake((2, 2), HOUR) == NOON + first * MINUTE
    assert wake(None, HOUR) == NOON + HOUR
    assert wake((2, 2), timedelta(0)) == NOON, "without patience others' are as urgent as one's own"
    add(store, make_run(fire_at=NOON + TICK))
    assert wake(None, HOUR) == NOON + TICK, "a run that sleeps is everyone's"


def _part_at(store: Store, shard: tuple[int, int]) -> list[Any]:
    return store.write(lambda tx: tx.due_schedules(now=NOON + HOUR, limit=1000, shard=shard))


def _id_of(store: Store, name: str) -> str | None:
    return store.read(lambda tx: tx.find_schedule("default", name))
