"""Checks that a SQLite file is safe to use, also after a fork, and translates SQLite's errors."""

from __future__ import annotations

import os
import shlex
import threading
from contextlib import suppress
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

MIN_SQLITE_VERSION = (3, 51, 3)
APPLICATION_ID = 0x54575254
# A commit checkpoints only above this many WAL pages; normally the maintainer does it.
WAL_AUTOCHECKPOINT_PAGES = 8000
# A WAL that grew beyond this, because of a long reader, is truncated at its next reset.
MAX_WAL_BYTES = 64 * 1024 * 1024
MIN_DATABASE_BYTES = 512
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
# What the error of a write to a moved store begins with.
FROZEN = "this store was moved"

# A forked child inherits the list with its parent's pid. Every access is a single atomic operation: a lock
# might be inherited while held.
_OPEN: list[tuple[str, int]] = []


def library_version() -> tuple[int, ...]:
    """Return the version of the SQLite library in use."""
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def check_library(version: tuple[int, ...] | None = None) -> None:
    """Refuse a SQLite library with the WAL-reset race, which can corrupt a file with two writers."""
    found = version or library_version()
    if found < MIN_SQLITE_VERSION:
        raise UnsafeStore(
            f"SQLite {'.'.join(map(str, found))} can corrupt a file that several connections write",
            field="sqlite",
            value=".".join(map(str, found)),
            rule=f"SQLite {'.'.join(map(str, MIN_SQLITE_VERSION))} or later",
            fix="pip install --upgrade apsw",
        )


def check_local_disk(path: Path, mounts: str | None = None) -> None:
    """Refuse a missing folder or one on a network share, where file locks are unreliable."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ForeignStore(
            f"folder {folder} does not exist",
            field="store",
            value=str(path),
            fix=f"mkdir -p {shlex.quote(str(folder))}",
        )
    _check_length(path)
    kind = file_system(folder, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnsafeStore(
            f"{path} is on a network share ({kind})",
            field="store",
            value=str(path),
            rule="SQLite needs a local disk, because file locks on network shares are unreliable",
            fix="use a local path, or PostgreSQL for several machines",
        )


def _check_length(path: Path) -> None:
    """Refuse a file too short for a database: SQLite would treat it as empty and overwrite it.

    Uses stat only: opening and closing the file would drop the POSIX locks this process holds on it.
    """
    if path.is_file() and path.stat().st_size < MIN_DATABASE_BYTES:
        empty = path.stat().st_size == 0
        raise ForeignStore(
            f"{path} {'is empty' if empty else 'is too short to be a database'}",
            field="store",
            value=str(path),
            rule="a Timewright store, or a path where no file exists yet",
            fix="restore a backup; if the file never held a store, delete it"
            if empty
            else "use another path",
        )


def create_file(path: Path) -> None:
    """Create the file of a new store, readable by its owner only; does nothing if the file exists.

    The file appears under its name with its first page, because an empty file is taken for a truncated store.
    """
    if path.exists():
        return
    part = path.with_name(f"{path.name}.new-{os.getpid()}-{threading.get_ident()}")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        connection = apsw.Connection(str(part))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.close()
        with suppress(FileExistsError):  # another process was first
            link_or_rename(part, path)
    finally:
        part.unlink(missing_ok=True)


def link_or_rename(part: Path, path: Path) -> None:
    """Give a file its final name; raises FileExistsError if the name is taken."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(str(path)) from None
        part.rename(path)


def file_inodes(path: str) -> tuple[int | None, ...]:
    """Return the inode numbers of the database file and its WAL."""
    return tuple(_inode(name) for name in (path, f"{path}-wal"))


def check_not_replaced(path: str, known: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Refuse to write if a file was deleted or replaced while open: the writes would be lost."""
    found = file_inodes(path)
    if found == known:
        return known
    if known[1] is None and found[0] == known[0]:
        return found  # the first write created the WAL
    raise UnsafeStore(
        f"{path} or its WAL was deleted or replaced while the store was open",
        field="store",
        value=path,
        rule="the files of a store in use must not be moved, overwritten or deleted",
        fix="stop every process that uses it, put the files back or restore a backup, and start again",
    )


def _inode(name: str) -> int | None:
    try:
        return os.stat(name).st_ino  # noqa: PTH116 - runs twice per commit; a Path costs more than the call
    except OSError:
        return None


def file_system(folder: Path, mounts: str | None = None) -> str:
    """Return the file system type of a folder from /proc/self/mounts; empty if unknown."""
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


def check_owner(connection: apsw.Connection, path: str) -> None:
    """Refuse a database of another application."""
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    ((owner,),) = connection.execute("PRAGMA application_id").fetchall()
    if tables and owner != APPLICATION_ID:
        raise ForeignStore(
            f"{path} is a database of another application",
            field="store",
            value=path,
            rule="a Timewright store, or a path where no file exists yet",
            fix="use another path",
        )


def set_durable(connection: apsw.Connection, path: str) -> None:
    """Set WAL and synchronous = FULL and read both back; with less, a power cut loses commits."""
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
    ((level,),) = connection.execute("PRAGMA synchronous").fetchall()
    if str(mode).lower() != "wal" or level != 2:
        raise UnsafeStore(
            f"{path} answers journal_mode {mode} and synchronous {level}",
            field="store",
            value=path,
            rule="journal_mode WAL and synchronous FULL (2)",
            fix="use a local disk with ordinary file locks",
        )


class translate_errors:  # noqa: N801 - used like a function; cheaper than a generator in every transaction
    """Translates SQLite's errors into ours."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, apsw.Error):
            raise _translated(error, self._path) from error


def _translated(error: apsw.Error, path: str) -> TimewrightError:
    if FROZEN in str(error):
        return StoreReadOnly(f"{path}: {error}", rule="a moved store is only read", fix="use the new store")
    if isinstance(error, apsw.ConstraintError):
        return Conflict(f"{path}: {error}", rule="names and occurrences are unique")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"{path} is locked by another process: {error}",
            rule="a write lock is held briefly",
            fix="try again",
        )
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{path}: disk full: {error}", fix="free space, or prune history")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreReadOnly(f"{path} cannot be written: {error}", fix="check the file's permissions")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return ForeignStore(
            f"{path} is damaged or not a database: {error}",
            field="store",
            value=path,
            rule="a damaged file is never repaired or deleted automatically",
            fix="keep a copy, then restore a backup or move the file away",
        )
    if isinstance(error, apsw.CantOpenError):
        return _cannot_open(error, path)
    return StoreError(f"{path}: {type(error).__name__}: {error}")


def _cannot_open(error: apsw.Error, path: str) -> TimewrightError:
    folder = Path(path).parent
    if Path(path).is_dir():
        return StoreUnavailable(
            f"{path} is a folder",
            field="store",
            value=path,
            rule="the store is a file, or the URL of a PostgreSQL database",
            fix=str(Path(path) / "timewright.db"),
        )
    if folder.is_dir() and not os.access(folder, os.W_OK):
        # Reading also creates the WAL next to the file, which fails in a read-only folder.
        return StoreReadOnly(
            f"{path} cannot be written: its folder or disk is read-only",
            field="store",
            value=path,
            rule="the folder of the file must be writable",
            fix="check the permissions, and how the disk is mounted",
        )
    return StoreUnavailable(f"{path} cannot be opened: {error}", fix="check the path and its permissions")


def check_fork(path: str) -> None:
    """Refuse a file that was open in the parent process when this one was forked.

    A child inherits SQLite's record of its locks, but not the locks: the parent could reset the WAL while the
    child still writes to it.
    """
    real, mine = _entry(path)
    if any(name == real and pid != mine for name, pid in list(_OPEN)):
        raise UnsafeStore(
            f"{path} was open when this process was forked",
            field="store",
            value=path,
            rule="open a SQLite file after the fork, or close it before",
            fix="create the Scheduler in the worker, after the fork; or use PostgreSQL",
        )


def register_open(path: str) -> None:
    """Record that this process opened a file."""
    _OPEN.append(_entry(path))


def register_closed(path: str) -> None:
    """Record that this process closed a file; entries of a parent process stay."""
    if (entry := _entry(path)) in _OPEN:
        _OPEN.remove(entry)


def _entry(path: str) -> tuple[str, int]:
    return str(Path(path).resolve()), os.getpid()
