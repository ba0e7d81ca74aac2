"""What a path or server holds, and backups of a file. Neither changes the store."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from timewright.errors import Conflict, ForeignStore, NotFound, StoreUnavailable
from timewright.stores.migrate import Migration, load_migrations, pending_migrations
from timewright.stores.sqlite.file_safety import (
    check_local_disk,
    check_owner,
    library_version,
    translate_errors,
)


class StoreInfo(Struct, frozen=True, kw_only=True):
    """What a path or server holds: the engine, whether a store exists, and its migrations."""

    engine: str
    exists: bool
    applied_migrations: int
    pending_migrations: tuple[str, ...]


def read_file_info(path: Path) -> StoreInfo:
    """Read a SQLite file without opening it for writing."""
    engine = f"SQLite {'.'.join(map(str, library_version()))}"
    migrations = load_migrations("sqlite")
    if not path.exists() or path.stat().st_size == 0:
        return StoreInfo(
            engine=engine, exists=False, applied_migrations=0, pending_migrations=_names(migrations)
        )
    check_local_disk(path)
    with translate_errors(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            check_owner(connection, str(path))
            rows: list[Any] = _read_applied(connection)
        finally:
            connection.close()
    missing = pending_migrations(migrations, rows, path=str(path))
    return StoreInfo(
        engine=engine, exists=bool(rows), applied_migrations=len(rows), pending_migrations=_names(missing)
    )


def read_server_info(url: str) -> StoreInfo:
    """Read the version and the schema of a PostgreSQL database."""
    import_module("timewright.stores.postgres.store")  # raises MissingExtra without the driver
    import psycopg

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            version = connection.info.server_version
            database = connection.info.dbname
            there = connection.execute("SELECT to_regclass('migrations') IS NOT NULL").fetchone()
            rows: list[Any] = []
            if there is not None and there[0]:
                rows = connection.execute(
                    "SELECT number, checksum FROM migrations ORDER BY number"
                ).fetchall()
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be reached: {' '.join(str(error).split())}",
            field="store",
            rule="the server runs at that address, and the database and the user exist",
            fix="check host, port, user and database in the URL, or create the database: createdb NAME",
        ) from error
    except psycopg.Error as error:
        raise ForeignStore(
            f"this database cannot be read: {' '.join(str(error).split())}",
            field="store",
            rule="a dedicated database, and a user who may read it",
            fix="postgresql://user@host:5432/database",
        ) from error
    missing = pending_migrations(load_migrations("postgres"), rows, path=database)
    engine = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    return StoreInfo(
        engine=engine, exists=bool(rows), applied_migrations=len(rows), pending_migrations=_names(missing)
    )


def back_up_file(source: Path, to: Path) -> int:
    """Copy a SQLite store while it is in use to a new file; returns its size in bytes."""
    if not read_file_info(source).exists:
        raise NotFound(f"no store at {source}", field="store", value=str(source), fix="timewright up")
    check_new_file(to)
    part = to.with_name(f"{to.name}.part")
    _create(part, to)
    try:
        _copy(part, source)
        # A hard link, unlike a rename, fails if the file was created meanwhile.
        os.link(part, to)
    except FileExistsError:
        raise _already_exists(to) from None
    finally:
        part.unlink(missing_ok=True)
    return to.stat().st_size


def check_new_file(path: Path) -> None:
    """Raise Conflict if the file exists, and UnsafeStore if it would be on a network disk."""
    if path.exists():
        raise _already_exists(path)
    check_local_disk(path)


def _create(part: Path, to: Path) -> None:
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise _already_exists(part) from None
    except OSError as error:
        raise StoreUnavailable(
            f"{to} cannot be written: {error.strerror}", field="path", value=str(to), fix="use another folder"
        ) from error


def _copy(part: Path, source: Path) -> None:
    with translate_errors(str(part)):
        reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        writing = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with writing.backup("main", reading, "main") as copy:
                copy.step(-1)  # in one step; with several, each write to the store would restart the copy
        finally:
            writing.close()
            reading.close()


def _read_applied(connection: apsw.Connection) -> list[Any]:
    known = list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'"))
    return (
        list(connection.execute("SELECT number, checksum FROM migrations ORDER BY number")) if known else []
    )


def _names(migrations: list[Migration] | tuple[Migration, ...]) -> tuple[str, ...]:
    return tuple(f"{migration.number:04d} {migration.name}" for migration in migrations)


def _already_exists(path: Path) -> Conflict:
    return Conflict(
        f"{path} already exists",
        field="path",
        value=str(path),
        rule="a backup never overwrites a file",
        fix="use another name",
    )
