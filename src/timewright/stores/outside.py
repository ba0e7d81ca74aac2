"""A store seen from outside: what is there, and a copy of it; neither changes the store."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from timewright.errors import Conflict, ForeignStore, NotFound, StoreUnavailable
from timewright.stores.file_safety import check_ours, check_place, library_version, translated
from timewright.stores.migrate import Migration, migrations, pending


class Outside(Struct, frozen=True, kw_only=True):
    """What a place holds: which engine keeps it, whether a store is there, and the steps its schema lacks."""

    engine: str
    exists: bool
    applied: int
    waiting: tuple[str, ...]


def look_at_file(path: Path) -> Outside:
    """Look at a SQLite file without opening it for writing."""
    engine = f"SQLite {'.'.join(map(str, library_version()))}"
    steps = migrations("sqlite")
    if not path.exists() or path.stat().st_size == 0:
        return Outside(engine=engine, exists=False, applied=0, waiting=_names(steps))
    check_place(path)
    with translated(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            check_ours(connection, str(path))
            rows: list[Any] = _applied(connection)
        finally:
            connection.close()
    left = pending(steps, rows, place=str(path))
    return Outside(engine=engine, exists=bool(rows), applied=len(rows), waiting=_names(left))


def look_at_server(url: str) -> Outside:
    """Look at a PostgreSQL database: its version and its schema."""
    import_module("timewright.stores.postgres")  # says in our words when the driver is not there
    import psycopg

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            version = connection.info.server_version
            place = connection.info.dbname
            there = connection.execute("SELECT to_regclass('migrations') IS NOT NULL").fetchone()
            rows: list[Any] = []
            if there is not None and there[0]:
                rows = connection.execute(
                    "SELECT number, checksum FROM migrations ORDER BY number"
                ).fetchall()
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"PostgreSQL is away: {' '.join(str(error).split())}",
            field="store",
            rule="a reachable server",
            fix="postgresql://user@host:5432/database",
        ) from error
    except psycopg.Error as error:
        raise ForeignStore(
            f"this database cannot be looked at: {' '.join(str(error).split())}",
            field="store",
            rule="a database of its own, and a user who may read it",
            fix="postgresql://user@host:5432/database",
        ) from error
    left = pending(migrations("postgres"), rows, place=place)
    engine = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    return Outside(engine=engine, exists=bool(rows), applied=len(rows), waiting=_names(left))


def copy_file(source: Path, to: Path) -> int:
    """Copy a SQLite store while it is in use, to a file that does not exist yet; gives back its size."""
    if not look_at_file(source).exists:
        raise NotFound(
            f"there is no store at {source}", field="store", value=str(source), fix="timewright up"
        )
    if to.exists():
        raise _taken(to)
    check_place(to)
    part = to.with_name(f"{to.name}.part")
    _make(part, to)
    try:
        _fill(part, source)
        # A link, unlike a rename, never writes over a file that came meanwhile.
        os.link(part, to)
    except FileExistsError:
        raise _taken(to) from None
    finally:
        part.unlink(missing_ok=True)
    return to.stat().st_size


def _make(part: Path, to: Path) -> None:
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise _taken(part) from None
    except OSError as error:
        raise StoreUnavailable(
            f"{to} cannot be written: {error.strerror}", field="path", value=str(to), fix="another folder"
        ) from error


def _fill(part: Path, source: Path) -> None:
    with translated(str(part)):
        reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        writing = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with writing.backup("main", reading, "main") as copy:
                copy.step(-1)  # all of it from one picture; in steps, a busy store would begin it anew
        finally:
            writing.close()
            reading.close()


def _applied(connection: apsw.Connection) -> list[Any]:
    known = list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'"))
    return (
        list(connection.execute("SELECT number, checksum FROM migrations ORDER BY number")) if known else []
    )


def _names(steps: list[Migration] | tuple[Migration, ...]) -> tuple[str, ...]:
    return tuple(f"{step.number:04d} {step.name}" for step in steps)


def _taken(path: Path) -> Conflict:
    return Conflict(
        f"{path} is there already",
        field="path",
        value=str(path),
        rule="a backup never writes over a file",
        fix="another name",
    )
