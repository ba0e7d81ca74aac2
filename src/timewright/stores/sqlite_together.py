"""Rows that differ in few columns, brought to SQLite in one statement: a JSON object of what differs.

A statement that is run row by row pays for every row what it costs to find, bind and start it; and the
driver, which keeps the plans of the last statements that it ran, keeps no other's.
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

# Smaller batches, and batches of many kinds, are told row by row.
FEW = 8

_PLACE = re.compile(r"\?(\d+)")
_WRITES = re.compile(r"^(UPDATE|INSERT)(?= (?!OR))")

_write_json = msgspec.json.Encoder().encode


class Together(Struct, frozen=True):
    """A statement for many rows at once, and how its parameters are taken from them."""

    sql: str
    alike: Callable[[Row], tuple[Any, ...]]
    varied: Callable[[Row], Any]

    def batches(self, rows: Sequence[Row]) -> list[tuple[Any, ...]] | None:
        """The parameters for each kind of rows; nothing where row by row is the better way."""
        kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
        alike, varied = self.alike, self.varied
        last: tuple[Any, ...] | None = None
        pairs: dict[str, Any] = {}
        for row in rows:
            kind = alike(row)
            if kind != last:
                last, pairs = kind, kinds.setdefault(kind, {})
            pairs[row[0]] = varied(row)
        # A key that comes twice means one row after the other.
        if len(kinds) * FEW > len(rows) or sum(map(len, kinds.values())) < len(rows):
            return None
        return [(_write_json(pairs).decode(), *kind) for kind, pairs in kinds.items()]


@lru_cache(maxsize=256)
def together(sql: str, varying: tuple[int, ...]) -> Together:
    """The same statement for many rows; what differs between them is in the one parameter, by its key."""
    key, *rest = varying
    used = sorted({int(place) - 1 for place in _PLACE.findall(sql)})
    alike = [place for place in used if place not in varying]
    spelled = {place: f"?{number}" for number, place in enumerate(alike, start=2)}
    spelled |= {place: f"(v.value ->> {number})" for number, place in enumerate(rest)}
    if len(rest) == 1:
        spelled[rest[0]] = "v.value"
    spelled[key] = "v.key"
    placed = _PLACE.sub(lambda found: spelled[int(found[1]) - 1], sql)
    return Together(_brought(placed), _picked(alike), itemgetter(*rest) if rest else lambda _: 0)


def differing(rows: Sequence[Row], varying: tuple[int, ...]) -> tuple[int, ...]:
    """The key, and those columns in which these rows do differ."""
    key, *rest = varying
    first = rows[0]
    return (key, *(place for place in rest if any(row[place] != first[place] for row in rows)))


def _brought(sql: str) -> str:
    """The rows in the place of their parameters.

    One that fails stays half done, because whoever fails undoes the transaction: nothing is kept aside.
    """
    sql = _WRITES.sub(r"\1 OR FAIL", sql)
    if "VALUES (" in sql:
        return re.sub(r"VALUES \((.*)\)", r"SELECT \1 FROM json_each(?1) v WHERE true", sql, count=1)
    if sql.startswith("SELECT"):
        return re.sub(r"FROM (\w+)\s+WHERE", r"FROM json_each(?1) v CROSS JOIN \1 WHERE", sql, count=1)
    return sql.replace("WHERE", "FROM json_each(?1) v WHERE", 1)


def _picked(places: Sequence[int]) -> Callable[[Row], tuple[Any, ...]]:
    """These columns of a row."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda _: ()
    (place,) = places
    return lambda row: (row[place],)
