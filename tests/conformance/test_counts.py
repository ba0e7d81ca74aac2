"""Counting what lives: in partial indexes, no further than asked, and never through history."""

from __future__ import annotations

import re

import pytest

from tests.conformance.builders import (
    NOON,
    add,
    ended,
    leased,
    make_run,
    make_schedule,
    make_standing,
    put,
    queued,
    revised,
    settle,
)
from tests.conformance.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.run import RunState
from timewright.core.schedule import ScheduleState
from timewright.ports import Count, Store
from timewright.stores.statements import SQLITE, load_book


def counted(store: Store, *, most: int = 100) -> dict[tuple[str, str, str], int]:
    found = store.read(lambda tx: tx.count_live(now=NOON, most=most))
    return {(one.namespace, one.queue, one.kind): one.count for one in found}


def ready(store: Store, queue: str) -> Count:
    found = store.read(lambda tx: tx.count_live(now=NOON, most=100))
    (one,) = [one for one in found if (one.kind, one.queue) == ("ready", queue)]
    return one


def test_what_lives_is_counted_by_namespace_queue_and_kind(store: Store) -> None:
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
    assert {key: n for key, n in counted(store).items() if key[2] != "ceiling"} == {
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
        revised(make_schedule("due"), make_standing(next_at=NOON)),
        revised(make_schedule("later"), make_standing(next_at=NOON + MINUTE)),
        revised(make_schedule("parked"), make_standing(state=ScheduleState.PARKED, wake_at=None)),
    )
    assert counted(store) == {("default", "", "due"): 1, ("default", "", "parked_schedule"): 1}


def test_a_count_goes_no_further_than_it_was_told(store: Store) -> None:
    add(store, *(make_run() for _ in range(7)))
    assert counted(store, most=5) == {("default", "", "ready"): 5}


def test_a_ceiling_is_told_with_its_gate(store: Store) -> None:
    store.write(lambda tx: tx.set_gates({"queue:default/mail": 3, "limit:default/crm": 2}))
    assert counted(store) == {
        ("", "limit:default/crm", "ceiling"): 2,
        ("", "queue:default/mail", "ceiling"): 3,
    }


def test_the_oldest_is_found_also_behind_more_urgent_ones_than_are_counted(store: Store) -> None:
    old = queued("mail", planned_at=NOON - HOUR, priority=200)
    add(store, old, *(queued("mail", planned_at=NOON - MINUTE, priority=0) for _ in range(20)))
    found = store.read(lambda tx: tx.count_live(now=NOON, most=5))
    (one,) = [one for one in found if one.kind == "ready"]
    assert (one.count, one.oldest) == (5, NOON - HOUR)
    assert ready(store, "mail").count == 21


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("statement", ["count_live", "oldest_ready"])
def test_counting_walks_no_history(database: Database, statement: str) -> None:
    database.open()
    sql = load_book(SQLITE)[statement].sql.replace(":most", "5").replace(":now", "5")
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    tables = [step for step in steps if re.search(r"(SCAN|SEARCH) (runs|schedules|r)\b", step)]
    assert tables
    assert all("USING" in step for step in tables), "\n".join(tables)
