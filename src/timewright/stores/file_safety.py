"""When a SQLite file is safe to use: library, place, owner, pragmas; and its errors in our words."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from timewright.errors import (
    Conflict,
    ForeignStore,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TimewrightError,
    UnsafeStore,
)

OLDEST_LIBRARY = (3, 51, 3)
APPLICATION_ID = 0x54575254
# So many pages may wait in the log before whoever commits copies them: few flushes for the same promise.
LOG_PAGES = 8000
# One that a reader made longer than this is cut when it begins anew; shorter, its room is kept.
LOG_BYTES = 64 * 1024 * 1024
SHORTEST_DATABASE = 512
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.davfs2",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)


def library_version() -> tuple[int, ...]:
    """The version of the SQLite library we run on."""
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def check_library(version: tuple[int, ...] | None = None) -> None:
    """Refuse a SQLite with the WAL-reset race, which can damage a file that two connections write."""
    found = version or library_version()
    if found < OLDEST_LIBRARY:
        raise UnsafeStore(
            f"SQLite {'.'.join(map(str, found))} can damage a file that several connections write",
            field="sqlite",
            value=".".join(map(str, found)),
            rule=f"SQLite {'.'.join(map(str, OLDEST_LIBRARY))} or later",
            fix="pip install --upgrade apsw",
        )


def check_place(path: Path, mounts: str | None = None) -> None:
    """Refuse a folder that does not exist, or one on a network share, where locks cannot be trusted."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ForeignStore(
            f"there is no folder {folder}", field="store", value=str(path), fix=f"mkdir -p {folder}"
        )
    _check_length(path)
    kind = file_system(folder, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnsafeStore(
            f"{path} is on a network share ({kind})",
            field="store",
            value=str(path),
            rule="SQLite needs a local disk; locks over a network cannot be trusted",
            fix="a local path, or PostgreSQL for several machines",
        )


def _check_length(path: Path) -> None:
    """Refuse a file too short for a database: SQLite would take it for an empty one and write over it.

    Looked at from outside: opening and closing it here would give up the locks of whoever has it open.
    """
    if path.is_file() and 0 < path.stat().st_size < SHORTEST_DATABASE:
        raise ForeignStore(
            f"{path} is too short to be a database",
            field="store",
            value=str(path),
            rule="a store of timewright, or a file that does not exist yet",
            fix="another path",
        )


def identity(path: str) -> tuple[int | None, ...]:
    """Which files a store is made of: the database and its log, as the file system numbers them."""
    return tuple(_number(name) for name in (path, f"{path}-wal"))


def check_identity(path: str, known: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Refuse to write when a file was deleted or replaced under us: what we wrote would be lost."""
    found = identity(path)
    if found == known:
        return known
    if known[1] is None and found[0] == known[0]:
        return found  # the log was made by the first write
    raise UnsafeStore(
        f"{path} or its log was deleted or replaced while it was open",
        field="store",
        value=path,
        rule="nobody moves, copies over or deletes the files of a store that is in use",
        fix="stop every process that uses it, put the files back or restore a backup, and start again",
    )


def _number(name: str) -> int | None:
    try:
        return os.stat(name).st_ino  # noqa: PTH116 - twice for every commit, and a Path costs more than the call
    except OSError:
        return None


def file_system(folder: Path, mounts: str | None = None) -> str:
    """The kind of file system a folder is on, where the system tells; empty otherwise."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
        except OSError:
            return ""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            inside = str(folder) == point or str(folder).startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, fields[2]
    return kind


def check_ours(connection: apsw.Connection, path: str) -> None:
    """Refuse a database that another application made."""
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    ((owner,),) = connection.execute("PRAGMA application_id").fetchall()
    if tables and owner != APPLICATION_ID:
        raise ForeignStore(
            f"{path} is another application's database",
            field="store",
            value=path,
            rule="a store of timewright, or a file that does not exist yet",
            fix="another path",
        )


def set_durable(connection: apsw.Connection, path: str) -> None:
    """WAL with synchronous FULL, read back: with less, acknowledged commits are lost in a power cut."""
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    ((level,),) = connection.execute("PRAGMA synchronous").fetchall()
    if str(mode).lower() != "wal" or level != 2:
        raise UnsafeStore(
            f"{path} answers journal_mode {mode} and synchronous {level}",
            field="store",
            value=path,
            rule="WAL and FULL (2)",
            fix="a local disk with ordinary locking",
        )


class translated:  # noqa: N801  spoken as a verb, and cheaper than a generator at every transaction
    """SQLite's errors in our words."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, apsw.Error):
            raise _in_our_words(error, self._place) from error


def _in_our_words(error: apsw.Error, place: str) -> TimewrightError:
    if isinstance(error, apsw.ConstraintError):
        return Conflict(f"{place}: {error}", rule="names and occurrences are unique")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"{place} is locked by another process: {error}",
            rule="a write lock is held briefly",
            fix="try again",
        )
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{place}: no room left: {error}", fix="free space, or prune history")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreReadOnly(f"{place} does not take writes: {error}", fix="check the file's permissions")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return ForeignStore(
            f"{place} is damaged or not a database: {error}",
            field="store",
            value=place,
            rule="a file is never repaired or deleted by itself",
            fix="keep a copy, then restore a backup or move the file away",
        )
    if isinstance(error, apsw.CantOpenError):
        return _not_opened(error, place)
    return StoreError(f"{place}: {type(error).__name__}: {error}")


def _not_opened(error: apsw.Error, place: str) -> TimewrightError:
    folder = Path(place).parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        # Even to read a file, its log is opened beside it; where nothing can be made, that is why.
        return StoreReadOnly(
            f"{place} does not take writes: its folder or disk is read-only",
            field="store",
            value=place,
            rule="a file in a folder that we may write to",
            fix="check the permissions, and how the disk is mounted",
        )
    return StoreUnavailable(f"{place} cannot be opened: {error}", fix="check the path and its permissions")
