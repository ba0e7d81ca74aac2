"""SQLite files: foreign, unsafe and damaged files are refused; a full disk is survived."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from tests.conformance.support.builders import NOON, add, make_run
from tests.conformance.support.concurrency import held_open
from tests.conformance.support.databases import Database
from timewright.core.moments import DAY, HOUR, SECOND
from timewright.errors import (
    ForeignStore,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)
from timewright.ports import RunFilter, Store, Transaction
from timewright.stores.sqlite import store as sqlite
from timewright.stores.sqlite.file_safety import (
    check_library,
    check_local_disk,
    create_file,
    file_system,
)
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Run as another user, because root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def count(store: Store) -> int:
    return len(store.read(lambda tx: tx.find(RunFilter(limit=1000))).rows)


def filled(path: Path) -> Path:
    """Return a closed store file with a few hundred runs."""
    store = SqliteStore(path)
    add(store, *(make_run(payload={"text": "x" * 500}) for _ in range(300)))
    store.close()
    assert not path.with_name(path.name + "-wal").exists()
    return path


class SmallDisk:
    """A small disk: a tiny file system if we may mount one, otherwise a page limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_mounted = (
            os.geteuid() == 0 and os.system(f"mount -t tmpfs -o size=1m tmpfs '{folder}' 2>/dev/null") == 0
        )
        self.store = SqliteStore(folder / "store.db", clock=ManualClock(NOON))

    def fill(self) -> int:
        """Write until the disk is full; returns the number of commits."""
        if not self.is_mounted:
            self.store._writer.connection.execute("PRAGMA max_page_count = 120")
        for many in range(2000):
            try:
                add(self.store, make_run(payload={"text": "x" * 2000}))
            except StoreFull:
                return many
        raise AssertionError("a disk without end")

    def free_space(self) -> None:
        if self.is_mounted:
            os.system(f"mount -o remount,size=16m '{self.folder}'")
        else:
            self.store._writer.connection.execute("PRAGMA max_page_count = 100000")

    def close(self) -> None:
        self.store.close()
        if self.is_mounted:
            os.system(f"umount '{self.folder}'")


def test_a_file_of_another_application_is_refused_and_not_changed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE migrations (id INTEGER); INSERT INTO migrations VALUES (7)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ForeignStore, match="another application"):
        SqliteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_random_bytes_are_refused_and_not_changed(tmp_path: Path, kind: str, size: int) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(random.Random(size).randbytes(size))
    before = path.read_bytes()
    with pytest.raises(ForeignStore):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_store_truncated_to_nothing_is_refused(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "store.db")
    os.truncate(path, 0)
    with pytest.raises(ForeignStore, match="is empty") as caught:
        SqliteStore(path)
    assert caught.value.fix == "restore a backup; if the file never held a store, delete it"
    assert path.stat().st_size == 0


def test_a_new_file_appears_with_its_first_page(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    create_file(path)
    assert path.stat().st_size >= 512
    create_file(path)
    assert [one.name for one in tmp_path.iterdir()] == ["store.db"]
    SqliteStore(path).close()


def test_a_disk_filled_by_the_log_is_freed_and_the_write_repeated(tmp_path: Path, kind: str) -> None:
    store = SqliteStore(tmp_path / "store.db", clock=ManualClock(NOON))
    for _ in range(20):
        add(store, make_run(payload={"text": "x" * 20_000}))
    log = tmp_path / "store.db-wal"
    before, calls = log.stat().st_size, []

    def work(tx: Transaction) -> None:
        calls.append(tx)
        if len(calls) == 1:
            raise apsw.FullError
        tx.add_runs([make_run()])

    store.write(work)
    assert (len(calls), count(store)) == (2, 21)
    assert log.stat().st_size < before / 4
    store.close()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_a_truncated_file_is_refused_and_not_changed(tmp_path: Path, kind: str, share: float) -> None:
    path = filled(tmp_path / "store.db")
    os.truncate(path, int(path.stat().st_size * share))
    before = path.read_bytes()
    with pytest.raises(ForeignStore) as caught:
        SqliteStore(path)
    assert "backup" in str(caught.value.fix)
    assert path.read_bytes() == before


def test_a_damaged_page_is_reported(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "store.db")
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(content)
    with pytest.raises(ForeignStore):
        SqliteStore(path).read(lambda tx: tx.find(RunFilter(limit=1000)))


def test_a_truncated_wal_loses_only_its_end(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    runs = [make_run() for _ in range(20)]
    for run in runs:
        add(store, run)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    log = path.with_name("store.db-wal").read_bytes()
    copy.with_name("copy.db-wal").write_bytes(log[: int(len(log) * 0.9)])
    store.close()
    again = SqliteStore(copy)
    found = again.read(lambda tx: tx.get_runs([run.id for run in runs]))
    assert 0 < len(found) < 20
    assert list(found) == [run.id for run in runs[: len(found)]]
    again.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreError, match="does not exist") as caught:
        SqliteStore(tmp_path / "missing" / "store.db")
    assert "mkdir" in str(caught.value.fix)


def test_a_folder_is_not_a_file(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreError):
        SqliteStore(tmp_path)


def test_an_old_library_is_refused(kind: str) -> None:
    check_library((3, 51, 3))
    with pytest.raises(UnsafeStore, match=r"3\.51\.2"):
        check_library((3, 51, 2))


def test_a_network_share_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n"
    assert file_system(tmp_path, mounts) == "nfs4"
    with pytest.raises(UnsafeStore, match="network"):
        check_local_disk(tmp_path / "store.db", mounts)
    check_local_disk(tmp_path / "store.db", "/dev/vda / ext4 rw 0 0\n")


def test_a_file_without_its_log_is_opened_with_it_and_with_full_durability(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "store.db")
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA journal_mode = DELETE").fetchall() == [("delete",)]
    connection.close()
    store = SqliteStore(path)
    writer = store._writer.connection
    assert writer.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    assert writer.execute("PRAGMA synchronous").fetchall() == [(2,)]
    store.close()


def test_a_new_file_is_readable_only_by_its_owner(database: Database) -> None:
    database.open()
    assert Path(database.place).stat().st_mode & 0o077 == 0


def test_a_file_that_cannot_be_written_is_refused_at_opening(public_folder: Path, kind: str) -> None:
    path = filled(public_folder / "store.db")
    path.chmod(0o444)
    public_folder.chmod(0o555)
    with as_somebody_else(), pytest.raises((StoreReadOnly, StoreUnavailable)) as caught:
        SqliteStore(path)
    assert "permission" in str(caught.value.fix)


def test_on_a_full_disk_reads_continue_and_writes_resume_later(tmp_path: Path, kind: str) -> None:
    disk = SmallDisk(tmp_path)
    try:
        written = disk.fill()
        assert written > 10
        for _ in range(3):
            with pytest.raises(StoreFull) as caught:
                add(disk.store, make_run(payload={"text": "x" * 200_000}))
            assert "free space" in str(caught.value.fix)
        assert count(disk.store) == written
        disk.free_space()
        add(disk.store, make_run(payload={"text": "x" * 200_000}))
        assert count(disk.store) == written + 1
        assert disk.store._writer.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        disk.close()


def test_a_file_locked_for_too_long_is_unavailable_and_works_again_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_BUSY_WAIT_S", 0.3)
    one, two = database.open(), database.open()
    with held_open(one, lambda tx: tx.add_runs([make_run()])) as held:
        with pytest.raises(StoreUnavailable, match="locked"):
            add(two, make_run())
        held.release()
    add(two, make_run())
    assert count(two) == 2


def test_a_log_that_was_deleted_under_a_live_writer_is_never_written_into_the_void(
    database: Database,
) -> None:
    store = database.open()
    add(store, make_run())
    Path(database.place + "-wal").unlink()
    with pytest.raises(StoreError):
        add(store, make_run())


def test_a_file_that_was_replaced_under_a_live_writer_is_not_written_any_more(
    database: Database, tmp_path: Path
) -> None:
    store = database.open()
    add(store, make_run())
    other = filled(tmp_path / "older.db")
    other.rename(database.place)
    with pytest.raises(StoreError):
        add(store, make_run())


def test_the_clock_of_a_file_never_goes_back(database: Database, clock: ManualClock) -> None:
    store = database.open()
    add(store, make_run())
    assert store.now() == NOON
    clock.step(-HOUR)
    assert store.now() == NOON
    clock.advance(2 * HOUR)
    assert store.now() == NOON + HOUR


def test_a_file_stores_the_highest_instant_of_its_clock(database: Database, clock: ManualClock) -> None:
    store = database.open()
    add(store, make_run())
    clock.advance(SECOND / 2)
    add(store, make_run())
    store.close()
    clock.step(NOON - HOUR)
    assert database.open().now() == NOON + SECOND / 2


def test_every_process_reads_the_highest_instant_of_the_file(database: Database, clock: ManualClock) -> None:
    ours, theirs = database.open(), database.open()
    assert ours.now() == NOON
    clock.step(NOON + HOUR)
    add(theirs, make_run())
    clock.step(NOON)
    clock.advance(SECOND)
    assert ours.now() == NOON + HOUR


def test_no_process_lowers_the_highest_instant_of_the_file(database: Database, clock: ManualClock) -> None:
    ours, theirs = database.open(), database.open()
    ours.now()
    clock.step(NOON + HOUR)
    add(theirs, make_run())
    clock.step(NOON + SECOND)
    add(ours, make_run())
    assert database.open().now() == NOON + HOUR


def test_one_wrong_clock_reading_advances_the_file_by_at_most_a_day(
    database: Database, clock: ManualClock
) -> None:
    store = database.open()
    add(store, make_run())
    clock.step(datetime(2999, 1, 1, tzinfo=UTC))
    for _ in range(50):
        store.now()
        add(store, make_run())
    clock.step(NOON + HOUR)
    assert store.now() <= NOON + DAY
    again = database.open()
    assert again.now() <= NOON + DAY


def test_no_statement_asks_for_every_column_there_is(kind: str) -> None:
    from importlib import resources

    statements = resources.files("timewright.stores.sql").joinpath("statements.sql").read_text("utf-8")
    assert re.findall(r"SELECT\s+(?:\w+\.)?\*", statements) == []
