"""Rows that are brought to SQLite together find their runs by key, whatever statistics someone took."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conformance.builders import add, make_run
from timewright.stores.sqlite import SqliteStore
from timewright.stores.sqlite_together import FEW, differing, together
from timewright.stores.statements import SQLITE, load_book

ALIKE = {name: statement for name, statement in load_book(SQLITE).items() if statement.varying}


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
    bulk = together(ALIKE[name].sql, ALIKE[name].varying)
    plan = plan_of(store._writer.connection, bulk.sql)
    store.close()
    assert re.findall(r"SCAN (\w+)", plan) == ["v"]


def test_rows_of_as_many_kinds_as_there_are_rows_are_told_one_by_one() -> None:
    bulk = together("UPDATE t SET a = ?2, b = ?3 WHERE id = ?1", (0, 1))
    assert bulk.batches([(f"r{n}", n, n) for n in range(FEW * 4)]) is None
    assert bulk.batches([(f"r{n}", n, "same") for n in range(FEW)]) is not None


def test_a_key_that_comes_twice_is_told_one_after_the_other() -> None:
    bulk = together("UPDATE t SET a = ?2 WHERE id = ?1", (0, 1))
    assert bulk.batches([("r", n) for n in range(FEW)]) is None


def test_a_column_in_which_the_rows_agree_does_not_travel_with_each() -> None:
    rows = [(f"r{n}", n, "same") for n in range(FEW)]
    assert differing(rows, (0, 1, 2)) == (0, 1)
    assert differing(rows, (0, 2)) == (0,)
