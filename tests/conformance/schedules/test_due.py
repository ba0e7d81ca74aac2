"""Due schedules: longest waiting first, claimed once, and their progress afterwards."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    admit,
    get_record,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
    settle,
)
from tests.conformance.support.builders import ended as ended_run
from tests.conformance.support.concurrency import held_open, meanwhile
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE, to_micros
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.ports import ProgressUpdate, Store
from timewright.ports.overview import PendingWork
from timewright.ports.schedules import SchedulesNamed


def due(store: Store, *, now: datetime = NOON, limit: int = 100, since: datetime | None = None) -> list[str]:
    found = store.write(lambda tx: tx.due_schedules(until=now, limit=limit, since=since))
    return [each.schedule.name for each in found]


def waking(name: str, at: datetime | None, **fields: Any) -> Any:
    schedule = make_schedule(name, **fields)
    return schedule_write(schedule, make_progress(next_at=at, wake_at=at))


def test_the_longest_waiting_comes_first(store: Store) -> None:
    put(store, waking("c", NOON), waking("a", NOON - HOUR), waking("b", NOON - MINUTE))
    assert due(store) == ["a", "b", "c"]


def test_equally_due_schedules_come_in_id_order(store: Store) -> None:
    rows = [waking(f"s{n}", NOON) for n in range(5)]
    put(store, *reversed(rows))
    assert due(store) == [row.schedule.name for row in sorted(rows, key=lambda row: row.schedule.id)]


def test_a_schedule_is_due_at_its_very_instant_and_not_a_microsecond_before(store: Store) -> None:
    put(store, waking("s", NOON))
    assert due(store, now=NOON - TICK) == []
    assert due(store, now=NOON) == ["s"]


def test_a_schedule_without_a_wake_up_is_never_due(store: Store) -> None:
    put(store, waking("manual", None))
    assert due(store, now=NOON + timedelta(days=36_500)) == []


def test_wake_at_decides_when_a_schedule_is_due(store: Store) -> None:
    early = schedule_write(make_schedule("early"), make_progress(next_at=NOON + MINUTE, wake_at=NOON))
    late = schedule_write(make_schedule("late"), make_progress(next_at=NOON, wake_at=NOON + MINUTE))
    put(store, early, late)
    assert due(store, now=NOON) == ["early"]


@pytest.mark.parametrize(("limit", "many"), [(0, 0), (1, 1), (3, 3), (100, 5)])
def test_due_schedules_respect_the_limit(store: Store, limit: int, many: int) -> None:
    put(store, *(waking(f"s{n}", NOON - n * MINUTE) for n in range(5)))
    assert len(due(store, limit=limit)) == many


def test_due_schedules_before_since_are_left_out(store: Store) -> None:
    put(store, waking("old", NOON - HOUR), waking("new", NOON))
    assert due(store, since=NOON) == ["new"]
    assert due(store, since=NOON - HOUR) == ["old", "new"]
    assert due(store) == ["old", "new"]


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 1024])
def test_shards_share_out_every_schedule_and_none_twice(store: Store, shards: int) -> None:
    # The shard depends on the id only; ids that are always the same make the shares so too.
    put(store, *(waking(f"s{n:03}", NOON, id=f"sch_01KKBSWHG0{n:016}") for n in range(200)))
    parts = [
        [each.schedule.name for each in part]
        for which in range(1, shards + 1)
        if (part := _part(store, (which, shards)))
    ]
    assert sorted(name for part in parts for name in part) == [f"s{n:03}" for n in range(200)]
    assert shards > 7 or min(len(part) for part in parts) > 100 / shards, "and fairly"


def _part(store: Store, shard: tuple[int, int]) -> list[Any]:
    return store.write(lambda tx: tx.due_schedules(until=NOON, limit=1000, shard=shard))


def test_a_shard_has_its_own_limit_and_order(store: Store) -> None:
    put(store, *(waking(f"s{n}", NOON - n * MINUTE) for n in range(40)))
    found = store.write(lambda tx: tx.due_schedules(until=NOON, limit=5, shard=(1, 2)))
    assert len(found) == 5
    waits = [each.progress.wake_at or NOON for each in found]
    assert waits == sorted(waits)


def test_a_due_schedule_comes_with_its_in_flight_counts(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    admit(
        store,
        row.schedule.id,
        make_run(row.schedule.id, planned_at=NOON - HOUR),
        make_run(row.schedule.id, planned_at=NOON - MINUTE, state=RunState.HELD),
        make_run(row.schedule.id, planned_at=NOON - TICK, state=RunState.SKIPPED),
    )
    (found,) = store.write(lambda tx: tx.due_schedules(until=NOON, limit=10))
    assert (found.in_flight.live, found.in_flight.held) == (1, 1)
    newest = store.read(lambda tx: tx.find_occurrence(row.schedule.id, NOON - TICK))
    assert newest is not None
    assert found.last_run == newest.id


def test_two_claimers_at_the_same_time_never_get_the_same_schedule(database: Database) -> None:
    one, two = database.open(), database.open()
    put(one, *(waking(f"s{n}", NOON) for n in range(6)))

    def claim(tx: Any) -> list[Any]:
        return list(tx.due_schedules(until=NOON, limit=3))

    def advance(tx: Any, claimed: list[Any]) -> list[str]:
        moved = [replace(each.progress, wake_at=NOON + HOUR, cursor=NOON) for each in claimed]
        tx.save_progress(
            [ProgressUpdate(c.schedule.id, progress) for c, progress in zip(claimed, moved, strict=True)]
        )
        return [each.schedule.name for each in claimed]

    with held_open(one, claim, advance) as held:
        with meanwhile(lambda: two.write(lambda tx: advance(tx, claim(tx)))) as other:
            if database.kind == "postgres":
                other.result(60)  # has passed over what is held, while it is held
            held_names = held.release()
        assert sorted(held_names + other.result()) == [f"s{n}" for n in range(6)]


def test_postgres_skips_locked_rows_and_sqlite_waits(database: Database) -> None:
    one, two = database.open(), database.open()
    put(one, waking("held", NOON), waking("free", NOON))

    def claim(tx: Any) -> list[str]:
        return [each.schedule.name for each in tx.due_schedules(until=NOON, limit=1)]

    with held_open(one, claim) as held, meanwhile(lambda: due(two)) as other:
        assert held.first == ["held"]
        if database.kind == "postgres":
            assert other.result(60) == ["free"]
        else:
            with pytest.raises(TimeoutError):
                other.result(0.2)
        held.release()
        assert other.result(60) == (["free"] if database.kind == "postgres" else ["held", "free"])


def test_progress_is_saved_for_many_schedules(store: Store) -> None:
    rows = [waking(f"s{n}", NOON) for n in range(50)]
    put(store, *rows)
    moved = {
        row.schedule.id: make_progress(
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
    store.write(lambda tx: tx.save_progress([ProgressUpdate(i, progress) for i, progress in moved.items()]))
    found = store.read(lambda tx: tx.get_schedules(moved))
    assert {i: each.progress for i, each in found.items()} == moved


def test_saving_no_progress_changes_nothing(store: Store) -> None:
    put(store, waking("s", NOON))
    store.write(lambda tx: tx.save_progress([]))
    assert due(store) == ["s"]


def test_the_newest_run_stays_until_another_is_saved(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    (run,) = admit(store, row.schedule.id, make_run(row.schedule.id))
    store.write(lambda tx: tx.save_progress([ProgressUpdate(row.schedule.id, row.progress)]))
    assert get_record(store, row.schedule.id).last_run == run.id


def test_a_schedule_that_was_moved_on_is_due_again_only_at_its_new_instant(store: Store) -> None:
    row = waking("s", NOON)
    put(store, row)
    store.write(
        lambda tx: tx.save_progress(
            [ProgressUpdate(row.schedule.id, make_progress(next_at=NOON + HOUR, cursor=NOON))]
        )
    )
    assert due(store, now=NOON + HOUR - TICK) == []
    assert due(store, now=NOON + HOUR) == ["s"]


def test_schedules_whose_last_run_failed_are_found_among_others(store: Store) -> None:
    failing = schedule_write(make_schedule("failing"), make_progress(failures=3))
    other = schedule_write(make_schedule("other"), make_progress(failures=2))
    steady = schedule_write(make_schedule("steady"), make_progress())
    put(store, failing, other, steady)
    asked = [failing.schedule.id, steady.schedule.id]
    assert store.read(lambda tx: tx.read_run_end_effects(asked)).failing == {failing.schedule.id}
    assert store.read(lambda tx: tx.read_run_end_effects([])).failing == frozenset()


def test_an_edit_moves_when_a_schedule_is_due(store: Store) -> None:
    schedule: Schedule = make_schedule("s")
    put(store, schedule_write(schedule, make_progress(next_at=NOON)))
    put(store, schedule_write(replace(schedule, revision=2), make_progress(next_at=NOON + HOUR), replaces=1))
    assert due(store, now=NOON) == []


def test_the_store_wakes_for_the_earliest_of_everything(store: Store) -> None:
    assert store.read(lambda tx: tx.read_pending_work().wake_at) is None
    put(store, waking("s", NOON + 3 * HOUR), waking("never", None))
    assert store.read(lambda tx: tx.read_pending_work().wake_at) == NOON + 3 * HOUR
    add(store, make_run(fire_at=NOON + 2 * HOUR))
    assert store.read(lambda tx: tx.read_pending_work().wake_at) == NOON + 2 * HOUR
    put(store, waking("sooner", NOON + HOUR + TICK))
    assert store.read(lambda tx: tx.read_pending_work().wake_at) == NOON + HOUR + TICK


def test_a_run_that_will_be_tried_again_wakes_the_store_at_its_instant(store: Store) -> None:
    run = make_run()
    add(store, run)
    (held,) = leased(store, run)
    settle(store, ended_run(held, RunState.READY, fire_at=NOON + 30 * MINUTE))
    assert store.read(lambda tx: tx.read_pending_work().wake_at) == NOON + 30 * MINUTE


def test_the_store_knows_when_the_first_live_lease_ends(store: Store) -> None:
    assert store.read(lambda tx: tx.read_pending_work(with_lease_end=True).lease_expires_at) is None
    runs = [make_run(), make_run()]
    add(store, *runs)
    leased(store, runs[0], length=2 * HOUR)
    leased(store, runs[1], length=HOUR)
    assert store.read(lambda tx: tx.read_pending_work(with_lease_end=True).lease_expires_at) == NOON + HOUR


def test_pending_work_matches_the_separate_queries(store: Store) -> None:
    def look(*, more: bool = True) -> PendingWork:
        return store.read(
            lambda tx: tx.read_pending_work(holder="worker-1", with_lease_end=more, with_held=more)
        )

    assert look() == PendingWork(includes_lease_end=True)
    put(store, waking("s", NOON + 3 * HOUR))
    runs = [make_run(), make_run(fire_at=NOON + 2 * HOUR), make_run(state=RunState.HELD), make_run()]
    add(store, *runs)
    leased(store, runs[0], length=HOUR)
    seen = look()
    assert (seen.schedule_due_at, seen.run_due_at, seen.wake_at) == (
        NOON + 3 * HOUR,
        NOON + 2 * HOUR,
        NOON + 2 * HOUR,
    )
    assert (seen.has_ready_runs, seen.lease_expires_at, seen.has_releasable_runs) == (True, NOON + HOUR, True)
    assert seen.cancel_requested == ()
    quick = look(more=False)
    assert (quick.lease_expires_at, quick.has_releasable_runs, quick.wake_at) == (None, False, seen.wake_at)
    store.write(lambda tx: tx.request_cancel([(runs[0].id, NOON + MINUTE)], at=NOON, reason="enough"))
    assert [run.id for run in look(more=False).cancel_requested] == [runs[0].id]
    assert look().lease_expires_at == NOON + MINUTE


def test_a_shard_wakes_for_its_own_schedules_first_and_for_orphans_later(store: Store) -> None:
    put(store, *[waking(f"s{n}", NOON + n * MINUTE) for n in range(20)])
    mine = {row.schedule.id for row in _part_at(store, (2, 2))}
    first = min(n for n in range(20) if _id_of(store, f"s{n}") in mine)

    def wake(shard: tuple[int, int] | None, orphan_after: timedelta) -> datetime | None:
        seen = store.read(
            lambda tx: tx.read_pending_work(holder="w0", shard=shard, orphan_after=orphan_after)
        ).wake_at
        assert seen == store.read(
            lambda tx: tx.read_pending_work(shard=shard, orphan_after=orphan_after).wake_at
        )
        return seen

    assert wake((1, 1), HOUR) == NOON
    assert wake((2, 2), HOUR) == NOON + first * MINUTE
    assert wake(None, HOUR) == NOON + HOUR
    assert wake((2, 2), timedelta(0)) == NOON, (
        "without a delay the schedules of others are as urgent as its own"
    )
    add(store, make_run(fire_at=NOON + TICK))
    assert wake(None, HOUR) == NOON + TICK, "a run that sleeps is everyone's"


def _part_at(store: Store, shard: tuple[int, int]) -> list[Any]:
    return store.write(lambda tx: tx.due_schedules(until=NOON + HOUR, limit=1000, shard=shard))


def _id_of(store: Store, name: str) -> str | None:
    found = store.read(lambda tx: tx.select(SchedulesNamed("default", [name])))
    return found[0].id if found else None


def probe(store: Store, now: datetime, *, with_lease_end: bool = False) -> PendingWork:
    found: PendingWork = store.read(lambda tx: tx.read_pending_work(now=now, with_lease_end=with_lease_end))
    return found


@pytest.fixture
def slow_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every complete probe counts as slow, and the next one is due in a long time."""
    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBE_S", 0.0)
    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBES", 1)
    monkeypatch.setattr("timewright.stores.queries.tick.PROBE_PAUSE_FACTOR", 1e6)


@pytest.mark.usefixtures("slow_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_after_a_slow_probe_the_next_ones_begin_at_recent_instants_and_say_so(database: Database) -> None:
    store, other = database.open(), database.open()
    put(store, waking("first", NOON + MINUTE))
    first = probe(store, NOON)
    assert (first.wake_at, first.complete_in) == (NOON + MINUTE, None)
    put(other, waking("old", NOON - HOUR), waking("new", NOON + TICK))
    found = probe(store, NOON)
    assert found.wake_at == NOON + TICK
    assert found.complete_in is not None
    assert store.read(lambda tx: tx.read_pending_work()).wake_at == NOON - HOUR
    # What this process writes itself is seen at once.
    put(store, waking("older", NOON - 2 * HOUR))
    assert probe(store, NOON).wake_at == NOON - 2 * HOUR


@pytest.mark.usefixtures("slow_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_only_several_slow_probes_in_a_row_make_the_next_one_partial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timewright.stores.queries.tick.PAUSED_PROBE_S", inf)

    def is_partial(*, next_is_slow: bool) -> bool:
        slow = 0.0 if next_is_slow else inf
        monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBE_S", slow)
        return probe(store, NOON).complete_in is not None

    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBES", 3)
    put(store, waking("first", NOON + HOUR))
    slow_ones = [True, True, False, True, True, True]
    assert not any(is_partial(next_is_slow=slow) for slow in slow_ones)
    assert is_partial(next_is_slow=True)


@pytest.mark.parametrize("kind", ["postgres"])
def test_after_a_probe_that_passed_dead_rows_complete_ones_pause_for_a_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timewright.stores.queries.tick.PAUSED_PROBE_S", 0.0)
    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBE_S", inf)
    monkeypatch.setattr("timewright.stores.queries.tick.PROBE_PAUSE_FACTOR", 1e6)
    monkeypatch.setattr("timewright.stores.queries.tick.MAX_PAUSE_S", 3600.0)
    store, other = database.open(), database.open()
    put(store, waking("first", NOON + MINUTE))
    assert probe(store, NOON).complete_in is None
    put(other, waking("old", NOON - HOUR), waking("new", NOON + TICK))
    found = probe(store, NOON)
    assert found.wake_at == NOON + TICK
    assert found.complete_in is not None
    assert found.complete_in <= HOUR
    monkeypatch.setattr("timewright.stores.queries.tick.monotonic", lambda: monotonic() + 3600)
    found = probe(store, NOON)
    assert (found.wake_at, found.complete_in) == (NOON - HOUR, None)


@pytest.mark.usefixtures("slow_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_a_clock_that_was_set_back_is_followed_by_a_complete_probe(store: Store) -> None:
    put(store, waking("first", NOON))
    probe(store, NOON + HOUR)
    probe(store, NOON + 2 * HOUR)
    assert probe(store, NOON - HOUR).complete_in is None


@pytest.fixture
def sliced_probes(slow_probes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice of the past counts as slow, and each probe searches one."""
    assert slow_probes is None
    monkeypatch.setattr("timewright.stores.queries.tick.PROBE_PAUSE_FACTOR", 0)
    monkeypatch.setattr("timewright.stores.queries.tick.QUICK_SLICE_S", 0.0)
    monkeypatch.setattr("timewright.stores.queries.tick.MIN_SLICE_SHARE", 4)


@pytest.mark.usefixtures("sliced_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_a_search_of_the_past_in_slices_finds_what_was_written_late(database: Database) -> None:
    store, other = database.open(), database.open()
    put(store, waking("first", NOON + MINUTE))
    assert probe(store, NOON, with_lease_end=True).complete_in is None
    run = make_run(fire_at=NOON - HOUR)
    put(other, waking("old", NOON - 100 * HOUR))
    add(other, run)
    (run,) = leased(other, run, at=NOON - HOUR, length=MINUTE)
    found = []
    for _ in range(200):
        found.append(probe(store, NOON, with_lease_end=True))
        if found[-1].complete_in is None:
            break
    assert len(found) > 20, "slices, not the whole past at once"
    assert found[-1].complete_in is None
    assert {each.wake_at for each in found} == {NOON + MINUTE, NOON - 100 * HOUR}
    assert {each.lease_expires_at for each in found} == {None, NOON - HOUR + MINUTE}


@pytest.mark.usefixtures("sliced_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_a_search_that_needs_few_slices_makes_probes_complete_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = database.open(), database.open()
    put(store, waking("first", NOON + MINUTE))
    probe(store, NOON)
    monkeypatch.setattr("timewright.stores.queries.tick.QUICK_SLICE_S", inf)
    monkeypatch.setattr("timewright.stores.queries.tick.SLOW_PROBE_S", inf)
    assert probe(store, NOON).complete_in is not None
    assert [probe(store, NOON).complete_in is None for _ in range(20)][-1]
    put(other, waking("old", NOON - HOUR))
    assert probe(store, NOON).wake_at == NOON - HOUR


@pytest.mark.usefixtures("slow_probes")
@pytest.mark.parametrize("kind", ["postgres"])
def test_the_end_of_leases_is_not_searched_again_before_it_has_come(database: Database) -> None:
    store, other = database.open(), database.open()
    put(store, waking("first", NOON + HOUR))
    run = make_run()
    add(store, run)
    (run,) = leased(store, run, length=MINUTE)
    assert probe(store, NOON, with_lease_end=True).lease_expires_at == NOON + MINUTE
    settle(other, ended_run(run))
    assert probe(store, NOON, with_lease_end=True).lease_expires_at == NOON + MINUTE
    assert probe(store, NOON + MINUTE - TICK, with_lease_end=True).lease_expires_at == NOON + MINUTE
    assert probe(store, NOON + MINUTE, with_lease_end=True).lease_expires_at is None


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_pinned_snapshot_does_not_slow_down_probes_of_recent_instants(database: Database) -> None:
    store = database.open()
    schedule = make_schedule("busy")
    put(store, schedule_write(schedule, make_progress(next_at=NOON, wake_at=NOON)))

    def blocks(since: datetime) -> int:
        sql = (
            f"SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL AND wake_at >= {to_micros(since)}"
        )
        with psycopg.connect(database.place) as session:
            session.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            row = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode()).fetchone()
        assert row is not None
        return int(row[0][0]["Plan"]["Shared Hit Blocks"])

    with psycopg.connect(database.place) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM schedules")
        for n in range(300):
            at = NOON + n * MINUTE
            moved = ProgressUpdate(schedule.id, make_progress(next_at=at, wake_at=at))
            store.write(lambda tx, moved=moved: tx.save_progress([moved]))
        assert blocks(NOON + 298 * MINUTE) < blocks(NOON)
