"""Quota counts: schedules in use and waiting runs of a namespace, up to a maximum."""

from __future__ import annotations

import re

import pytest

from tests.conformance.support.builders import NOON, make_progress, make_run, make_schedule, schedule_write
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.ports import Store, Transaction
from timewright.ports.overview import QuotaUse
from timewright.stores.statements import SQLITE, load_statements


def fill(store: Store, namespace: str) -> None:
    """Add four schedules, two of them over, and five runs, three of them waiting."""
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
        stood = [make_progress(state=state, next_at=None, wake_at=None) for state in states]
        tx.put_schedules([schedule_write(one, at) for one, at in zip(schedules, stood, strict=True)])
        tx.add_runs(runs)

    store.write(work)


def counted(store: Store, namespace: str, *, schedules: int = 10, runs: int = 10) -> dict[str, int]:
    use = QuotaUse(namespace=namespace, max_schedules=schedules, max_runs=runs)
    return store.read(lambda tx: tx.count(use))


def test_a_namespace_is_counted_by_itself(store: Store) -> None:
    fill(store, "mine")
    fill(store, "other")

    assert counted(store, "mine") == counted(store, "other") == {"schedules": 2, "runs": 3}
    assert counted(store, "unknown") == {"schedules": 0, "runs": 0}


def test_counting_ends_where_it_no_longer_matters(store: Store) -> None:
    fill(store, "mine")
    assert counted(store, "mine", schedules=1, runs=2) == {"schedules": 1, "runs": 2}
    assert counted(store, "mine", schedules=0, runs=0) == {"schedules": 0, "runs": 0}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_counting_for_quotas_walks_no_history(database: Database) -> None:
    database.open()
    sql = re.sub(r":\w+", "'5'", load_statements(SQLITE)["count_namespace"].sql)
    steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    tables = [step for step in steps if re.search(r"(SCAN|SEARCH) (runs|schedules)\b", step)]
    assert len(tables) == 5
    assert all("COVERING" in step for step in tables if "schedules" in step)
    assert all("USING" in step for step in tables), "\n".join(tables)
