"""Work added inside a transaction of a SQLite database: an outbox that an engine empties once."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from timewright import Scheduler
from timewright.errors import InvalidInput, NotAllowed, NotFound

WAIT_S = 60.0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database of the user, with a table of the user's own."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (name TEXT)")
        connection.commit()
    return path


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(tmp_path / "timewright.db")
    scheduler.schedules.create("ship", manual=True, note="shipped", overlap="allow")
    workflow = {"name": "pack", "steps": [{"name": "one", "target": {"note": "packed"}}]}
    scheduler.call("workflow put", **workflow)
    yield scheduler
    scheduler.stop()


@contextmanager
def sqlite3_connection(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path)) as one:
        one.row_factory = sqlite3.Row
        yield one, one.execute, one.commit, one.rollback


@contextmanager
def sqlite3_autocommit(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as one:
        one.execute("BEGIN")
        yield one, one.execute, one.commit, one.rollback


@contextmanager
def sqlalchemy_connection(path: Path) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as one:
        yield one, lambda sql: one.execute(sqlalchemy.text(sql)), one.commit, one.rollback
    engine.dispose()


@contextmanager
def sqlalchemy_session(path: Path) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with Session(engine) as one:
        yield one, lambda sql: one.execute(sqlalchemy.text(sql)), one.commit, one.rollback
    engine.dispose()


@contextmanager
def django_connection(path: Path) -> Iterator[Any]:
    import django
    from django.conf import settings
    from django.db import connections, transaction
    from django.db.backends.sqlite3.base import DatabaseWrapper

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    defaults: dict[str, Any] = {"OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0, "AUTOCOMMIT": True}
    defaults |= {"CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False, "NAME": str(path)}
    connection = DatabaseWrapper(defaults, alias="till")
    connections["till"] = connection
    block = transaction.Atomic("till", savepoint=True, durable=False)
    block.__enter__()

    def end(*error: Any) -> None:
        block.__exit__(*(error or (None, None, None)))

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    yield connection, execute, end, lambda: end(ValueError, ValueError("no"), None)
    connection.close()


KINDS: list[Callable[[Path], Any]] = [
    sqlite3_connection,
    sqlite3_autocommit,
    sqlalchemy_connection,
    sqlalchemy_session,
    django_connection,
]


def add_all(app: Scheduler, connection: Any) -> None:
    with app.inside(connection) as tx:
        tx.schedules.run("ship", payload={"order": 1})
        tx.schedules.create("later", every="1h", note="hi")
        tx.schedules.run("later")
        tx.queues.add("mail", payload={"to": "ada"})
        tx.workflows.run("pack")


def counts(app: Scheduler) -> dict[str, int]:
    """How many runs each schedule, queue and workflow has."""
    found = {name: len(app.runs.list(schedule=name).runs) for name in ("ship",)}
    names = {one.name for one in app.schedules.list().schedules}
    if "later" in names:
        found["later"] = len(app.runs.list(schedule="later").runs)
    entries = app.call("run list", queue="mail").runs
    return {**found, "mail": len(entries)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_leaves_nothing_and_a_commit_adds_each_once(
    app: Scheduler, shop: Path, kind: Callable[[Path], Any]
) -> None:
    with kind(shop) as (connection, execute, _, rollback):
        execute("INSERT INTO orders VALUES ('one')")
        add_all(app, connection)
        rollback()
    assert app.instance.outbox.move_entries() == 0
    with kind(shop) as (connection, execute, commit, _):
        execute("INSERT INTO orders VALUES ('two')")
        add_all(app, connection)
        assert counts(app) == {"ship": 0, "mail": 0}
        commit()
    assert app.instance.outbox.move_entries() == 5
    assert counts(app) == {"ship": 1, "later": 1, "mail": 1}
    assert app.instance.outbox.move_entries() == 0
    with closing(sqlite3.connect(shop)) as connection:
        assert connection.execute("SELECT name FROM orders").fetchall() == [("two",)]
        assert connection.execute("SELECT count(*) FROM timewright_outbox").fetchone() == (0,)


def test_a_running_engine_starts_the_work_after_the_commit(app: Scheduler, shop: Path) -> None:
    app.start()
    with closing(sqlite3.connect(shop)) as connection:
        with app.inside(connection) as tx:
            tx.schedules.run("ship", payload=1)
        connection.commit()
    ends = time.monotonic() + WAIT_S
    while [run.state.value for run in app.runs.list(schedule="ship").runs] != ["succeeded"]:
        assert time.monotonic() < ends
        time.sleep(0.05)


KILLED = """
import os, signal, sys
from timewright import Scheduler
from timewright.wiring import outbox

outbox.finish_entries = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
Scheduler(sys.argv[1]).instance.outbox.move_entries()
"""


def test_an_engine_killed_before_it_deletes_an_entry_runs_it_once(
    app: Scheduler, shop: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(shop)) as connection:
        add_all(app, connection)
        connection.commit()
    path = os.pathsep.join(one for one in sys.path if one)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "timewright.db")],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    assert counts(app) == {"ship": 1, "later": 1, "mail": 1}
    assert app.instance.outbox.move_entries() == 5
    assert counts(app) == {"ship": 1, "later": 1, "mail": 1}


def test_another_process_finds_a_registered_database(app: Scheduler, shop: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(shop)) as connection:
        with app.inside(connection) as tx:
            tx.queues.add("mail", payload=1)
        connection.commit()
    other = Scheduler(tmp_path / "timewright.db")
    assert other.instance.outbox.move_entries() == 1
    other.stop()


def test_a_call_that_would_be_refused_is_refused_at_once(app: Scheduler, shop: Path) -> None:
    with closing(sqlite3.connect(shop)) as connection, app.inside(connection) as tx:
        with pytest.raises(NotFound, match="no schedule 'nobody'"):
            tx.schedules.run("nobody")
        with pytest.raises(InvalidInput, match="cannot be written as JSON"):
            tx.schedules.run("ship", payload=object())
        with pytest.raises(NotAllowed, match="not offered inside a transaction"):
            tx.call("schedule archive", schedule="ship")


def test_an_entry_that_is_refused_later_stays_with_its_error(
    app: Scheduler, shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(shop)) as connection:
        with app.inside(connection) as tx:
            tx.schedules.run("ship")
            tx.queues.add("mail", payload=1)
        connection.commit()
        app.call("schedule archive", schedule="ship")
        assert app.instance.outbox.move_entries() == 1
        (row,) = connection.execute("SELECT operation, error FROM timewright_outbox").fetchall()
        assert row[0] == "schedule run"
        assert "ship" in row[1]
        assert "an entry of the outbox was refused" in caplog.text
        assert app.instance.outbox.move_entries() == 0


def refusal(app: Scheduler, connection: sqlite3.Connection) -> str:
    with closing(connection), pytest.raises(NotAllowed) as refused, app.inside(connection):
        pass
    return refused.value.message


class AsyncSqlite:
    """A connection of aiosqlite, which is refused by its class."""

    __module__ = "aiosqlite.core"


def test_a_connection_of_aiosqlite_is_refused_with_the_remedy(app: Scheduler) -> None:
    with pytest.raises(NotAllowed, match="aiosqlite connections cannot be used") as refused:
        asyncio.run(app.inside_async(AsyncSqlite()))
    assert "sqlite3 in a thread" in str(refused.value.fix)


def test_a_connection_without_a_transaction_or_a_file_is_refused(
    app: Scheduler, shop: Path, tmp_path: Path
) -> None:
    without = refusal(app, sqlite3.connect(shop, isolation_level=None))
    assert without == "the connection has no open transaction"
    for place in (":memory:", tmp_path / "timewright.db"):
        assert refusal(app, sqlite3.connect(place)) == "this database cannot have an outbox"
