"""Operations inside the user's own transaction: `with app.inside(connection) as tx: tx.queues.add(…)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.errors import NotAllowed
from timewright.interfaces.python.resources import AsyncResources, Resources, own_copy
from timewright.operations import operations
from timewright.operations.context import OperationContext
from timewright.ports import Store
from timewright.wiring import Instance
from timewright.wiring.outbox import Outbox

OFFERED = ("schedule run", "schedule create", "queue add", "workflow run")

_DRIVER_URL = "postgresql+psycopg://… (pip install 'psycopg[binary]')"
_ONE_CONNECTION = "with engine.begin() as connection:, with pool.connection() as connection:"
_SOURCES_OF_CONNECTIONS = {
    f"{package}.{name}"
    for package, names in {
        "sqlalchemy": ("Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker"),
        "psycopg_pool": ("BasePool",),
    }.items()
    for name in names
}
_SYNC_SQLITE = "open the transaction with sqlite3 in a thread: await asyncio.to_thread(work)"


class InsideTransaction(Resources):
    """What a scheduler offers inside a transaction. It becomes true with the caller's commit."""

    def __init__(self, context: Callable[[], OperationContext], store: Store) -> None:
        self._new_context = context
        self._store = store
        super().__init__(self.call)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name."""
        _check_offered(operation)
        # Observers are told when an engine sees what was committed.
        context = replace(self._new_context(), store=self._store, notify=_discard)
        return own_copy(operations[operation].perform_payload(context, request))


class OutboxTransaction(Resources):
    """What a scheduler offers inside a transaction of a SQLite database: entries of an outbox.

    A call is checked against the store at once and returns its entry. An engine performs it after the
    caller's commit, once.
    """

    def __init__(self, context: Callable[[], OperationContext], outbox: Outbox, connection: Any) -> None:
        self._new_context = context
        self._outbox = outbox
        self._connection = connection
        self._created: set[Any] = set()
        super().__init__(self.call)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Write an operation into the outbox by its name."""
        _check_offered(operation)
        context = replace(self._new_context(), notify=_discard)
        # A schedule of the same transaction is not in the store yet.
        if request.get("schedule") not in self._created:
            operations[operation].perform_payload(context, {**request, "dry_run": True})
        if operation == "schedule create":
            self._created.add(request.get("name"))
        return self._outbox.add(self._connection, operation, request, context=context)


class AsyncInsideTransaction(AsyncResources):
    """The same with awaitable methods. The connection is locked meanwhile, as for a query of its own."""

    def __init__(self, inside: InsideTransaction, lock: asyncio.Lock) -> None:
        self._inside = inside
        self._lock = lock
        super().__init__(self.call)

    async def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name."""
        async with self._lock:
            return await asyncio.to_thread(lambda: self._inside.call(operation, **request))


class TransactionMethods:
    """The method of a scheduler that works inside the user's own transaction."""

    if TYPE_CHECKING:

        @property
        def instance(self) -> Instance: ...
        def _context(self) -> OperationContext: ...

    @contextmanager
    def inside(self, connection: Any) -> Iterator[InsideTransaction | OutboxTransaction]:
        """Add work inside the open transaction of a connection to the database of the store.

        Takes a connection of psycopg 3, a connection or session of SQLAlchemy, or the connection of Django.
        Nothing is begun, committed or retried here; the work starts after your commit. A connection to a
        SQLite database of your own writes into an outbox there, which an engine on this machine empties.
        """
        found = driver_connection(connection)
        if _is_sqlite(found):
            self.instance.outbox.register(found)
            yield OutboxTransaction(self._context, self.instance.outbox, found)
            return
        if _begins_with_first_statement(found):
            found.execute("SELECT 1")
        yield InsideTransaction(self._context, _borrowed_store(self.instance.store, found))

    async def inside_async(self, connection: Any) -> AsyncInsideTransaction:
        """Return the same for an async connection."""
        found = await async_driver_connection(connection)
        if _is_sqlite(found):
            raise _wrong_kind(connection, "an outbox needs a connection of sqlite3", "app.scheduler.inside")
        if _begins_with_first_statement(found):
            await found.execute("SELECT 1")
        async with found.lock:
            store = await asyncio.to_thread(lambda: _borrowed_store(self.instance.store, found))
        return AsyncInsideTransaction(InsideTransaction(self._context, store), found.lock)


def _check_offered(operation: str) -> None:
    if operation not in OFFERED:
        raise NotAllowed(
            f"{operation} is not offered inside a transaction",
            field="operation",
            value=operation,
            rule=f"one of: {', '.join(OFFERED)}",
            fix="call it on the scheduler, before or after the transaction",
        )


def _is_sqlite(connection: Any) -> bool:
    return "sqlite3.Connection" in _kinds(connection)


def _begins_with_first_statement(connection: Any) -> bool:
    """Whether the driver begins a transaction with the first statement, and has not sent one yet."""
    return not connection.autocommit and connection.info.transaction_status.name == "IDLE"


def _borrowed_store(store: Store, connection: Any) -> Store:
    """Return the store inside the transaction of a psycopg connection."""
    borrow: Callable[[Any], Store] | None = getattr(store, "borrow", None)
    if borrow is None:
        raise NotAllowed(
            "a SQLite store has a file of its own, which your transaction on PostgreSQL cannot include",
            field="connection",
            rule="a PostgreSQL store in the database of your tables, or an outbox in a SQLite database",
            fix="Scheduler('postgresql://…'), or app.schedules.run(…) after your commit",
        )
    return borrow(connection.pgconn)


def driver_connection(connection: Any) -> Any:
    """Return the psycopg connection below a connection of SQLAlchemy or Django, in its transaction."""
    kinds = _kinds(connection)
    if "sqlalchemy.Session" in kinds or "sqlalchemy.scoped_session" in kinds:
        return driver_connection(connection.connection())
    if "sqlalchemy.Connection" in kinds:
        found = _psycopg_connection(connection.connection.driver_connection)
        connection.exec_driver_sql("SELECT 1")  # so that SQLAlchemy knows of the transaction
        return found
    if "django.BaseDatabaseWrapper" in kinds or "django.ConnectionProxy" in kinds:
        connection.ensure_connection()
        return _psycopg_connection(connection.connection)
    if "psycopg.AsyncConnection" in kinds or any(name.startswith("sqlalchemy.Async") for name in kinds):
        raise _wrong_kind(connection, "an async connection needs AsyncScheduler.inside", "AsyncScheduler")
    return _psycopg_connection(connection)


async def async_driver_connection(connection: Any) -> Any:
    """Return the psycopg connection below an async connection, in its transaction."""
    kinds = _kinds(connection)
    if "sqlalchemy.AsyncSession" in kinds or "sqlalchemy.async_scoped_session" in kinds:
        return await async_driver_connection(await connection.connection())
    if "sqlalchemy.AsyncConnection" in kinds:
        found = _psycopg_connection((await connection.get_raw_connection()).driver_connection)
        await connection.exec_driver_sql("SELECT 1")
        return found
    if "psycopg.Connection" in kinds or "sqlalchemy.Connection" in kinds or "sqlalchemy.Session" in kinds:
        raise _wrong_kind(
            connection, "AsyncScheduler.inside needs an async connection", "app.scheduler.inside"
        )
    return _psycopg_connection(connection)


def _psycopg_connection(connection: Any) -> Any:
    kinds = _kinds(connection)
    if "psycopg.BaseConnection" in kinds or "sqlite3.Connection" in kinds:
        return connection
    if kinds & _SOURCES_OF_CONNECTIONS:
        raise _wrong_kind(connection, f"{type(connection).__name__} is not a connection", _ONE_CONNECTION)
    name = next(iter(type(connection).__module__.split(".")), "")
    fix = _SYNC_SQLITE if name == "aiosqlite" else _DRIVER_URL
    raise _wrong_kind(connection, f"{name} connections cannot be used", fix)


def _kinds(connection: Any) -> set[str]:
    """Return the classes of a connection as `package.Class`, without importing the packages."""
    return {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(connection).__mro__}


def _wrong_kind(connection: Any, message: str, fix: str) -> NotAllowed:
    return NotAllowed(
        message,
        field="connection",
        value=f"{type(connection).__module__}.{type(connection).__name__}",
        rule="a connection of psycopg 3 or sqlite3, or of SQLAlchemy 2 or Django on one of them",
        fix=fix,
    )


def _discard(facts: Sequence[Fact]) -> None:
    """Drop facts that are not yet true."""
