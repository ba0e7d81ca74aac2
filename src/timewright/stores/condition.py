"""How a store does, seen from outside: how it runs, how much room is left, and what its clock says."""

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
from timewright.ports.surroundings import Condition
from timewright.stores.file_safety import file_system, library_version, translated
from timewright.stores.hearing import is_pooled
from timewright.stores.migrate import migrations
from timewright.stores.outside import look_at_file, look_at_server

LONGEST_CALL = 1.0
_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


def condition_of(place: str, *, now: datetime) -> Condition:
    """A store by its place: a file, memory, or the address of a server."""
    if place == ":memory:":
        return condition_of_memory()
    if "://" in place:
        return condition_of_server(place, now=now)
    return condition_of_file(Path(place), now=now)


def condition_of_file(path: Path, *, now: datetime) -> Condition:
    """A SQLite file: its journal, its room, its log, and whether the clock was set back behind it."""
    outside = look_at_file(path)
    if not outside.exists:
        return Condition(engine=outside.engine, place=str(path), waiting=outside.waiting)
    with translated(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            ((journal,),) = connection.execute("PRAGMA journal_mode").fetchall()
            marks: list[Any] = connection.execute(
                "SELECT value FROM meta WHERE name = 'high_water'"
            ).fetchall()
        finally:
            connection.close()
    mark = EPOCH + timedelta(microseconds=int(marks[0][0])) if marks else now
    log = Path(f"{path}-wal")
    return Condition(
        engine=outside.engine,
        place=str(path),
        settings={"journal_mode": str(journal)},
        wanted={"journal_mode": "wal"},
        file_system=file_system(path.resolve().parent),
        free_bytes=shutil.disk_usage(path.resolve().parent).free,
        store_bytes=path.stat().st_size,
        wal_bytes=log.stat().st_size if log.exists() else 0,
        schema=outside.applied,
        waiting=outside.waiting,
        clock_offset=max((mark - now).total_seconds(), 0.0),
    )


def condition_of_memory() -> Condition:
    """A store that lives as long as its process."""
    engine = f"SQLite {'.'.join(map(str, library_version()))}"
    return Condition(engine=engine, place=":memory:", schema=len(migrations("sqlite")))


def condition_of_server(url: str, *, now: datetime) -> Condition:
    """A PostgreSQL database: how durable it is, its clock against ours, and what stands between."""
    outside = look_at_server(url)
    import_module("timewright.stores.postgres")
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        settings = {name: str(_one(connection, f"SHOW {name}")) for name in _DURABLE}
        sessions = {_one(connection, "SELECT pg_backend_pid()") for _ in range(4)}
        theirs = float(_one(connection, "SELECT extract(epoch FROM clock_timestamp())"))
        size = int(_one(connection, "SELECT pg_database_size(current_database())"))
        place = connection.info.dbname
        pooled = len(sessions) > 1 or is_pooled(connection)
        # Behind a pooler the engines do not listen either, and a session that listens would be another's.
        heard = None if pooled else _notified(connection)
    return Condition(
        engine=outside.engine,
        place=place,
        settings=settings,
        # Our own transactions set synchronous_commit for themselves; the others are the server's.
        wanted={"fsync": "on", "full_page_writes": "on"},
        store_bytes=size,
        schema=outside.applied,
        waiting=outside.waiting,
        clock_offset=theirs - (now - EPOCH).total_seconds(),
        notified_after=heard,
        pooled=pooled,
    )


def _notified(connection: Any) -> float | None:
    """How long a call on a channel of our own takes to come back to us."""
    channel = f"timewright_doctor_{token_hex(8)}"
    began = monotonic()
    connection.execute(f"LISTEN {channel}")
    connection.execute(f"NOTIFY {channel}")
    heard = list(connection.notifies(timeout=LONGEST_CALL, stop_after=1))
    return monotonic() - began if heard else None


def _one(connection: Any, question: str) -> Any:
    return connection.execute(question).fetchone()[0]
