"""The status of a store: durability settings, disk space, clock offset and schema."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any

import apsw

from timewright.core.moments import EPOCH
from timewright.ports.host_info import OpenSnapshot, StoreStatus, TableStatus
from timewright.stores.listeners import is_pooled
from timewright.stores.migrate import load_migrations
from timewright.stores.sqlite.file_safety import file_system, library_version, translate_errors
from timewright.stores.store_info import read_file_info, read_server_info

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
