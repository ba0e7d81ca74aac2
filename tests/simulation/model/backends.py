"""The store of a simulation: SQLite in memory or in a file, or PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from timewright.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from tests.simulation.model.actors import SimulatedActor
    from timewright.ports import Clock


class StoreBackend(Protocol):
    """A store that many actors share, with queries from outside."""

    follows_host_clock: bool

    def open(self, clock: Clock) -> None:
        """Create an empty store with this clock."""
        ...

    def store_for(self, actor: SimulatedActor) -> Any:
        """The store as one process opens it."""
        ...

    def close_for(self, actor: SimulatedActor) -> None:
        """Close the store of a process that has ended."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def query(self, sql: str) -> list[Any]:
        """Rows of a query outside every transaction."""
        ...

    def shared_store(self) -> Any:
        """A store for the checker."""
        ...

    def close(self) -> None:
        """Close everything."""
        ...


class MemoryBackend:
    """SQLite in memory: one store for all, as instances in one process share it."""

    follows_host_clock = True

    def open(self, clock: Clock) -> None:
        """Create an empty store."""
        self.store = SqliteStore(":memory:", clock=clock)

    def store_for(self, actor: SimulatedActor) -> Any:
        """The one store."""
        return self.store

    def close_for(self, actor: SimulatedActor) -> None:
        """Do nothing: all share the store."""

    def now(self) -> datetime:
        """The store's clock."""
        return self.store.now()

    def query(self, sql: str) -> list[Any]:
        """Query on the writer's connection, between transactions."""
        return list(self.store._writer.connection.execute(sql))

    def shared_store(self) -> Any:
        """The one store."""
        return self.store

    def close(self) -> None:
        """Close the store."""
        self.store.close()


class FileBackend:
    """SQLite in a file: each process has its own connection, lock and clock mark."""

    follows_host_clock = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "simulation.db"
        self._stores: dict[str, SqliteStore] = {}

    def open(self, clock: Clock) -> None:
        """Create a new file."""
        for old in self._path.parent.glob("simulation.db*"):
            old.unlink()
        self._clock = clock
        self._inspector = SqliteStore(self._path, clock=clock)

    def store_for(self, actor: SimulatedActor) -> Any:
        """Open another store on the same file."""
        self._stores[actor.name] = SqliteStore(self._path, clock=self._clock)
        return self._stores[actor.name]

    def close_for(self, actor: SimulatedActor) -> None:
        """Close the connections of a dead process, as the system does."""
        store = self._stores.pop(actor.name, None)
        if store is not None:
            store.close()

    def now(self) -> datetime:
        """The host's clock, never before the last recorded instant."""
        return self._inspector.now()

    def query(self, sql: str) -> list[Any]:
        """Query on a separate connection."""
        return list(self._inspector._writer.connection.execute(sql))

    def shared_store(self) -> Any:
        """The separate store."""
        return self._inspector

    def close(self) -> None:
        """Close all stores."""
        for store in self._stores.values():
            store.close()
        self._inspector.close()


class PostgresBackend:
    """PostgreSQL: the server's clock counts, whatever the hosts' clocks are."""

    follows_host_clock = False

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, clock: Clock) -> None:
        """Open a store on an empty database, and a separate connection for queries."""
        import psycopg

        from timewright.stores.postgres.store import PostgresStore

        self.store = PostgresStore(self._url, clock=clock, pool=2)
        self._inspector = psycopg.connect(self._url, autocommit=True)

    def store_for(self, actor: SimulatedActor) -> Any:
        """The one store."""
        return self.store

    def close_for(self, actor: SimulatedActor) -> None:
        """Do nothing: all share the pool."""

    def now(self) -> datetime:
        """The server's clock."""
        return self.store.now()

    def query(self, sql: str) -> list[Any]:
        """Query outside every transaction."""
        return self._inspector.execute(sql.encode()).fetchall()

    def shared_store(self) -> Any:
        """The one store."""
        return self.store

    def close(self) -> None:
        """Close the store."""
        self._inspector.close()
        self.store.close()
