"""Opening: the same tables in both databases, made once; a store of another version is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.builders import NOON, add, ended, get, leased, make_run, settle
from tests.conformance.databases import Database
from tests.conformance.together import all_at_once
from timewright.core.moments import HOUR
from timewright.errors import (
    SchemaMismatch,
    StoreError,
)
from timewright.ports import Store
from timewright.stores.migrate import migrations
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


def test_both_dialects_have_the_same_steps() -> None:
    steps = [[(step.number, step.name) for step in migrations(kind)] for kind in ("sqlite", "postgres")]
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
        assert database.sql("SELECT count(*) FROM migrations") == [(len(migrations(kind)),)]
        database.close()


def test_a_store_of_a_later_version_is_refused_and_both_versions_are_named(own_database: Database) -> None:
    own_database.open().close()
    own_database.sql("INSERT INTO migrations (number, name, checksum) VALUES (9999, 'later', 'x')")
    with pytest.raises(SchemaMismatch, match=r"schema 9999.*knows \d+") as caught:
        own_database.open()
    assert "upgrade" in str(caught.value.fix)


def test_a_store_that_was_built_from_other_steps_is_refused(own_database: Database) -> None:
    own_database.open().close()
    own_database.sql("UPDATE migrations SET checksum = 'other' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match="step 1"):
        own_database.open()


def test_a_migration_that_fails_leaves_nothing_behind(
    tmp_path: Path, postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "timewright.stores.sqlite_schema" if kind == "sqlite" else "timewright.stores.postgres"
    real = migrations(kind)
    from msgspec.structs import replace

    broken = (*real[:-1], replace(real[-1], sql=real[-1].sql + ";\nCREATE TABLE broken (;\n"))
    with fresh_database(postgres_url) as url:
        database = Database(kind, str(tmp_path / "store.db") if kind == "sqlite" else url)
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.migrations", lambda dialect: broken)
            with pytest.raises(StoreError):
                database.open()
        assert table_columns(database) == {}
        add(database.open(), make_run())
        database.close()


@pytest.mark.parametrize("version", range(1, len(migrations("sqlite"))))
def test_a_store_of_any_earlier_version_is_brought_up_to_date_with_all_it_holds(
    tmp_path: Path, postgres_url: str, kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "timewright.stores.sqlite_schema" if kind == "sqlite" else "timewright.stores.postgres"
    with fresh_database(postgres_url) as url:
        database = Database(kind, str(tmp_path / "store.db") if kind == "sqlite" else url)
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.migrations", lambda dialect: migrations(dialect)[:version])
            database.open().close()
        assert database.sql("SELECT max(number) FROM migrations") == [(version,)]
        for statement in FIRST_ROWS.split(";\n\n"):
            database.sql(statement)
        rows = {table: database.sql(f"SELECT * FROM {table} ORDER BY 1") for table in FIRST_TABLES}
        store = database.open()
        assert database.sql("SELECT count(*) FROM migrations") == [(len(migrations(kind)),)]
        for table, before in rows.items():
            after = database.sql(f"SELECT * FROM {table} ORDER BY 1")
            assert [row[: len(before[0])] for row in after] == before
        _live_on(store)
        database.close()


# Written as the first version wrote them: columns that came later are not named.
FIRST_TABLES = ("schedules", "revisions", "runs", "attempts")
FIRST_ROWS = """
INSERT INTO schedules (id, namespace, name, revision, state, decided_to, next_at, wake_at, source, failures,
    last_run)
VALUES ('sch_1', 'default', 'nightly', 1, 'active', 0, 3600000000, 3600000000, 'baseline-interval', 2,
    'run_1');

INSERT INTO revisions (schedule_id, revision, at, body)
VALUES ('sch_1', 1, 0, '{"id":"sch_1","name":"nightly","created_at":"2026-03-10T12:00:00Z",
    "trigger":{"kind":"every","interval":"PT3600S","anchor":"2026-03-10T12:00:00Z"},
    "target":{"kind":"note","text":"hello"}}');

INSERT INTO runs (id, namespace, schedule_id, planned_at, fire_at, state, source, revision, fence, created_at)
VALUES ('run_1', 'default', 'sch_1', 0, 0, 'ready', 'baseline-interval', 1, 1, 0);

INSERT INTO attempts (run_id, fence, number, lease_id, holder, leased_at, lease_until, ended_at, outcome,
    charged)
VALUES ('run_1', 1, 1, 'lease_1', 'worker', 0, 1, 1, 'failed', 1)
"""


def _live_on(store: Store) -> None:
    """What was there goes through its whole life, and is found again."""
    (run,) = store.write(lambda tx: tx.ready_runs(now=NOON, limit=10))
    (held,) = leased(store, run)
    assert settle(store, ended(held)) == {"run_1"}
    store.write(lambda tx: tx.clear_streaks(["sch_1"]))
    (due,) = store.write(lambda tx: tx.due_schedules(now=NOON, limit=10))
    assert (due.schedule.name, due.standing.failures, due.last_run) == ("nightly", 0, "run_1")
    found = store.read(lambda tx: tx.get_attempts(["run_1"]))["run_1"]
    assert [attempt.fence for attempt in found] == [1, 2]


def test_a_store_in_a_test_tells_the_time_it_is_given(database: Database, clock: ManualClock) -> None:
    store = database.open()
    clock.advance(HOUR)
    assert store.now() == NOON + HOUR
