"""What a path or server holds, the status of an open store, and backups of a file."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any

import apsw
from msgspec import Struct

from timewright.core.moments import EPOCH
from timewright.errors import Conflict, ForeignStore, NotFound, StoreUnavailable
from timewright.ports.host_info import OpenSnapshot, StoreStatus, TableStatus
from timewright.stores.listeners import is_pooled
from timewright.stores.migrate import Migration, load_migrations, pending_migrations
from timewright.stores.sqlite.file_safety import (
    check_local_disk,
    check_owner,
    file_system,
    library_version,
    translate_errors,
)

MAX_NOTIFY_WAIT_S = 1.0
# Whatever keeps the server from removing dead rows of this database.
_SNAPSHOTS = """
    SELECT 'session ' || pid || ' (' || concat_ws(', ', 'user ' || usename, nullif(application_name, ''),
            coalesce(host(client_addr), 'this host'), state) || ')',
        extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start)),
        'SELECT pg_terminate_backend(' || pid || ')'
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
        AND (datname = current_database() OR datname IS NULL)
        AND backend_type IN ('client backend', 'walsender')
    UNION ALL
    SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared),
        'ROLLBACK PREPARED ' || quote_literal(gid)
    FROM pg_prepared_xacts WHERE database = current_database()
    ORDER BY 2 DESC LIMIT 5
"""

_TABLES = """
    SELECT relname, n_live_tup, n_dead_tup, coalesce(last_analyze, last_autoanalyze) IS NOT NULL
    FROM pg_stat_user_tables WHERE schemaname = current_schema() ORDER BY relname
"""

_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


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
        rule="backup and restore never overwrite a file",
        fix="another name: backup NEW.db, or restore BACKUP --store NEW.db",
    )


def read_store_status(location: str, *, now: datetime) -> StoreStatus:
    """Return the status of the store at a path, a URL or `:memory:`."""
    if location == ":memory:":
        return memory_status()
    if "://" in location:
        return read_server_status(location, now=now)
    return read_file_status(Path(location), now=now)


def read_file_status(path: Path, *, now: datetime) -> StoreStatus:
    """Return the status of a SQLite file: journal mode, free space, WAL size, clock offset."""
    info = read_file_info(path)
    if not info.exists:
        return StoreStatus(engine=info.engine, location=str(path), pending_migrations=info.pending_migrations)
    with translate_errors(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            ((journal,),) = connection.execute("PRAGMA journal_mode").fetchall()
            rows: list[Any] = connection.execute(
                "SELECT value FROM meta WHERE name = 'high_water'"
            ).fetchall()
        finally:
            connection.close()
    mark = EPOCH + timedelta(microseconds=int(rows[0][0])) if rows else now
    wal = Path(f"{path}-wal")
    return StoreStatus(
        engine=info.engine,
        location=str(path),
        settings={"journal_mode": str(journal)},
        required_settings={"journal_mode": "wal"},
        file_system=file_system(path.resolve().parent),
        free_bytes=shutil.disk_usage(path.resolve().parent).free,
        store_bytes=path.stat().st_size,
        wal_bytes=wal.stat().st_size if wal.exists() else 0,
        schema=info.applied_migrations,
        pending_migrations=info.pending_migrations,
        clock_offset=max((mark - now).total_seconds(), 0.0),
    )


def memory_status() -> StoreStatus:
    """Return the status of an in-memory store."""
    engine = f"SQLite {'.'.join(map(str, library_version()))}"
    return StoreStatus(engine=engine, location=":memory:", schema=len(load_migrations("sqlite")))


def read_server_status(url: str, *, now: datetime) -> StoreStatus:
    """Return the status of a PostgreSQL database: durability, clock offset, pooler, NOTIFY delay."""
    info = read_server_info(url)
    import_module("timewright.stores.postgres.store")
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        settings = {name: str(_query_value(connection, f"SHOW {name}")) for name in _DURABLE}
        sessions = {_query_value(connection, "SELECT pg_backend_pid()") for _ in range(4)}
        server_time = float(_query_value(connection, "SELECT extract(epoch FROM clock_timestamp())"))
        size = int(_query_value(connection, "SELECT pg_database_size(current_database())"))
        location = connection.info.dbname
        pooled = len(sessions) > 1 or is_pooled(connection)
        # Behind a pooler engines do not LISTEN either: the session would belong to another client.
        notified_after = None if pooled else _notify_delay(connection)
        snapshots = [OpenSnapshot(row[0], float(row[1]), row[2]) for row in connection.execute(_SNAPSHOTS)]
        tables = [TableStatus(*row) for row in connection.execute(_TABLES)]
    return StoreStatus(
        engine=info.engine,
        location=location,
        settings=settings,
        # Our transactions set synchronous_commit themselves; these two belong to the server.
        required_settings={"fsync": "on", "full_page_writes": "on"},
        store_bytes=size,
        schema=info.applied_migrations,
        pending_migrations=info.pending_migrations,
        clock_offset=server_time - (now - EPOCH).total_seconds(),
        notified_after=notified_after,
        pooled=pooled,
        snapshots=tuple(snapshots),
        tables=tuple(tables),
    )


def _notify_delay(connection: Any) -> float | None:
    """Seconds until a NOTIFY on a private channel arrives; None after MAX_NOTIFY_WAIT_S."""
    channel = f"timewright_doctor_{token_hex(8)}"
    began = monotonic()
    connection.execute(f"LISTEN {channel}")
    connection.execute(f"NOTIFY {channel}")
    received = list(connection.notifies(timeout=MAX_NOTIFY_WAIT_S, stop_after=1))
    return monotonic() - began if received else None


def _query_value(connection: Any, sql: str) -> Any:
    return connection.execute(sql).fetchone()[0]
