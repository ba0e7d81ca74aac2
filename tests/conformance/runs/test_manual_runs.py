"""Manual runs: they write no row that other runs share, and are found by an index of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import (
    NOON,
    TICK,
    admit,
    leased,
    make_run,
    make_schedule,
    pages,
    put,
    schedule_write,
)
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR, MINUTE
from timewright.core.policies.policies import Align, Overlap
from timewright.core.recurrence.triggers import Every, Manual
from timewright.core.run.run import Failed, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.ids import TimedIds
from timewright.ledger.manual_runs import ManualRun, run_many
from timewright.ledger.replan import Actor
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ports import RunFilter, Store
from timewright.ports.overview import ManualRuns
from timewright.stores.statements import POSTGRES, SQLITE, load_statements

COUNT_WRITES = """
CREATE TABLE schedule_writes (id INTEGER PRIMARY KEY);
CREATE TRIGGER count_schedule_writes AFTER UPDATE ON schedules
BEGIN INSERT INTO schedule_writes VALUES (NULL); END
"""
# Every hundredth run is manual: those are a fifth of the runs of one schedule.
HISTORY = """
INSERT INTO runs (id, namespace, schedule_id, dedupe_scope, planned_at, fire_at, state, created_at)
SELECT 'run_' || n, 'default', 'sch_' || n % 20, CASE WHEN n % 100 = 0 THEN 'run_' || n ELSE '' END,
    n, n, 'succeeded', n FROM generate_series(1, 5000) AS n
"""


class RowVersion:
    """The version of a schedule's row: `xmin` on PostgreSQL, counted updates on SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database
        if database.kind == "sqlite":
            database.sql(COUNT_WRITES)

    def read(self) -> list[Any]:
        table = "schedule_writes" if self._database.kind == "sqlite" else "schedules"
        columns = "count(*)" if self._database.kind == "sqlite" else "id, xmin::text"
        return self._database.sql(f"SELECT {columns} FROM {table} ORDER BY 1")


def start(store: Store, schedule: Schedule, many: int = 5, **wanted: Any) -> tuple[Run, ...]:
    asked = [ManualRun(schedule_id=schedule.id, **wanted)] * many
    return run_many(store, asked, ids=TimedIds(), by=Actor(), now=NOON + TICK).runs


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"trigger": Manual()},
        {"align": Align.NOW},
        {"max_runs": 9},
        {"end_at": NOON + 9 * HOUR},
        {"adaptive": True},
    ],
    ids=lambda fields: next(iter(fields), "plain"),
)
def test_manual_runs_that_succeed_write_no_row_of_their_schedule(
    own_database: Database, fields: dict[str, Any]
) -> None:
    store, version = own_database.open(), RowVersion(own_database)
    schedule = make_schedule(overlap=Overlap.ALLOW, **fields)
    put(store, schedule_write(schedule))
    before = version.read()
    runs = leased(store, *start(store, schedule), at=NOON + TICK)
    results = [AttemptResult(run=run, outcome=Succeeded(), started_at=NOON + TICK) for run in runs]
    settled = settle_results(store, results, now=NOON + MINUTE)
    assert len(settled.ended) == 5
    assert [run.previous for run in get_all(store, runs)] == ["", *(run.id for run in runs[:-1])]
    assert version.read() == before


def test_a_manual_run_that_fails_counts_for_its_schedule_and_a_success_ends_that(
    own_database: Database,
) -> None:
    store, version = own_database.open(), RowVersion(own_database)
    schedule = make_schedule(overlap=Overlap.ALLOW)
    put(store, schedule_write(schedule))
    counts = []
    for outcome in (Failed(error="no", final=True), Succeeded()):
        before = version.read()
        (run,) = leased(store, *start(store, schedule, 1), at=NOON + TICK)
        settle_results(store, [AttemptResult(run=run, outcome=outcome, started_at=NOON)], now=NOON + MINUTE)
        found = store.read(lambda tx: tx.get_schedules([schedule.id]))[schedule.id]
        counts.append((found.progress.failures, version.read() != before))
    assert counts == [(1, True), (0, True)]


def test_manual_runs_and_occurrences_are_listed_together(store: Store, nightly: str) -> None:
    made = [make_run(nightly, planned_at=NOON + n * HOUR, state=RunState.SUCCEEDED) for n in range(4)]
    occurrences = admit(store, nightly, *made)
    manual = [_manual_run(nightly, n) for n in range(6)]
    store.write(lambda tx: tx.add_runs(manual))
    expected = sorted((run.id for run in (*occurrences, *manual)), reverse=True)

    def page(cursor: str, limit: int) -> Any:
        which = RunFilter(schedule_id=nightly, limit=limit, cursor=cursor)
        return store.read(lambda tx: tx.find(which))

    for limit in (1, 2, 3, 10):
        found = pages(partial(page, limit=limit))
        assert [run.id for rows in found for run in rows] == expected
        assert all(len(rows) == limit for rows in found[:-1])
    marks = store.read(lambda tx: tx.recent_runs([nightly], limit_each=5))
    assert [mark.run for mark in marks[nightly]] == expected[:5][::-1]
    only = RunFilter(schedule_id=nightly, only_manual=True)
    assert [run.id for run in store.read(lambda tx: tx.find(only)).rows] == sorted(
        (run.id for run in manual), reverse=True
    )


def test_a_list_whose_ids_go_back_shows_every_run_once(store: Store, nightly: str) -> None:
    """After a step of the clock, an occurrence may have a smaller id than the one before it."""
    late = make_run(nightly, planned_at=NOON + 9 * HOUR, state=RunState.SUCCEEDED)
    early = make_run(nightly, planned_at=NOON, state=RunState.SUCCEEDED)
    admit(store, nightly, late, early)
    manual = [_manual_run(nightly, n) for n in range(10)]
    store.write(lambda tx: tx.add_runs(manual))
    found = pages(
        lambda cursor: store.read(lambda tx: tx.find(RunFilter(schedule_id=nightly, limit=2, cursor=cursor)))
    )
    ids = [run.id for rows in found for run in rows]
    assert sorted(ids) == sorted(run.id for run in (late, early, *manual))


def test_a_manual_run_is_linked_to_the_newest_one_of_its_schedule(store: Store, nightly: str) -> None:
    first, second = _manual_run(nightly, 1), _manual_run(nightly, 2)
    store.write(lambda tx: tx.add_runs([first]))
    store.write(lambda tx: tx.add_runs([second]))
    assert [run.previous for run in get_all(store, [first, second])] == ["", first.id]


def test_manual_runs_are_counted_by_schedule(store: Store, nightly: str) -> None:
    other = make_schedule("other", trigger=Every(HOUR, NOON))
    put(store, schedule_write(other))
    admit(store, nightly, make_run(nightly, planned_at=NOON, state=RunState.SUCCEEDED))
    store.write(lambda tx: tx.add_runs([_manual_run(nightly, 1), _manual_run(nightly, 2)]))
    counts = store.read(lambda tx: tx.count(ManualRuns([nightly, other.id])))
    assert counts == {nightly: 2}


def get_all(store: Store, runs: Sequence[Run]) -> list[Run]:
    found = store.read(lambda tx: tx.get_runs([run.id for run in runs]))
    return [found[run.id] for run in runs]


def _manual_run(schedule_id: str, number: int) -> Run:
    at = NOON + number * HOUR + 30 * MINUTE
    run = make_run(schedule_id, planned_at=at, state=RunState.SUCCEEDED, exclusive=False)
    return replace(run, dedupe_scope=run.id, id=run.id)


@pytest.mark.parametrize("statement", ["insert_manual_runs", "list_manual_runs", "count_manual_runs"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_manual_runs_are_found_by_their_own_index(own_database: Database, statement: str) -> None:
    own_database.open()
    if own_database.kind == "sqlite":
        sql = re.sub(r":\w+|\?\d+", "'5'", load_statements(SQLITE)[statement].sql)
        plan = [str(row[3]) for row in own_database.sql(f"EXPLAIN QUERY PLAN {sql}")]
    else:
        own_database.sql(HISTORY)
        own_database.sql("ANALYZE runs")
        sql = re.sub(
            r"%(\((schedule_)?ids\))?s::text", "'{sch_0}'::text", load_statements(POSTGRES)[statement].sql
        )
        sql = sql.replace("%s::bigint", "'{5}'::bigint").replace("%(limit)s", "5")
        sql = sql.replace("%(id)s", "'sch_0'").replace("%(last)s", "'run_9'")
        plan = [str(row[0]) for row in own_database.sql(f"EXPLAIN {sql}")]
    read = [step for step in plan if re.search(r"(SCAN|SEARCH) (runs|m)\b|Scan .*on runs", step)]
    assert read, "\n".join(plan)
    assert all("runs_manual" in step for step in read), "\n".join(plan)
