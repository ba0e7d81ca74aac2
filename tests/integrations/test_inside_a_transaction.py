"""Work added inside the user's own transaction: true with the commit, gone with a rollback."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from tests.project import DOCS, GUIDE_BLOCK
from timewright import AsyncScheduler, Scheduler
from timewright.errors import InvalidInput, NotAllowed
from timewright.testing.postgres import fresh_database, shared_postgres

WAIT_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared_postgres(folder / "postgres") as url:
        yield url


@pytest.fixture(scope="module")
def url(server: str) -> Iterator[str]:
    """A database of the user, with a table of the user's own, and the store in a schema beside it."""
    with fresh_database(server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (name text)")
            connection.execute("CREATE SCHEMA timewright")
        yield url


def store_in(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3Dtimewright"


@pytest.fixture(scope="module")
def app(url: str) -> Iterator[Scheduler]:
    scheduler = Scheduler(store_in(url))
    scheduler.schedules.create("ship", manual=True, note="shipped", overlap="allow")
    workflow = {"name": "pack", "steps": [{"name": "one", "target": {"note": "packed"}}]}
    scheduler.call("workflow put", **workflow)
    yield scheduler
    scheduler.stop()


def alchemy(url: str, driver: str = "psycopg") -> sqlalchemy.URL:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=str(parts.get("user") or "") or None,
        database=str(parts["dbname"]),
        query={"host": str(parts["host"]), "port": str(parts.get("port", 5432))},
    )


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection, connection.execute, connection.commit, connection.rollback


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url))
    with engine.connect() as one:
        yield one, lambda sql: one.execute(sqlalchemy.text(sql)), one.commit, one.rollback
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url))
    with Session(engine) as one:
        yield one, lambda sql: one.execute(sqlalchemy.text(sql)), one.commit, one.rollback
    engine.dispose()


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    import django
    from django.conf import settings
    from django.db import connections, transaction
    from django.db.backends.postgresql.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    parts = psycopg.conninfo.conninfo_to_dict(url)
    options = {"HOST": parts["host"], "PORT": parts.get("port", ""), "USER": parts.get("user", "")}
    defaults: dict[str, Any] = {
        "PASSWORD": "",
        "OPTIONS": {},
        "TIME_ZONE": None,
        "CONN_MAX_AGE": 0,
        "AUTOCOMMIT": True,
    }
    defaults |= {"CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False, "NAME": parts["dbname"]}
    connection = DatabaseWrapper({**defaults, **options}, alias="shop")
    block = transaction.Atomic("shop", savepoint=True, durable=False)
    connections["shop"] = connection
    block.__enter__()

    def end(*error: Any) -> None:
        block.__exit__(*(error or (None, None, None)))

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    try:
        yield connection, execute, end, lambda: end(ValueError, ValueError(), None)
    finally:
        connection.connection.close()


KINDS: dict[str, Callable[[str], Any]] = {
    "psycopg": psycopg_connection,
    "SQLAlchemy Connection": sqlalchemy_connection,
    "SQLAlchemy Session": sqlalchemy_session,
    "Django": django_connection,
}


def add_all(tx: Any, name: str) -> list[str]:
    """Use everything that is offered; returns the ids of the runs."""
    made = tx.schedules.create(name, every="1h", note="later")
    assert made.schedule.name == name
    return [
        tx.schedules.run("ship", payload={"order": name}).run.id,
        tx.queues.add("mail", payload={"order": name}).entries[0].id,
        tx.workflows.run("pack").run.id,
    ]


def rows(url: str) -> dict[str, int]:
    """How many rows each table of the store and the user's table has."""
    with psycopg.connect(store_in(url)) as connection:
        names = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname IN ('timewright', 'public')"
        ).fetchall()
        counts = (connection.execute(f"SELECT count(*) FROM {name}").fetchall() for (name,) in names)
        return {name: rows[0][0] for (name,), rows in zip(names, counts, strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_leaves_nothing(app: Scheduler, url: str, kind: str) -> None:
    before = rows(url)
    with KINDS[kind](url) as (connection, execute, _, roll_back):
        execute("INSERT INTO orders VALUES ('gone')")
        with app.inside(connection) as tx:
            add_all(tx, "gone")
        roll_back()
    assert rows(url) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_makes_it_true_with_the_rows_of_the_user(app: Scheduler, url: str, kind: str) -> None:
    name = kind.lower().replace(" ", "-")
    with KINDS[kind](url) as (connection, execute, commit, _):
        with app.inside(connection) as tx:
            ids = add_all(tx, name)
        execute(f"INSERT INTO orders VALUES ('{name}')")  # the search path is the user's again
        with psycopg.connect(store_in(url)) as other:
            assert other.execute("SELECT 1 FROM runs WHERE id = ANY(%s)", (ids,)).fetchall() == []
        commit()
    assert [app.runs.get(one).run.id for one in ids] == ids
    with psycopg.connect(url) as other:
        assert other.execute("SELECT count(*) FROM orders WHERE name = %s", (name,)).fetchone() == (1,)


@pytest.mark.parametrize("kind", ["psycopg", "connection", "session"])
@pytest.mark.parametrize("commits", [True, False])
def test_async_connections_work_the_same(app: Scheduler, url: str, kind: str, commits: bool) -> None:
    async def story() -> int:
        other = AsyncScheduler(store_in(url))
        count = rows(url)["timewright.runs"]
        try:
            async with opened(kind) as connection:
                async with other.inside(connection) as tx:
                    await tx.schedules.run("ship")
                    await tx.queues.add("mail", payload=1)
                await (connection.commit() if commits else connection.rollback())
        finally:
            await other.stop()
        return rows(url)["timewright.runs"] - count

    @asynccontextmanager
    async def opened(kind: str) -> Any:
        if kind == "psycopg":
            async with await psycopg.AsyncConnection.connect(url) as connection:
                yield connection
            return
        engine = create_async_engine(alchemy(url))
        async with engine.connect() if kind == "connection" else AsyncSession(engine) as one:
            yield one
        await engine.dispose()

    assert asyncio.run(story()) == (2 if commits else 0)


def test_the_commit_wakes_an_engine(url: str, app: Scheduler) -> None:
    with Scheduler(store_in(url)) as engine, psycopg.connect(url) as connection:
        assert engine.is_running
        with app.inside(connection) as tx:
            run = tx.schedules.run("ship").run.id
        connection.commit()
        engine.result(run, timeout="60s")
    assert app.runs.get(run).run.state == "succeeded"


def test_a_refusal_leaves_nothing_and_does_not_end_the_transaction(app: Scheduler, url: str) -> None:
    with psycopg.connect(url) as connection:
        with app.inside(connection) as tx:
            with pytest.raises(InvalidInput):
                tx.schedules.create("wrong", every="1h", note="x", cron="* * * * *")
            with pytest.raises(NotAllowed, match="not offered"):
                tx.schedules.pause("ship")
            connection.execute("INSERT INTO orders VALUES ('still here')")
        connection.commit()
        assert connection.execute("SELECT count(*) FROM orders WHERE name = 'still here'").fetchone() == (1,)


def test_a_connection_without_a_transaction_is_refused(app: Scheduler, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(NotAllowed, match="no open transaction"), app.inside(connection):
            pass
        with connection.transaction(), app.inside(connection) as tx:
            tx.schedules.run("ship")


def test_a_failed_transaction_is_refused(app: Scheduler, url: str) -> None:
    with psycopg.connect(url) as connection:
        with suppress(psycopg.errors.UndefinedColumn):
            connection.execute("SELECT nothing")
        with pytest.raises(NotAllowed, match="has failed"), app.inside(connection):
            pass


def test_an_engine_is_refused_with_how_to_take_a_connection(app: Scheduler, url: str) -> None:
    engine = sqlalchemy.create_engine(alchemy(url))
    for source in (engine, sessionmaker(engine)):
        with pytest.raises(NotAllowed, match="is not a connection") as refused, app.inside(source):
            pass
        assert "engine.begin()" in str(refused.value.fix)


def test_a_connection_to_another_database_is_refused(app: Scheduler, server: str) -> None:
    with fresh_database(server) as other, psycopg.connect(other) as connection:
        with pytest.raises(NotAllowed, match="another database") as refused, app.inside(connection):
            pass
        assert "search_path" in str(refused.value.fix)


def test_a_store_of_another_schema_version_is_refused(app: Scheduler, url: str) -> None:
    with psycopg.connect(store_in(url)) as connection:
        connection.execute("DELETE FROM migrations")
        with pytest.raises(NotAllowed, match="older schema"), app.inside(connection):
            pass
        connection.rollback()


def test_drivers_that_cannot_share_their_transaction_are_refused_with_the_remedy(
    app: Scheduler, url: str, tmp_path: Path
) -> None:
    async def with_asyncpg() -> None:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        connection = await asyncpg.connect(
            host=parts["host"],
            port=int(parts.get("port") or 5432),
            user=parts.get("user"),
            database=parts["dbname"],
        )
        try:
            with pytest.raises(NotAllowed, match="asyncpg") as refused:
                await app.inside_async(connection)
            assert "postgresql+psycopg" in str(refused.value.fix)
        finally:
            await connection.close()

    asyncio.run(with_asyncpg())
    with pytest.raises(NotAllowed, match="AsyncScheduler"), app.inside(FakeAsync()):
        pass
    other = Scheduler(tmp_path / "file.db")
    with psycopg.connect(url) as one, pytest.raises(NotAllowed, match="SQLite"), other.inside(one):
        pass
    other.stop()


def test_the_blocks_of_the_page_do_what_it_says(
    app: Scheduler, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "how-to/transactions.md").read_text("utf-8")
    names: dict[str, Any] = {"DATABASE_URL": url, "ALCHEMY_URL": alchemy(url)}
    before = rows(url)

    async def save() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            other = AsyncScheduler(store_in(url))
            await names["save"](connection, other)
            await other.stop()

    monkeypatch.chdir(tmp_path)
    for kind, _, block in GUIDE_BLOCK.findall(page):
        assert kind == "py"
        exec(block, names)
    asyncio.run(save())
    names["app"].stop()
    names["engine"].dispose()
    after = rows(url)
    assert after["public.orders"] - before["public.orders"] == 3
    assert after["timewright.runs"] - before["timewright.runs"] == 3
    with closing(sqlite3.connect("shop.db")) as shop:
        assert shop.execute("SELECT operation FROM timewright_outbox").fetchall() == [("schedule run",)]


class FakeAsync(psycopg.AsyncConnection[Any]):
    def __init__(self) -> None:
        """It is refused by its class."""

    def __del__(self, *_: object) -> None:
        """Nothing was opened."""
