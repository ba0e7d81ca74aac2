"""A handle for either database: opens stores, and runs SQL next to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg

from timewright.ports import Clock, Store
from timewright.stores.postgres.store import PostgresStore
from timewright.stores.sqlite.store import SqliteStore


class Database:
    """One database for one test; closes every store that it opened."""

    def __init__(self, kind: str, place: str, *, clock: Clock | None = None) -> None:
        self.kind = kind
        self.place = place
        self.clock = clock
        self._opened: list[Any] = []

    def open(self, *, clock: Clock | None = None) -> Any:
        """Open one more store on the same rows, as another process would."""
        store = open_store(self.kind, self.place, clock=clock or self.clock)
        self._opened.append(store)
        return store

    def sql(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run SQL on a separate connection; `?` is the placeholder in both dialects."""
        if self.kind == "sqlite":
            connection = apsw.Connection(self.place)
            connection.set_busy_timeout(10_000)
            try:
                return [tuple(row) for row in connection.execute(statement, tuple(parameters))]
            finally:
                connection.close()
        with psycopg.connect(self.place) as server:
            cursor = server.execute(statement.replace("?", "%s").encode(), tuple(parameters) or None)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def close(self) -> None:
        """Close every store."""
        for store in self._opened:
            store.close()


def open_store(kind: str, place: str, *, clock: Clock | None = None) -> Store:
    """Open a store by the kind of its database and its path or URL."""
    openers: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(Path(place), clock=clock),
        "memory": lambda: SqliteStore(clock=clock),
        "postgres": lambda: PostgresStore(place, clock=clock),
    }
    return openers[kind]()
