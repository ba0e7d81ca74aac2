"""The log of a file is filled ahead and copied beside its writer, and the store shows nothing of that."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import apsw
import pytest

from tests.conformance.builders import NOON, add, make_run
from timewright.errors import StoreUnavailable
from timewright.ports import RunFilter, Store, Transaction
from timewright.stores import file_safety, sqlite_log
from timewright.stores.file_safety import LOG_PAGES
from timewright.stores.sqlite import SqliteStore
from timewright.stores.sqlite_log import FILLED_BYTES, SEVERAL, LogKeeper
from timewright.testing.clock import ManualClock

FRAME = 4096 + 24


def opened(folder: Path, name: str = "store.db") -> SqliteStore:
    return SqliteStore(folder / name, clock=ManualClock(NOON))


def log_of(folder: Path) -> Path:
    return folder / "store.db-wal"


def count(store: Store) -> int:
    return len(store.read(lambda tx: tx.find_runs(RunFilter(limit=1000))).rows)


def pages_written(store: SqliteStore) -> int:
    return store._writer.connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


def copied_as_it_stands(folder: Path) -> SqliteStore:
    """What another process would find if this one were gone in this moment."""
    beside = folder / "beside"
    beside.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(folder / name, beside / name)
    return opened(beside)


def test_a_log_that_is_filled_ahead_holds_nothing_new(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    add(store, make_run(), make_run())
    seen = other.version()
    store._log.tend()
    assert log_of(tmp_path).stat().st_size >= FILLED_BYTES
    assert other.version() == seen
    assert count(store) == count(other) == 2
    left = copied_as_it_stands(tmp_path)
    assert count(left) == 2
    (whole,) = left._writer.connection.execute("PRAGMA integrity_check").fetchall()
    assert whole == ("ok",)
    for one in (left, other, store):
        one.close()


def test_commits_after_it_do_not_make_the_log_longer(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, make_run())
    store._log.tend()
    filled = log_of(tmp_path).stat().st_size
    for _ in range(3):
        for _ in range(8):
            add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(190)))
        store._log.tend()
    assert pages_written(store) > 1.5 * filled / FRAME
    assert log_of(tmp_path).stat().st_size == filled
    store.close()


def test_one_who_stays_is_looked_after_on_a_thread_and_one_who_goes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tended = threading.Event()
    tend = LogKeeper.tend

    def told(keeper: LogKeeper) -> None:
        tend(keeper)
        tended.set()

    monkeypatch.setattr(LogKeeper, "tend", told)
    store = opened(tmp_path)
    for _ in range(SEVERAL - 1):
        add(store, make_run())
    assert store._log._thread is None
    assert log_of(tmp_path).stat().st_size < FILLED_BYTES
    add(store, make_run())
    assert tended.wait(30)
    assert log_of(tmp_path).stat().st_size >= FILLED_BYTES
    thread = store._log._thread
    assert thread is not None
    store.close()
    assert not thread.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_the_log_is_bounded_where_nobody_finds_a_quiet_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "SEVERAL", 1_000_000)
    store = opened(tmp_path)
    largest = 0
    for _ in range(48):
        add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(250)))
        largest = max(largest, log_of(tmp_path).stat().st_size // FRAME)
    assert pages_written(store) > 1.5 * LOG_PAGES
    assert LOG_PAGES <= largest < 1.25 * LOG_PAGES
    store.close()


def test_a_disk_with_little_room_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_log, "ROOM_BYTES", 2**62)
    store = opened(tmp_path)
    add(store, make_run())
    store._log.tend()
    assert log_of(tmp_path).stat().st_size < FILLED_BYTES
    store.close()


def test_what_is_made_ready_is_nobodys_before_the_commit(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    add(store, make_run())

    def prepared(tx: Transaction) -> None:
        tx.add_runs([make_run()])
        tx.make_ready()
        assert count(other) == 1
        left = copied_as_it_stands(tmp_path)
        assert count(left) == 1
        left.close()

    store.write(prepared)
    assert count(other) == 2
    for one in (other, store):
        one.close()


def test_what_was_made_ready_is_undone_with_its_transaction(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, make_run())

    def failing(tx: Transaction) -> None:
        tx.add_runs([make_run(payload={"text": "x" * 100_000})])
        tx.make_ready()
        raise StoreUnavailable("no", fix="again")

    with pytest.raises(StoreUnavailable):
        store.write(failing)
    add(store, make_run())
    assert count(store) == 2
    store.close()
    again = opened(tmp_path)
    assert count(again) == 2
    again.close()


def test_a_store_in_memory_is_always_ready() -> None:
    store = SqliteStore(clock=ManualClock(NOON))

    def prepared(tx: Transaction) -> None:
        tx.add_runs([make_run()])
        tx.make_ready()

    store.write(prepared)
    assert count(store) == 1
    store.close()


def test_a_log_that_a_reader_made_long_is_cut_when_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_safety, "LOG_BYTES", 1024 * 1024)
    store = opened(tmp_path)
    add(store, make_run())
    reader = apsw.Connection(str(tmp_path / "store.db"))
    reader.execute("BEGIN; SELECT count(*) FROM runs").fetchall()
    add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(1_000)))
    store._log.tend()
    assert log_of(tmp_path).stat().st_size > FILLED_BYTES
    reader.close()
    store._log.tend()
    add(store, make_run())
    assert log_of(tmp_path).stat().st_size <= 1024 * 1024
    store.close()
