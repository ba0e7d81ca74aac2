"""What the world stands on: a real SQLite in memory or in a file, or a real PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from timewright.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from timewright.ports import Clock
    from timewright.testing.world.actors import Actor


class Base(Protocol):
    """A store that many actors share, and a way to look at it from outside."""

    steps_with_host: bool

    def open(self, clock: Clock) -> None:
        """Begin empty, with this as the store's clock."""
        ...

    def store_for(self, actor: Actor) -> Any:
        """The store as one process opens it."""
        ...

    def close_for(self, actor: Actor) -> None:
        """That process is gone."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def ask(self, sql: str) -> list[Any]:
        """Rows, seen from outside."""
        ...

    def store_of_all(self) -> Any:
        """A store for the one who judges."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class MemoryBase:
    """SQLite in memory: one store for all, as several instances in one process share it."""

    steps_with_host = True

    def open(self, clock: Clock) -> None:
        """A store that is empty."""
        self.store = SqliteStore(":memory:", clock=clock)

    def store_for(self, actor: Actor) -> Any:
        """The one store."""
        return self.store

    def close_for(self, actor: Actor) -> None:
        """Nothing: the store belongs to all."""

    def now(self) -> datetime:
        """The store's clock."""
        return self.store.now()

    def ask(self, sql: str) -> list[Any]:
        """On the writer's connection, between transactions."""
        return list(self.store._writer.connection.execute(sql))

    def store_of_all(self) -> Any:
        """The one store, for the one who judges."""
        return self.store

    def close(self) -> None:
        """End of the world."""
        self.store.close()


class FileBase:
    """SQLite in a file: a connection, a lock and a clock mark for every process."""

    steps_with_host = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "world.db"
        self._stores: dict[str, SqliteStore] = {}

    def open(self, clock: Clock) -> None:
        """A new file."""
        for old in self._path.parent.glob("world.db*"):
            old.unlink()
        self._clock = clock
        self._eye = SqliteStore(self._path, clock=clock)

    def store_for(self, actor: Actor) -> Any:
        """A store of its own on the same file."""
        self._stores[actor.name] = SqliteStore(self._path, clock=self._clock)
        return self._stores[actor.name]

    def close_for(self, actor: Actor) -> None:
        """The system closes what a dead process had open."""
        store = self._stores.pop(actor.name, None)
        if store is not None:
            store.close()

    def now(self) -> datetime:
        """The host's clock, held above everything that was recorded."""
        return self._eye.now()

    def ask(self, sql: str) -> list[Any]:
        """On a connection that only looks."""
        return list(self._eye._writer.connection.execute(sql))

    def store_of_all(self) -> Any:
        """The one store, for the one who judges."""
        return self._eye

    def close(self) -> None:
        """End of the world."""
        for store in self._stores.values():
            store.close()
        self._eye.close()


class PostgresBase:
    """PostgreSQL: the server's clock decides, whatever the hosts believe."""

    steps_with_host = False

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, clock: Clock) -> None:
        """A store on a database that is empty, and a connection that only looks."""
        import psycopg

        from timewright.stores.postgres import PostgresStore

        self.store = PostgresStore(self._url, clock=clock, pool=2)
        self._eye = psycopg.connect(self._url, autocommit=True)

    def store_for(self, actor: Actor) -> Any:
        """The one store; a server does not care who asks."""
        return self.store

    def close_for(self, actor: Actor) -> None:
        """Nothing: the pool belongs to all."""

    def now(self) -> datetime:
        """The server's clock."""
        return self.store.now()

    def ask(self, sql: str) -> list[Any]:
        """From outside every transaction."""
        return self._eye.execute(sql.encode()).fetchall()

    def store_of_all(self) -> Any:
        """The one store, for the one who judges."""
        return self.store

    def close(self) -> None:
        """End of the world."""
        self._eye.close()
        self.store.close()
