"""Runs one SQLite statement for a batch of rows, passed as a JSON object of the columns that differ.

Running a statement row by row costs a cache lookup, binding and a start per row, and evicts the cached plans
of other statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct

from timewright.stores.rows import Row

# Smaller batches, and batches with many distinct values in the shared columns, run row by row.
MIN_BATCH_ROWS = 8

_PARAMETER = re.compile(r"\?(\d+)")
_WRITES = re.compile(r"^(UPDATE|INSERT)(?= (?!OR))")

_write_json = msgspec.json.Encoder().encode


class JsonBatch(Struct, frozen=True):
    """A statement for many rows, and how its parameters are built from them."""

    sql: str
    shared_columns: Callable[[Row], tuple[Any, ...]]
    varying_columns: Callable[[Row], Any]

    def parameters(self, rows: Sequence[Row]) -> list[tuple[Any, ...]] | None:
        """Return one parameter tuple per set of shared values; None if row by row is better."""
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        shared, varying_of = self.shared_columns, self.varying_columns
        last: tuple[Any, ...] | None = None
        pairs: dict[str, Any] = {}
        for row in rows:
            values = shared(row)
            if values != last:
                last, pairs = values, groups.setdefault(values, {})
            pairs[row[0]] = varying_of(row)
        # A repeated key would overwrite its entry; such a batch runs row by row.
        if len(groups) * MIN_BATCH_ROWS > len(rows) or sum(map(len, groups.values())) < len(rows):
            return None
        return [(_write_json(pairs).decode(), *values) for values, pairs in groups.items()]


@lru_cache(maxsize=256)
def json_batch(sql: str, varying: tuple[int, ...]) -> JsonBatch:
    """Rewrite a statement for many rows; the first parameter holds the varying columns by key."""
    key, *rest = varying
    used = sorted({int(column) - 1 for column in _PARAMETER.findall(sql)})
    shared = [column for column in used if column not in varying]
    replacements = {column: f"?{number}" for number, column in enumerate(shared, start=2)}
    replacements |= {column: f"(v.value ->> {number})" for number, column in enumerate(rest)}
    if len(rest) == 1:
        replacements[rest[0]] = "v.value"
    replacements[key] = "v.key"
    rewritten = _PARAMETER.sub(lambda found: replacements[int(found[1]) - 1], sql)
    return JsonBatch(
        _add_rows_table(rewritten), _column_getter(shared), itemgetter(*rest) if rest else lambda _: 0
    )


def differing_columns(rows: Sequence[Row], varying: tuple[int, ...]) -> tuple[int, ...]:
    """Return the key column and the varying columns in which these rows really differ."""
    key, *rest = varying
    first = rows[0]
    return (key, *(column for column in rest if any(row[column] != first[column] for row in rows)))


def _add_rows_table(sql: str) -> str:
    """Add the JSON rows as a table to a statement.

    OR FAIL avoids a statement journal: a failing statement stays half done, and the caller rolls back.
    """
    sql = _WRITES.sub(r"\1 OR FAIL", sql)
    if "VALUES (" in sql:
        return re.sub(r"VALUES \((.*)\)", r"SELECT \1 FROM json_each(?1) v WHERE true", sql, count=1)
    if sql.startswith("SELECT"):
        return re.sub(r"FROM (\w+)\s+WHERE", r"FROM json_each(?1) v CROSS JOIN \1 WHERE", sql, count=1)
    return sql.replace("WHERE", "FROM json_each(?1) v WHERE", 1)


def _column_getter(columns: Sequence[int]) -> Callable[[Row], tuple[Any, ...]]:
    """Return a getter for these columns of a row."""
    if len(columns) > 1:
        return itemgetter(*columns)
    if not columns:
        return lambda _: ()
    (column,) = columns
    return lambda row: (row[column],)
