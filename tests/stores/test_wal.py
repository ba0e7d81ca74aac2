"""WAL maintenance: preallocation and checkpoints do not change what the store returns."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conformance.support.builders import NOON, add, make_run
from timewright.errors import StoreUnavailable
from timewright.ports import RunFilter, Store
from timewright.stores.sqlite import file_safety, wal
from timewright.stores.sqlite.file_safety import WAL_AUTOCHECKPOINT_PAGES
from timewright.stores.sqlite.store import SqliteStore
from timewright.stores.sqlite.wal import MIN_COMMITS, PREALLOCATED_BYTES, WalMaintainer
from timewright.testing.clock import ManualClock

FRAME = 4096 + 24


def opened(folder: Path, name: str = "store.db") -> SqliteStore:
    return SqliteStore(folder / name, clock=ManualClock(NOON))


def log_of(folder: Path) -> Path:
    return folder / "store.db-wal"


def count(store: Store) -> int:
    return len(store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows)


def pages_written(store: SqliteStore) -> int:
    return store._writer.connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


def copied_as_it_stands(folder: Path) -> SqliteStore:
    """Copy the files as another process would find them after a crash."""
    beside = folder / "beside"
    beside.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(folder / name, beside / name)
    return opened(beside)


def test_a_preallocated_wal_holds_no_new_frames(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    add(store, make_run(), make_run())
    seen = other.data_version()
    store._wal.maintain()
    assert log_of(tmp_path).stat().st_size >= PREALLOCATED_BYTES
    assert other.data_version() == seen
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
    store._wal.maintain()
    filled = log_of(tmp_path).stat().st_size
    for _ in range(3):
        for _ in range(8):
            add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(190)))
        store._wal.maintain()
    assert pages_written(store) > 1.5 * filled / FRAME
    assert log_of(tmp_path).stat().st_size == filled
    store.close()


def test_the_wal_thread_starts_only_after_many_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tended = threading.Event()
    tend = WalMaintainer.maintain

    def told(keeper: WalMaintainer) -> None:
        tend(keeper)
        tended.set()

    monkeypatch.setattr(WalMaintainer, "maintain", told)
    store = opened(tmp_path)
    for _ in range(MIN_COMMITS - 1):
        add(store, make_run())
    assert store._wal._thread is None
    assert log_of(tmp_path).stat().st_size < PREALLOCATED_BYTES
    add(store, make_run())
    assert tended.wait(30)
    assert log_of(tmp_path).stat().st_size >= PREALLOCATED_BYTES
    thread = store._wal._thread
    assert thread is not None
    store.close()
    assert not thread.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_the_wal_is_bounded_under_constant_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "MIN_COMMITS", 1_000_000)
    store = opened(tmp_path)
    largest = 0
    for _ in range(48):
        add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(250)))
        largest = max(largest, log_of(tmp_path).stat().st_size // FRAME)
    assert pages_written(store) > 1.5 * WAL_AUTOCHECKPOINT_PAGES
    assert WAL_AUTOCHECKPOINT_PAGES <= largest < 1.25 * WAL_AUTOCHECKPOINT_PAGES
    store.close()


def test_the_wal_is_not_preallocated_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "MIN_FREE_BYTES", 2**62)
    store = opened(tmp_path)
    add(store, make_run())
    store._wal.maintain()
    assert log_of(tmp_path).stat().st_size < PREALLOCATED_BYTES
    store.close()


def test_prepared_writes_are_invisible_before_the_commit(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    add(store, make_run())

    def wait(*_: Any, **__: Any) -> None:
        assert count(other) == 1
        left = copied_as_it_stands(tmp_path)
        assert count(left) == 1
        left.close()

    store._commit_timer.wait = wait  # type: ignore[method-assign]
    store.write(lambda tx: tx.add_runs([make_run()]), commit_at=NOON)
    assert count(other) == 2
    for one in (other, store):
        one.close()


def test_prepared_writes_are_rolled_back_with_their_transaction(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, make_run())

    def wait(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("no", fix="again")

    store._commit_timer.wait = wait  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        store.write(lambda tx: tx.add_runs([make_run(payload={"text": "x" * 100_000})]), commit_at=NOON)
    add(store, make_run())
    assert count(store) == 2
    store.close()
    again = opened(tmp_path)
    assert count(again) == 2
    again.close()


def test_a_store_in_memory_is_always_ready() -> None:
    store = SqliteStore(clock=ManualClock(NOON))
    store.write(lambda tx: tx.add_runs([make_run()]), commit_at=NOON)
    assert count(store) == 1
    store.close()


def test_a_log_that_a_reader_made_long_is_cut_when_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_safety, "MAX_WAL_BYTES", 1024 * 1024)
    store = opened(tmp_path)
    add(store, make_run())
    reader = apsw.Connection(str(tmp_path / "store.db"))
    reader.execute("BEGIN; SELECT count(*) FROM runs").fetchall()
    add(store, *(make_run(payload={"text": "x" * 3_500}) for _ in range(1_000)))
    store._wal.maintain()
    assert log_of(tmp_path).stat().st_size > PREALLOCATED_BYTES
    reader.close()
    store._wal.maintain()
    add(store, make_run())
    assert log_of(tmp_path).stat().st_size <= 1024 * 1024
    store.close()
