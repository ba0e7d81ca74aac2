"""Backup, restore and move: whole stores on either database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.operations.harness import NOON, sample_harness
from timewright.core.facts import RunSucceeded
from timewright.core.moments import HOUR, MINUTE, SECOND, ZERO
from timewright.core.run.run import RunState
from timewright.errors import Conflict, NotFound, StoreReadOnly
from timewright.ids import TimedIds
from timewright.operations import OperationContext, operations
from timewright.ports import RunFilter, Store
from timewright.ports.objects import OpenPauses
from timewright.stores import table_copy
from timewright.stores.postgres.tables import PostgresTables
from timewright.stores.sqlite.store import SqliteStore
from timewright.stores.table_copy import SqliteTables, TableAccess, store_tables
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.postgres import fresh_database
from timewright.wiring import open_store, sqlite_path
from timewright.wiring.store_copies import Progress, StoreCopier

NOT_COMPARED = (*table_copy.CLOCK_META, table_copy.PROGRESS_META, "moved_by", "audit")


SCHEDULES = 50


class Killed(BaseException):
    """Ends a copy where a kill would."""


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as database:
        yield database


CLOCK = ManualClock(NOON)


def copier(progress: Progress | None = None, *, clock: ManualClock = CLOCK) -> StoreCopier:
    return StoreCopier(user="ada", progress=progress, clock=clock)


@pytest.fixture
def sample(tmp_path: Path) -> str:
    """A file with nine days of history and every kind of object."""
    store: Any = sample_harness().store
    store.backup(tmp_path / "live.db")
    return str(tmp_path / "live.db")


def tables_of(url: str) -> TableAccess:
    path = sqlite_path(url)
    return SqliteTables(path) if path is not None else PostgresTables(url)


def rows_of(url: str, *, without: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """Every row of every table."""
    with closing(tables_of(url)) as tables:
        found = {
            table.name: [tuple(row) for row in tables.read_rows(table, ())]
            for table in store_tables()
            if table.name not in without
        }
    if "meta" in found:
        found["meta"] = [row for row in found["meta"] if row[0] not in NOT_COMPARED]
    return found


def ask(store: Store, operation: str, **request: Any) -> Any:
    context = OperationContext(store=store, ids=TimedIds(), notify=lambda _: None)
    return operations[operation](context, request)


def ask_at(url: str, operation: str, **request: Any) -> Any:
    with closing(open_store(url, clock=CLOCK)) as store:
        return ask(store, operation, **request)


def test_both_databases_have_the_same_tables_columns_and_keys(url: str) -> None:
    open_store(url).close()
    with closing(PostgresTables(url)) as tables:
        columns = tables.query(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name <> 'migrations'"
        )
        keys = tables.query(
            "SELECT c.relname, a.attname, array_position(i.indkey::int2[], a.attnum) FROM pg_index i"
            " JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE i.indisprimary AND a.attnum = ANY (i.indkey) AND c.relnamespace = 'public'::regnamespace"
            " ORDER BY 1, 3"
        )
    ours = store_tables()
    assert ours[0].name == "pauses"
    assert sorted(map(tuple, columns)) == sorted((one.name, column) for one in ours for column in one.columns)
    for one in ours:
        assert one.key == tuple(column for name, column, _ in keys if name == one.name)


def test_a_backup_of_postgres_is_a_file_with_every_row_and_restores_into_either_database(
    sample: str, url: str, tmp_path: Path, postgres_url: str
) -> None:
    with closing(tables_of(sample)) as tables:
        tables.query("DELETE FROM pauses")
    copier().restore(Path(sample), url)
    ask_at(url, "resume")
    original = rows_of(url)
    size = copier().back_up(url, tmp_path / "backup.db")
    assert size == (tmp_path / "backup.db").stat().st_size
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "live.db"]
    assert rows_of(str(tmp_path / "backup.db")) == original
    with fresh_database(postgres_url) as other:
        for place in (str(tmp_path / "again.db"), other):
            restored = copier().restore(tmp_path / "backup.db", place, reason="a drill")
            assert rows_of(place, without=("pauses", "audit", "audit_seals", "meta")) == {
                name: rows
                for name, rows in original.items()
                if name not in ("pauses", "audit", "audit_seals", "meta")
            }
            assert restored.rows > sum(map(len, original.values()))
            assert ask_at(place, "audit verify")["intact"]
            assert ask_at(place, "verify")["holds"]


def test_a_restored_store_is_paused_says_what_would_run_and_runs_it_after_resume(
    url: str, tmp_path: Path
) -> None:
    clock = ManualClock(NOON)
    with closing(SqliteStore(tmp_path / "live.db", clock=clock)) as store:
        bench = Bench(store=store, clock=clock)
        bench.schedule("newest", every="10m", catch_up="last")
        bench.schedule("each", every="20m", catch_up="all", overlap="allow")
        bench.schedule("never", every="10m", catch_up="none", grace="1s")
        bench.schedule("later", every="7d")
    clock.advance(HOUR + 5 * MINUTE)
    for place in (str(tmp_path / "restored.db"), url):
        (found,) = copier(clock=clock).restore(tmp_path / "live.db", place).would_run
        assert sorted(one.schedule for one in found.first) == ["each", "each", "each", "newest"]
        assert found.skipped == {"missed": 11}
        with closing(open_store(place, clock=clock)) as store:
            live = Bench(store=store, clock=clock)
            live.tick()
            assert store.read(lambda tx: tx.find(RunFilter())).rows == ()
            (pause,) = store.read(lambda tx: tx.select(OpenPauses()))
            assert (pause.origin, pause.actor, pause.reason) == ("restore", "ada", "restored from live.db")
            ask(store, "resume")
            live.tick()
            runs = store.read(lambda tx: tx.find(RunFilter())).rows
            ran = [run for run in runs if run.state is RunState.SUCCEEDED]
            assert len(ran) == found.runs


def test_a_store_is_restored_only_into_an_empty_place_from_a_complete_backup(
    sample: str, url: str, tmp_path: Path
) -> None:
    (tmp_path / "taken.db").write_text("precious", encoding="utf-8")
    with pytest.raises(Conflict, match="already exists"):
        copier().restore(Path(sample), str(tmp_path / "taken.db"))
    with pytest.raises(NotFound, match="no backup"):
        copier().restore(tmp_path / "missing.db", str(tmp_path / "new.db"))
    ask_at(url, "schedule create", name="mine", every="1h", note="x")
    with pytest.raises(Conflict, match="is not empty"):
        copier().restore(Path(sample), url)
    with closing(tables_of(sample)) as tables:
        tables.put_meta(table_copy.PROGRESS_META, '{"copy_id": "x"}')
    with pytest.raises(Conflict, match="unfinished copy"):
        copier().restore(Path(sample), str(tmp_path / "new.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.db", "taken.db"]
    assert (tmp_path / "taken.db").read_text(encoding="utf-8") == "precious"


def end_leases(url: str) -> None:
    with closing(tables_of(url)) as tables:
        tables.query("UPDATE runs SET lease_until = leased_at WHERE state = 'leased'")


def test_a_move_there_and_back_keeps_every_row_and_leaves_the_old_store_frozen(
    sample: str, url: str, tmp_path: Path
) -> None:
    end_leases(sample)
    original = rows_of(sample, without=("pauses", "audit", "audit_seals"))
    place = sample
    for to in (url, str(tmp_path / "back.db")):
        moved = copier().move(place, to, wait=ZERO)
        assert rows_of(to, without=("pauses", "audit", "audit_seals")) == original
        assert rows_of(to, without=("pauses",)) == rows_of(place, without=("pauses",))
        assert moved.rows == sum(map(len, rows_of(to).values())) + 2
        for at in (place, to):
            assert ask_at(at, "verify")["holds"]
            assert ask_at(at, "audit verify")["intact"]
        for operation, request in (
            ("resume", {}),
            ("schedule create", {"name": "late", "every": "1h", "note": "x"}),
            ("queue add", {"queue": "mail", "payload": {}}),
        ):
            with pytest.raises(StoreReadOnly, match="moved to"):
                ask_at(place, operation, **request)
        assert [one["reason"] for one in paused(to)] == []
        assert "moved to" in paused(place)[0]["reason"]
        copier().move(place, to, wait=ZERO)  # a second time changes nothing
        ask_at(to, "schedule create", name=f"new-{len(to)}", every="1h", note="x")
        ask_at(to, "schedule delete", schedule=f"new-{len(to)}")
        original = rows_of(to, without=("pauses", "audit", "audit_seals"))
        place = to


def paused(url: str) -> list[dict[str, Any]]:
    with closing(open_store(url, clock=CLOCK)) as store:
        found = store.read(lambda tx: tx.select(OpenPauses()))
    return [{"reason": one.reason, "origin": one.origin} for one in found]


@pytest.mark.parametrize("direction", ["to postgres", "to sqlite"])
def test_a_move_that_is_killed_after_any_batch_continues_and_the_unfinished_store_starts_nothing(
    sample: str, url: str, tmp_path: Path, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_leases(sample)
    place, to = sample, url
    if direction == "to sqlite":
        copier().move(sample, url, wait=ZERO)
        place, to = url, str(tmp_path / "back.db")
    monkeypatch.setattr(table_copy, "BATCH_ROWS", 7)
    kills = 0
    while True:
        batches = 0

        def killed_later(_share: float, text: str) -> None:
            nonlocal batches
            batches += "rows" in text
            if batches > 4:
                raise Killed

        try:
            copier(killed_later).move(place, to, wait=ZERO)
            break
        except Killed:
            kills += 1
        assert [one["origin"] for one in paused(to)] == ["move"]
        with pytest.raises(StoreReadOnly):
            ask_at(place, "resume")
        with pytest.raises(Conflict, match="already being moved"):
            copier().move(place, str(tmp_path / "elsewhere.db"), wait=ZERO)
    assert kills > 3
    monkeypatch.undo()
    assert rows_of(to, without=("pauses",)) == rows_of(place, without=("pauses",))
    assert ask_at(to, "verify")["holds"]


def test_a_store_moved_there_and_back_under_an_engine_decides_every_occurrence_once(
    url: str, tmp_path: Path
) -> None:
    """The engine on the old store goes on during the move; `dev.py faults` does it with real processes."""
    clock, ids = ManualClock(NOON), dict[str, str]()
    places = [str(tmp_path / "live.db"), url, str(tmp_path / "back.db")]
    ran: list[str] = []
    for number, place in enumerate(places):
        with closing(open_store(place, clock=clock)) as store:
            bench = Bench(store=store, clock=clock, name=f"engine-{number}")
            if number == 0:
                names = [f"s{index}" for index in range(SCHEDULES)]
                ids = {
                    name: bench.schedule(name, every="1s", catch_up="all", overlap="allow").id
                    for name in names
                }
            bench.advance(seconds=3)
            batches = 0

            def tick_and_die(_share: float, _text: str, bench: Bench = bench) -> None:
                nonlocal batches
                batches += 1
                clock.advance(milliseconds=70)
                with suppress(StoreReadOnly):
                    bench.tick()
                if batches in (3, 9):
                    raise Killed

            for _ in range(3 if number < 2 else 0):
                with suppress(Killed):
                    copier(tick_and_die, clock=clock).move(place, places[number + 1], wait=MINUTE)
            ran += [one.run_id for one in bench.facts if isinstance(one, RunSucceeded)]
    assert len(set(ran)) == len(ran)
    with closing(open_store(places[-1], clock=clock)) as store:
        runs = store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows
    for schedule_id in ids.values():
        planned = {run.planned_at for run in runs if run.schedule_id == schedule_id}
        assert planned == {NOON + second * SECOND for second in range(1, len(planned) + 1)}
        assert max(planned) > clock.now() - 3 * SECOND
    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    assert len(runs) == len(ran)
    assert all(ask_at(place, "verify")["holds"] for place in places)


def test_a_move_waits_for_runs_under_way_and_gives_up_without_a_trace(tmp_path: Path, url: str) -> None:
    live = str(tmp_path / "live.db")
    with closing(open_store(live, clock=CLOCK)) as store:
        ask(store, "queue add", queue="mail", payload={"to": "ada"})
        (lease,) = ask(store, "queue lease", queue="mail", holder="me")["leases"]
        with pytest.raises(Conflict, match="1 runs are still under way"):
            copier().move(live, url, wait=ZERO)
        assert paused(live) == []

        def completed(_share: float, text: str) -> None:
            if text.startswith("waiting for 1 runs"):
                ask(store, "queue complete", lease=lease["lease"])

        copier(completed).move(live, url, wait=MINUTE)
    assert [run["state"] for run in ask_at(url, "run list")["runs"]] == ["succeeded"]


def test_a_move_that_is_not_complete_can_be_cancelled_and_a_complete_one_cannot(
    sample: str, url: str, tmp_path: Path
) -> None:
    end_leases(sample)

    def killed(share: float, _text: str) -> None:
        if share > 0.5:
            raise Killed

    with pytest.raises(Killed):
        copier(killed).move(sample, url, wait=ZERO)
    copier().cancel_move(sample, url)
    assert paused(sample) == []
    ask_at(sample, "schedule create", name="mine", every="1h", note="x")
    with pytest.raises(Conflict, match="is not empty"):
        copier().move(sample, url, wait=ZERO)
    with pytest.raises(NotFound):
        copier().cancel_move(sample, url)
    other = str(tmp_path / "other.db")
    copier().move(sample, other, wait=ZERO)
    with pytest.raises(Conflict, match="is complete"):
        copier().cancel_move(sample, other)


def test_the_secret_key_moves_with_the_store(
    sample: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_leases(sample)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key = Path(f"{sample}.key")
    key.touch(0o600)
    key.write_text("k" * 43, encoding="utf-8")
    copier().move(sample, url, wait=SECOND)
    (copied,) = (tmp_path / "state" / "timewright").iterdir()
    assert copied.read_text(encoding="utf-8").strip() == "k" * 43
    assert copied.stat().st_mode & 0o777 == 0o600
