"""JSON batches on SQLite find rows by key, whatever the planner statistics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conformance.support.builders import add, make_run
from timewright.stores.sqlite.executor import MIN_BATCH_ROWS, differing_columns, json_batch
from timewright.stores.sqlite.store import SqliteStore
from timewright.stores.statements import SQLITE, load_statements

ALIKE = {name: statement for name, statement in load_statements(SQLITE).items() if statement.varying_columns}


def plan_of(connection: apsw.Connection, sql: str) -> str:
    places = max(int(place) for place in re.findall(r"\?(\d+)", sql))
    rows: list[Any] = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("{}", *[1] * (places - 1))).fetchall()
    return "; ".join(row[3] for row in rows)


@pytest.mark.parametrize("name", ALIKE)
def test_no_table_is_walked_for_a_batch_after_a_nearly_empty_store_was_analysed(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    add(store, make_run())
    store._writer.connection.execute("ANALYZE")
    store.close()
    store = SqliteStore(path)
    bulk = json_batch(ALIKE[name].sql, ALIKE[name].varying_columns)
    plan = plan_of(store._writer.connection, bulk.sql)
    store.close()
    assert re.findall(r"SCAN (\w+)", plan) == ["v"]


def test_rows_with_distinct_shared_columns_run_row_by_row() -> None:
    bulk = json_batch("UPDATE t SET a = ?2, b = ?3 WHERE id = ?1", (0, 1))
    assert bulk.parameters([(f"r{n}", n, n) for n in range(MIN_BATCH_ROWS * 4)]) is None
    assert bulk.parameters([(f"r{n}", n, "same") for n in range(MIN_BATCH_ROWS)]) is not None


def test_a_batch_with_a_repeated_key_runs_row_by_row() -> None:
    bulk = json_batch("UPDATE t SET a = ?2 WHERE id = ?1", (0, 1))
    assert bulk.parameters([("r", n) for n in range(MIN_BATCH_ROWS)]) is None


def test_a_column_in_which_the_rows_agree_does_not_travel_with_each() -> None:
    rows = [(f"r{n}", n, "same") for n in range(MIN_BATCH_ROWS)]
    assert differing_columns(rows, (0, 1, 2)) == (0, 1)
    assert differing_columns(rows, (0, 2)) == (0,)
