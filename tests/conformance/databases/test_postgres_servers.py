"""PostgreSQL servers: foreign and unsafe ones are refused; unreachable and full ones raise own errors."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.conformance.support.builders import add, get, make_run
from tests.conformance.support.databases import Database
from timewright.errors import (
    ForeignStore,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)
from timewright.ports import RunFilter, Store
from timewright.stores.postgres import store as postgres
from timewright.stores.postgres.store import PostgresStore
from timewright.testing.postgres import fresh_database, postgres_server

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


def table_columns(database: Database) -> dict[str, list[str]]:
    if database.kind == "sqlite":
        tables = database.sql(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        return {
            name: sorted(row[0] for row in database.sql("SELECT name FROM pragma_table_info(?)", [name]))
            for (name,) in tables
        }
    rows = database.sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    )
    return {table: sorted(column for t, column in rows if t == table) for table, _ in rows}


def count(store: Store) -> int:
    return len(store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows)


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE migrations (id INT, migration TEXT, batch INT)",
        "CREATE TABLE runs (id INT)",
        "CREATE TABLE migrations (number BIGINT, name TEXT, checksum TEXT); CREATE TABLE runs (id INT)",
    ],
)
def test_a_database_of_another_application_is_refused_and_not_changed(
    postgres_url: str, kind: str, theirs: str
) -> None:
    with fresh_database(postgres_url) as url:
        database = Database(kind, url)
        database.sql(theirs)
        before = table_columns(database)
        with pytest.raises(ForeignStore):
            PostgresStore(url)
        assert table_columns(database) == before


def test_a_server_that_is_not_there_is_unavailable(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "POOL_TIMEOUT_S", 0.5)
    with pytest.raises(StoreUnavailable):
        PostgresStore(f"postgresql:///x?host={tmp_path}&connect_timeout=1")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_commits_is_refused(kind: str, setting: str) -> None:
    with postgres_server(durable=True, settings={setting: "off"}) as server:
        with pytest.raises(UnsafeStore, match=setting) as caught:
            PostgresStore(server.url())
        assert f"{setting} = on" in str(caught.value.fix)


def test_a_server_that_takes_no_writes_is_recognised(own_database: Database) -> None:
    store = own_database.open()
    run = make_run()
    add(store, run)
    ((name,),) = own_database.sql("SELECT current_database()")
    own_database.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    readers = own_database.open
    with pytest.raises(StoreReadOnly):
        add(readers(), make_run())


def test_a_full_server_raises_store_full_and_writes_resume(own_database: Database) -> None:
    store = own_database.open()
    run = make_run()
    add(store, run)
    own_database.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''no space left'' USING ERRCODE = ''53100''; END'"
    )
    own_database.sql("CREATE TRIGGER full_disk BEFORE INSERT ON runs EXECUTE FUNCTION full_disk()")
    for _ in range(3):
        with pytest.raises(StoreFull):
            add(store, make_run())
    assert get(store, run.id) == run
    own_database.sql("DROP TRIGGER full_disk ON runs")
    add(store, make_run())
    assert count(store) == 2


def test_on_a_server_the_servers_clock_decides(database: Database) -> None:
    store = PostgresStore(database.place)
    before = database.sql("SELECT clock_timestamp()")[0][0]
    now = store.now()
    after = database.sql("SELECT clock_timestamp()")[0][0]
    store.close()
    assert before <= now <= after
    assert now.utcoffset() == timedelta(0)
