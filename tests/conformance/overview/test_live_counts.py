"""Counts of live rows: from partial indexes, up to a maximum, never from history."""

from __future__ import annotations

import re

import pytest

from tests.conformance.support.builders import (
    NOON,
    add,
    ended,
    leased,
    make_progress,
    make_run,
    make_schedule,
    put,
    queued,
    schedule_write,
    settle,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.ports import LiveCount, Store
from timewright.ports.overview import LiveCounts
from timewright.stores.statements import SQLITE, load_statements


def counted(store: Store, *, most: int = 100) -> dict[tuple[str, str, str], int]:
    found = store.read(lambda tx: tx.select(LiveCounts(now=NOON, max_rows=most)))
    return {(one.namespace, one.queue, one.kind): one.count for one in found}


def ready(store: Store, queue: str) -> LiveCount:
    found = store.read(lambda tx: tx.select(LiveCounts(now=NOON, max_rows=100)))
    (one,) = [one for one in found if (one.kind, one.queue) == ("ready", queue)]
    return one


def test_live_rows_are_counted_by_namespace_queue_and_kind(store: Store) -> None:
    add(store, *(waits := [make_run(planned_at=NOON - HOUR), queued("mail")]))
    done, _ = leased(store, *waits)
    settle(store, ended(done))
    add(
        store,
        queued("mail"),
        queued("mail", namespace="other"),
        make_run(fire_at=NOON + HOUR),
        make_run(state=RunState.PARKED),
        make_run("sch_x", state=RunState.HELD),
    )
    assert {key: n for key, n in counted(store).items() if key[2] != "capacity"} == {
        ("default", "", "held"): 1,
        ("default", "", "parked"): 1,
        ("default", "", "waiting"): 1,
        ("default", "mail", "leased"): 1,
        ("default", "mail", "ready"): 1,
        ("other", "mail", "ready"): 1,
    }


def test_schedules_are_counted_when_they_are_due_or_wait_for_a_person(store: Store) -> None:
    put(
        store,
        schedule_write(make_schedule("due"), make_progress(next_at=NOON)),
        schedule_write(make_schedule("later"), make_progress(next_at=NOON + MINUTE)),
        schedule_write(make_schedule("parked"), make_progress(state=ScheduleState.PARKED, wake_at=None)),
    )
    assert counted(store) == {("default", "", "due"): 1, ("default", "", "parked_schedule"): 1}


def test_a_count_stops_at_its_maximum(store: Store) -> None:
    add(store, *(make_run() for _ in range(7)))
    assert counted(store, most=5) == {("default", "", "ready"): 5}


def test_the_capacity_of_a_limit_is_counted_under_its_key(store: Store) -> None:
    store.write(lambda tx: tx.set_limits({"queue:default/mail": 3, "limit:default/crm": 2}))
    assert counted(store) == {
        ("", "limit:default/crm", "capacity"): 2,
        ("", "queue:default/mail", "capacity"): 3,
    }


def test_the_oldest_is_found_also_behind_more_urgent_ones_than_are_counted(store: Store) -> None:
    old = queued("mail", planned_at=NOON - HOUR, priority=200)
    add(store, old, *(queued("mail", planned_at=NOON - MINUTE, priority=0) for _ in range(20)))
    found = store.read(lambda tx: tx.select(LiveCounts(now=NOON, max_rows=5)))
    (one,) = [one for one in found if one.kind == "ready"]
    assert (one.count, one.oldest) == (5, NOON - HOUR)
    assert ready(store, "mail").count == 21


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("statement", ["count_live", "oldest_ready"])
def test_counting_walks_no_history(database: Database, statement: str) -> None:
    database.open()
    sql = load_statements(SQLITE)[statement].sql.replace(":max_rows", "5").replace(":now", "5")
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    tables = [step for step in steps if re.search(r"(SCAN|SEARCH) (runs|schedules|r)\b", step)]
    assert tables
    assert all("USING" in step for step in tables), "\n".join(tables)
