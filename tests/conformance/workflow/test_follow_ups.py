"""Follow-ups: added once, decided once, found from both sides; the downstream schedule wakes."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    TICK,
    add,
    get_record,
    make_progress,
    make_run,
    make_schedule,
    put,
    schedule_write,
)
from tests.conformance.support.concurrency import all_at_once
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.schedule.upstream import EndKind
from timewright.ports import PruneRequest, Store
from timewright.ports.workflow import FollowUp, FollowUpsOfRun, OpenFollowUps

MANY = 120


def end(upstream_run: str, downstream: str = "down", **fields: Any) -> FollowUp:
    fields.setdefault("due_at", NOON)
    fields.setdefault("on", EndKind.SUCCESS)
    return FollowUp(downstream=downstream, upstream_run=upstream_run, upstream="up", **fields)


def note(store: Store, *rows: FollowUp) -> None:
    store.write(lambda tx: tx.put_run_rows(rows))


def undecided(store: Store, downstream: str = "down", *, limit: int = 1000) -> list[FollowUp]:
    return store.read(lambda tx: tx.select(OpenFollowUps([downstream], limit)))


def followed(store: Store, run_id: str) -> list[FollowUp]:
    return store.read(lambda tx: tx.select(FollowUpsOfRun(run_id)))


def forget(store: Store, downstream: str) -> None:
    store.write(lambda tx: tx.replace_links(downstream, (), delete_follow_ups=True))


def wake_schedules(store: Store, *wakes: tuple[str, datetime]) -> None:
    store.write(lambda tx: tx.wake_schedules(wakes))


def test_open_follow_ups_come_earliest_first_up_to_the_limit(store: Store) -> None:
    rows = [end("run_3"), end("run_4"), end("run_2", due_at=NOON + TICK), end("run_1", due_at=NOON + HOUR)]
    note(store, *reversed(rows), end("run_1", "other", on=EndKind.FAILURE))
    assert undecided(store) == rows
    assert undecided(store, limit=2) == rows[:2]
    assert undecided(store, limit=0) == undecided(store, "nobody") == []
    assert undecided(store, "other") == [end("run_1", "other", on=EndKind.FAILURE)]


def test_an_end_is_noted_once_and_stays_as_it_was_noted(store: Store) -> None:
    first = end("run_1")
    note(store, first)
    note(
        store,
        end("run_1", due_at=NOON - HOUR, on=EndKind.END),
        end("run_2"),
        end("run_2", due_at=NOON - HOUR),
    )
    assert undecided(store) == [first, end("run_2")]
    done = replace(first, state="done", run_id="run_9")
    store.write(lambda tx: tx.put_run_rows([done]))
    note(store, first)
    assert undecided(store) == [end("run_2")]
    assert followed(store, "run_1") == [done]
    note(store)


def test_a_follow_up_added_concurrently_exists_once(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    rows = [[end("run_1", due_at=NOON + n * TICK), end("run_2")] for n in range(6)]
    answers = all_at_once([partial(note, stores[n % 3], *pair) for n, pair in enumerate(rows)])
    assert answers == [None] * 6
    assert sorted(row.upstream_run for row in undecided(stores[0])) == ["run_1", "run_2"]


def test_closed_follow_ups_are_no_longer_open(store: Store) -> None:
    note(store, *(end(f"run_{n}") for n in range(3)), end("run_0", "other"))
    done, void = end("run_0", state="done", run_id="run_9"), end("run_1", state="void")
    for _ in range(2):
        store.write(lambda tx: tx.put_run_rows([done, void, end("run_7", state="void")]))
        assert undecided(store) == [end("run_2")]
    assert undecided(store, "other") == [end("run_0", "other")]
    assert followed(store, "run_1") == [void]
    assert followed(store, "run_7") == []
    store.write(lambda tx: tx.put_run_rows([]))
    assert undecided(store) == [end("run_2")]


def test_only_ends_that_are_not_decided_are_forgotten(store: Store) -> None:
    done = end("run_0", state="done", run_id="run_9")
    note(store, end("run_0"), end("run_1"), end("run_1", "other"))
    store.write(lambda tx: tx.put_run_rows([done]))
    for downstream in ("down", "down", "nobody"):
        forget(store, downstream)
    assert undecided(store) == []
    assert [*followed(store, "run_0"), *followed(store, "run_1")] == [done, end("run_1", "other")]


def test_an_end_is_found_by_the_run_it_came_from_and_by_the_run_it_became(store: Store) -> None:
    into = end("run_1", "x", state="done", run_id="run_2")
    onwards = [end("run_2", "z", due_at=NOON + MINUTE), end("run_2", "y", due_at=NOON + HOUR)]
    alike = [end("run_3", "y"), end("run_3", "z"), end("run_4", "y")]
    note(store, end("run_1", "x"), *reversed(onwards), *reversed(alike))
    store.write(lambda tx: tx.put_run_rows([into]))
    assert followed(store, "run_2") == [into, *onwards]
    assert followed(store, "run_1") == [into]
    assert [*followed(store, "run_3"), *followed(store, "run_4")] == alike
    assert followed(store, "") == followed(store, "nobody") == []


def test_pruning_a_run_deletes_its_decided_follow_ups_only(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    add(store, old)
    note(store, end(old.id, "x"), end(old.id, "y"))
    store.write(lambda tx: tx.put_run_rows([end(old.id, "x", state="done", run_id="run_9")]))
    assert store.write(lambda tx: tx.prune(PruneRequest(keep_runs=0))) == 1
    assert followed(store, old.id) == [end(old.id, "y")]


def test_many_ends_are_noted_decided_and_found_at_once(store: Store) -> None:
    rows = [end(f"run_{n:03}", due_at=NOON + n * TICK) for n in range(MANY)]
    note(store, *reversed(rows))
    assert undecided(store) == rows
    made = [replace(row, state="done", run_id=f"made_{n:03}") for n, row in enumerate(rows)]
    store.write(lambda tx: tx.put_run_rows(made[::-1]))
    assert undecided(store) == []
    assert [one for row in made for one in followed(store, row.run_id)] == made


@pytest.mark.parametrize(
    ("progress", "after"),
    [
        ({"next_at": NOON + HOUR}, {"next_at": NOON + MINUTE, "wake_at": NOON + MINUTE}),
        ({"next_at": None}, {"next_at": NOON + MINUTE, "wake_at": NOON + MINUTE}),
        ({"next_at": NOON + MINUTE}, None),
        ({"next_at": NOON}, None),
        ({"next_at": NOON + HOUR, "wake_at": NOON}, {"next_at": NOON + MINUTE, "wake_at": NOON}),
        ({"next_at": NOON, "wake_at": NOON + HOUR}, {"next_at": NOON, "wake_at": NOON + MINUTE}),
    ],
)
def test_wake_schedules_moves_a_wake_up_only_earlier(
    store: Store, progress: dict[str, Any], after: dict[str, Any] | None
) -> None:
    schedule = make_schedule()
    before = make_progress(source=Source.BASELINE_INTERVAL, **progress)
    put(store, schedule_write(schedule, before))
    expected = replace(before, **after) if after else before
    if expected.next_at != before.next_at:
        expected = replace(expected, source=Source.BASELINE_AFTER)
    for _ in range(2):
        wake_schedules(store, (schedule.id, NOON + MINUTE))
        assert get_record(store, schedule.id).progress == expected


@pytest.mark.parametrize("fields", [{"state": ScheduleState.PAUSED}, {"source": Source.PAUSED}])
def test_waking_an_inactive_schedule_keeps_its_next_instant(store: Store, fields: dict[str, Any]) -> None:
    schedule, before = make_schedule(), make_progress(**fields)
    put(store, schedule_write(schedule, before))
    wake_schedules(store, (schedule.id, NOON + MINUTE))
    assert get_record(store, schedule.id).progress == replace(before, wake_at=NOON + MINUTE)


def test_each_schedule_wakes_at_its_earliest_follow_up(store: Store) -> None:
    schedules = [make_schedule(f"job-{n:03}") for n in range(MANY)]
    put(store, *(schedule_write(schedule) for schedule in schedules))
    wakes = [(schedule.id, NOON + n * TICK) for n, schedule in enumerate(schedules[1:])]
    wake_schedules(store, *((i, at + MINUTE) for i, at in wakes), *reversed(wakes), ("sch_nobody", NOON))
    wake_schedules(store)
    due = store.write(lambda tx: tx.due_schedules(until=NOON + MINUTE, limit=1000))
    assert [(one.schedule.id, one.progress.wake_at) for one in due] == wakes
    assert get_record(store, schedules[0].id).progress == make_progress()
