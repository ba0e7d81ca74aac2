"""Opening a store: the same schema in both databases; stores of other versions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.conformance.support.builders import NOON, add, get, make_run
from tests.conformance.support.concurrency import all_at_once
from tests.conformance.support.databases import Database
from timewright.core.moments import HOUR
from timewright.errors import (
    SchemaMismatch,
    StoreError,
)
from timewright.stores.migrate import load_migrations
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database


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


def index_names(database: Database) -> set[str]:
    if database.kind == "sqlite":
        rows = database.sql("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    else:
        rows = database.sql(
            "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey'"
        )
    return {name for (name,) in rows}


def test_both_dialects_make_the_same_tables_columns_and_indexes(
    tmp_path: Path, postgres_place: str, clock: ManualClock
) -> None:
    file = Database("sqlite", str(tmp_path / "store.db"), clock=clock)
    server = Database("postgres", postgres_place, clock=clock)
    file.open().close()
    server.open().close()
    assert table_columns(file) == table_columns(server)
    assert index_names(file) == index_names(server)


def test_both_dialects_have_the_same_migrations() -> None:
    steps = [[(step.number, step.name) for step in load_migrations(kind)] for kind in ("sqlite", "postgres")]
    assert steps[0] == steps[1]
    assert [number for number, _ in steps[0]] == list(range(1, len(steps[0]) + 1))


def test_opening_twice_changes_nothing(database: Database) -> None:
    first = database.open()
    run = make_run()
    add(first, run)
    before = table_columns(database), database.sql("SELECT * FROM migrations")
    assert get(database.open(), run.id) == run
    assert (table_columns(database), database.sql("SELECT * FROM migrations")) == before


def test_many_may_open_a_new_store_at_the_same_time(tmp_path: Path, postgres_url: str, kind: str) -> None:
    with fresh_database(postgres_url) as url:
        database = Database(kind, str(tmp_path / "store.db") if kind == "sqlite" else url)
        answers = all_at_once([database.open] * 8)
        assert [answer for answer in answers if isinstance(answer, Exception)] == []
        assert database.sql("SELECT count(*) FROM migrations") == [(len(load_migrations(kind)),)]
        database.close()


def test_a_store_of_a_later_version_is_refused_and_both_versions_are_named(own_database: Database) -> None:
    own_database.open().close()
    own_database.sql("INSERT INTO migrations (number, name, checksum) VALUES (9999, 'later', 'x')")
    with pytest.raises(SchemaMismatch, match=r"schema 9999.*knows only \d+") as caught:
        own_database.open()
    assert "upgrade" in str(caught.value.fix)


def test_a_store_of_an_earlier_development_version_is_refused_in_one_sentence(own_database: Database) -> None:
    own_database.open().close()
    own_database.sql("UPDATE migrations SET checksum = 'other' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match="made by an earlier development version of timewright"):
        own_database.open()
    # Earlier development versions had more than one migration: these must not ask for an upgrade.
    own_database.sql("INSERT INTO migrations (number, name, checksum) VALUES (2, 'parked', 'x')")
    with pytest.raises(SchemaMismatch, match="made by an earlier development version of timewright"):
        own_database.open()


def test_a_comment_in_a_migration_does_not_change_its_checksum() -> None:
    migration = load_migrations("sqlite")[0]
    commented = replace(migration, sql=f"-- a comment\n{migration.sql}")
    assert commented.checksum == migration.checksum
    extended = replace(migration, sql=f"{migration.sql}\nCREATE TABLE more (id TEXT);\n")
    assert extended.checksum != migration.checksum


def test_a_migration_that_fails_leaves_nothing_behind(
    tmp_path: Path, postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "timewright.stores.sqlite.store" if kind == "sqlite" else "timewright.stores.postgres.store"
    real = load_migrations(kind)
    broken = (*real[:-1], replace(real[-1], sql=real[-1].sql + ";\nCREATE TABLE broken (;\n"))
    with fresh_database(postgres_url) as url:
        database = Database(kind, str(tmp_path / "store.db") if kind == "sqlite" else url)
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.load_migrations", lambda dialect: broken)
            with pytest.raises(StoreError):
                database.open()
        assert table_columns(database) == {}
        add(database.open(), make_run())
        database.close()


def test_a_store_uses_an_injected_clock(database: Database, clock: ManualClock) -> None:
    store = database.open()
    clock.advance(HOUR)
    assert store.now() == NOON + HOUR
