"""Ends to follow: each is noted once, decided once and found from both sides; who follows is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.builders import (
    NOON,
    TICK,
    add,
    get_due,
    make_run,
    make_schedule,
    make_standing,
    put,
    revised,
)
from tests.conformance.databases import Database
from tests.conformance.together import all_at_once
from timewright.core.decision import Source
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import RunState
from timewright.core.schedule import ScheduleState
from timewright.core.upstream import On
from timewright.ports import Prune, Store
from timewright.ports.links import FollowUp

MANY = 120


def end(upstream_run: str, downstream: str = "down", **fields: Any) -> FollowUp:
    fields.setdefault("due_at", NOON)
    fields.setdefault("on", On.SUCCESS)
    return FollowUp(downstream=downstream, upstream_run=upstream_run, upstream="up", **fields)


def note(store: Store, *rows: FollowUp) -> None:
    store.write(lambda tx: tx.add_follow_ups(rows))


def undecided(store: Store, downstream: str = "down", *, limit: int = 1000) -> list[FollowUp]:
    return list(store.read(lambda tx: tx.open_follow_ups([downstream], limit=limit))[downstream])


def followed(store: Store, run_ids: Iterable[str] = (), upstream_runs: Iterable[str] = ()) -> list[FollowUp]:
    return list(store.read(lambda tx: tx.follow_ups_of(run_ids=run_ids, upstream_runs=upstream_runs)))


def forget(store: Store, downstream: str) -> None:
    store.write(lambda tx: tx.drop_follow_ups(downstream))


def rouse(store: Store, *wakes: tuple[str, datetime]) -> None:
    store.write(lambda tx: tx.rouse(wakes))


def test_ends_to_follow_are_told_the_earliest_first_and_no_more_than_asked_for(store: Store) -> None:
    rows = [end("run_3"), end("run_4"), end("run_2", due_at=NOON + TICK), end("run_1", due_at=NOON + HOUR)]
    note(store, *reversed(rows), end("run_1", "other", on=On.FAILURE))
    assert undecided(store) == rows
    assert undecided(store, limit=2) == rows[:2]
    assert undecided(store, limit=0) == undecided(store, "nobody") == []
    assert undecided(store, "other") == [end("run_1", "other", on=On.FAILURE)]


def test_an_end_is_noted_once_and_stays_as_it_was_noted(store: Store) -> None:
    first = end("run_1")
    note(store, first)
    note(store, end("run_1", due_at=NOON - HOUR, on=On.END), end("run_2"), end("run_2", due_at=NOON - HOUR))
    assert undecided(store) == [first, end("run_2")]
    done = replace(first, state="done", run_id="run_9")
    store.write(lambda tx: tx.close_follow_ups([done]))
    note(store, first)
    assert undecided(store) == [end("run_2")]
    assert followed(store, upstream_runs=["run_1"]) == [done]
    note(store)


def test_an_end_that_many_note_together_is_one_end(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    rows = [[end("run_1", due_at=NOON + n * TICK), end("run_2")] for n in range(6)]
    answers = all_at_once([partial(note, stores[n % 3], *pair) for n, pair in enumerate(rows)])
    assert answers == [None] * 6
    assert sorted(row.upstream_run for row in undecided(stores[0])) == ["run_1", "run_2"]


def test_what_became_of_ends_is_noted_and_they_are_open_no_more(store: Store) -> None:
    note(store, *(end(f"run_{n}") for n in range(3)), end("run_0", "other"))
    done, void = end("run_0", state="done", run_id="run_9"), end("run_1", state="void")
    for _ in range(2):
        store.write(lambda tx: tx.close_follow_ups([done, void, end("run_7", state="void")]))
        assert undecided(store) == [end("run_2")]
    assert undecided(store, "other") == [end("run_0", "other")]
    assert followed(store, upstream_runs=["run_1"]) == [void]
    assert followed(store, upstream_runs=["run_7"]) == []
    store.write(lambda tx: tx.close_follow_ups([]))
    assert undecided(store) == [end("run_2")]


def test_only_ends_that_are_not_decided_are_forgotten(store: Store) -> None:
    done = end("run_0", state="done", run_id="run_9")
    note(store, end("run_0"), end("run_1"), end("run_1", "other"))
    store.write(lambda tx: tx.close_follow_ups([done]))
    for downstream in ("down", "down", "nobody"):
        forget(store, downstream)
    assert undecided(store) == []
    assert followed(store, upstream_runs=["run_0", "run_1"]) == [done, end("run_1", "other")]


def test_an_end_is_found_by_the_run_it_came_from_and_by_the_run_it_became(store: Store) -> None:
    into = end("run_1", "x", state="done", run_id="run_2")
    onwards = [end("run_2", "z", due_at=NOON + MINUTE), end("run_2", "y", due_at=NOON + HOUR)]
    alike = [end("run_3", "y"), end("run_4", "y"), end("run_3", "z")]
    note(store, into, *reversed(onwards), *reversed(alike))
    store.write(lambda tx: tx.close_follow_ups([into]))
    assert followed(store, run_ids=["run_2"]) == [into]
    assert followed(store, upstream_runs=["run_2"]) == onwards
    assert followed(store, ["run_2", "run_2"], ["run_1", "run_2"]) == [into, *onwards]
    assert followed(store, upstream_runs=["run_4", "run_3"]) == alike
    assert followed(store) == followed(store, ["run_1"]) == followed(store, ["nobody", ""], ["nobody"]) == []


def test_what_became_of_an_end_goes_with_its_run_and_what_is_open_stays(store: Store) -> None:
    old = make_run(state=RunState.SUCCEEDED, finished_at=NOON)
    add(store, old)
    note(store, end(old.id, "x"), end(old.id, "y"))
    store.write(lambda tx: tx.close_follow_ups([end(old.id, "x", state="done", run_id="run_9")]))
    assert store.write(lambda tx: tx.prune(Prune(keep_runs=0))) == 1
    assert followed(store, upstream_runs=[old.id]) == [end(old.id, "y")]


def test_many_ends_are_noted_decided_and_found_at_once(store: Store) -> None:
    rows = [end(f"run_{n:03}", due_at=NOON + n * TICK) for n in range(MANY)]
    note(store, *reversed(rows))
    assert undecided(store) == rows
    made = [replace(row, state="done", run_id=f"made_{n:03}") for n, row in enumerate(rows)]
    store.write(lambda tx: tx.close_follow_ups(made[::-1]))
    assert undecided(store) == []
    assert followed(store, (row.run_id for row in made)) == made


@pytest.mark.parametrize(
    ("standing", "after"),
    [
        ({"next_at": NOON + HOUR}, {"next_at": NOON + MINUTE, "wake_at": NOON + MINUTE}),
        ({"next_at": None}, {"next_at": NOON + MINUTE, "wake_at": NOON + MINUTE}),
        ({"next_at": NOON + MINUTE}, None),
        ({"next_at": NOON}, None),
        ({"next_at": NOON + HOUR, "wake_at": NOON}, {"next_at": NOON + MINUTE, "wake_at": NOON}),
        ({"next_at": NOON, "wake_at": NOON + HOUR}, {"next_at": NOON, "wake_at": NOON + MINUTE}),
    ],
)
def test_a_schedule_that_follows_is_looked_at_by_an_instant_if_not_before(
    store: Store, standing: dict[str, Any], after: dict[str, Any] | None
) -> None:
    schedule = make_schedule()
    before = make_standing(source=Source.BASELINE_INTERVAL, **standing)
    put(store, revised(schedule, before))
    expected = replace(before, **after) if after else before
    if expected.next_at != before.next_at:
        expected = replace(expected, source=Source.BASELINE_AFTER)
    for _ in range(2):
        rouse(store, (schedule.id, NOON + MINUTE))
        assert get_due(store, schedule.id).standing == expected


@pytest.mark.parametrize("fields", [{"state": ScheduleState.PAUSED}, {"source": Source.PAUSED}])
def test_a_schedule_that_rests_is_looked_at_and_its_next_time_is_not_moved(
    store: Store, fields: dict[str, Any]
) -> None:
    schedule, before = make_schedule(), make_standing(**fields)
    put(store, revised(schedule, before))
    rouse(store, (schedule.id, NOON + MINUTE))
    assert get_due(store, schedule.id).standing == replace(before, wake_at=NOON + MINUTE)


def test_many_are_roused_each_by_its_earliest_end_and_nobody_else(store: Store) -> None:
    schedules = [make_schedule(f"job-{n:03}") for n in range(MANY)]
    put(store, *(revised(schedule) for schedule in schedules))
    wakes = [(schedule.id, NOON + n * TICK) for n, schedule in enumerate(schedules[1:])]
    rouse(store, *((i, at + MINUTE) for i, at in wakes), *reversed(wakes), ("sch_nobody", NOON))
    rouse(store)
    due = store.write(lambda tx: tx.due_schedules(now=NOON + MINUTE, limit=1000))
    assert [(one.schedule.id, one.standing.wake_at) for one in due] == wakes
    assert get_due(store, schedules[0].id).standing == make_standing()
