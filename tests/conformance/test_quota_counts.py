"""What a namespace has in use: its own living schedules and what waits, counted no further than asked."""

from __future__ import annotations

import re

import pytest

from tests.conformance.builders import NOON, make_run, make_schedule, make_standing, revised
from tests.conformance.databases import Database
from timewright.core.moments import HOUR
from timewright.core.run import RunState
from timewright.core.schedule import ScheduleState
from timewright.ports import Store, Transaction
from timewright.stores.statements import SQLITE, load_book


def fill(store: Store, namespace: str) -> None:
    """Four schedules of which two are over, and five runs of which three wait."""
    states = (ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.ARCHIVED, ScheduleState.FINISHED)
    schedules = [make_schedule(f"{namespace} {state}", namespace=namespace) for state in states]
    runs = [
        make_run(namespace=namespace, queue="mail"),
        make_run(namespace=namespace, queue="mail", planned_at=NOON, fire_at=NOON + HOUR),
        make_run(schedules[0].id, namespace=namespace, state=RunState.HELD),
        make_run(schedules[1].id, namespace=namespace, state=RunState.SUCCEEDED),
        make_run(schedules[2].id, namespace=namespace, state=RunState.PARKED),
    ]

    def work(tx: Transaction) -> None:
        stood = [make_standing(state=state, next_at=None, wake_at=None) for state in states]
        tx.put_schedules([revised(one, at) for one, at in zip(schedules, stood, strict=True)])
        tx.add_runs(runs)

    store.write(work)


def test_a_namespace_is_counted_by_itself(store: Store) -> None:
    fill(store, "mine")
    fill(store, "other")

    def counted(namespace: str) -> tuple[int, int]:
        return store.read(lambda tx: tx.count_namespace(namespace, most_schedules=10, most_runs=10))

    assert counted("mine") == counted("other") == (2, 3)
    assert counted("nobody's") == (0, 0)


def test_counting_ends_where_it_no_longer_matters(store: Store) -> None:
    fill(store, "mine")
    assert store.read(lambda tx: tx.count_namespace("mine", most_schedules=1, most_runs=2)) == (1, 2)
    assert store.read(lambda tx: tx.count_namespace("mine", most_schedules=0, most_runs=0)) == (0, 0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_counting_for_quotas_walks_no_history(database: Database) -> None:
    database.open()
    sql = re.sub(r":\w+", "'5'", load_book(SQLITE)["count_namespace"].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    tables = [step for step in steps if re.search(r"(SCAN|SEARCH) (runs|schedules)\b", step)]
    assert len(tables) == 5
    assert all("COVERING" in step for step in tables if "schedules" in step)
    assert all("USING" in step for step in tables), "\n".join(tables)
