"""Performs what users' own SQLite transactions ask for, after their commit."""

from __future__ import annotations

import logging
import os
import platform
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    OverQuota,
    StoreError,
    TimewrightError,
)
from timewright.operations import operations
from timewright.operations.context import OperationContext
from timewright.operations.idempotency import run_once
from timewright.ports import StoredObject
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.stores.outbox import (
    OutboxEntry,
    add_entry,
    begins_transactions,
    finish_entries,
    read_entries,
    read_file_name,
)

LOGGER = logging.getLogger("timewright")
OUTBOX = "outbox"
MAX_ENTRIES = 100
LOOK_EVERY_S = 1.0
# How often the store is asked for databases that other processes have registered.
LIST_EVERY_S = 15.0
# A file whose size and time did not change is read at least this often.
READ_EVERY_S = 30.0
# The store remembers the answer of a key for a day; the keys of runs are kept with them.
_KEYED = ("schedule run", "queue add", "workflow run")


class _Place(Struct, frozen=True):
    """A registered database: the host that has the file, and its path."""

    host: str
    path: str


class Outbox:
    """The outboxes of one instance: registers databases, and moves their entries into the store."""

    def __init__(
        self, context: Callable[[], OperationContext], *, store_path: str, monotonic: Callable[[], float]
    ) -> None:
        self._context = context
        self._store_path = os.path.realpath(store_path) if store_path else ""
        self._monotonic = monotonic
        self._paths: set[str] = set()
        self._seen: dict[str, tuple[float, Any]] = {}
        self._listed_at: float | None = None
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def register(self, connection: sqlite3.Connection) -> None:
        """Make the database of a connection known to every engine of the store on this host."""
        path = os.path.realpath(read_file_name(connection) or ":memory:")
        if not read_file_name(connection) or path == self._store_path:
            raise NotAllowed(
                "this database cannot have an outbox",
                field="connection",
                value=path,
                rule="a database file of your own, not in memory and not the store itself",
                fix="a connection to the file with your tables",
            )
        if not begins_transactions(connection):
            raise NotAllowed(
                "the connection has no open transaction",
                field="connection",
                rule="the work becomes true with your commit",
                fix="BEGIN first, or isolation_level='DEFERRED'; in Django: with transaction.atomic()",
            )
        if path in self._paths:
            return
        context = self._context()
        place = _Place(platform.node(), path)
        row = StoredObject(
            kind=OUTBOX,
            namespace=GLOBAL_NAMESPACE,
            name=f"{place.host}:{path}",
            body=msgspec.json.encode(place),
            at=context.now(),
        )
        with suppress(Conflict):
            context.store.write(lambda tx: tx.put_objects([row]))
        self._paths.add(path)
        self._wake.set()

    def add(
        self,
        connection: sqlite3.Connection,
        operation: str,
        request: dict[str, Any],
        *,
        context: OperationContext,
    ) -> OutboxEntry:
        """Write an operation into the outbox, in the user's transaction."""
        try:
            body = msgspec.json.encode(request).decode()
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{operation} cannot be written into the outbox: {error}",
                field="request",
                rule="an entry of the outbox is stored as JSON",
                fix="numbers, texts, lists and objects; a function by its name",
            ) from None
        entry = OutboxEntry(
            id=context.ids.new("outbox", now=context.now()),
            namespace=context.namespace,
            zone=context.system_zone,
            operation=operation,
            request=body,
        )
        add_entry(connection, entry)
        return entry

    def start(self) -> None:
        """Move entries into the store until `stop`, on a thread of its own."""
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="timewright-outbox", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; what is left is moved by the next engine."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def move_entries(self) -> int:
        """Perform the committed entries of all databases of this host; returns how many were performed."""
        self._list_databases()
        return sum(self._move_from(path) for path in sorted(self._paths))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.move_entries()
            except StoreError as error:  # the loop reports it
                LOGGER.debug("the outbox could not be read: %s", error)
            except Exception as error:  # noqa: BLE001  supervised like the tick: the next look tries again
                LOGGER.warning("the outbox could not be read: %s", error)
            self._wake.wait(LOOK_EVERY_S if self._paths else LIST_EVERY_S)
            self._wake.clear()

    def _list_databases(self) -> None:
        now = self._monotonic()
        if self._listed_at is not None and now - self._listed_at < LIST_EVERY_S:
            return
        self._listed_at = now
        rows = self._context().store.read(lambda tx: tx.get_objects(OUTBOX, namespace=GLOBAL_NAMESPACE))
        places = [msgspec.json.decode(row.body, type=_Place) for row in rows]
        self._paths |= {one.path for one in places if one.host == platform.node()}

    def _move_from(self, path: str) -> int:
        read_at, state = self._seen.get(path, (-READ_EVERY_S, None))
        now, found = self._monotonic(), _file_state(path)
        if found is None or (found == state and now - read_at < READ_EVERY_S):
            return 0
        try:
            entries = read_entries(path, limit=MAX_ENTRIES)
            done, refused = [], []
            for entry in entries:
                error = self._perform(entry)
                if error:
                    refused.append((entry.id, error))
                else:
                    done.append(entry.id)
            if entries:
                finish_entries(path, done, refused)
        except sqlite3.Error as error:
            # Another connection may write for a while.
            level = logging.DEBUG if "locked" in str(error) else logging.WARNING
            LOGGER.log(level, "the outbox in %s could not be read: %s", path, error)
            return 0
        # Read again at once if there may be more, or if we changed the file.
        self._seen[path] = (now, None if entries else found)
        if len(entries) == MAX_ENTRIES:
            self._wake.set()
        return len(done)

    def _perform(self, entry: OutboxEntry) -> str:
        """Perform an entry once; returns why it was refused, or ""."""
        context = self._context()
        # One caller for every process, because a key belongs to its caller.
        context = replace(
            context,
            namespace=entry.namespace,
            system_zone=entry.zone,
            caller=replace(context.caller, actor=OUTBOX),
        )
        request: dict[str, Any] = msgspec.json.decode(entry.request)
        if entry.operation in _KEYED and not request.get("unique"):
            request.setdefault("client_key", f"outbox-{entry.id}")
        try:
            run_once(context, operations[entry.operation], request, key=f"outbox-{entry.id}")
        except TimewrightError as error:
            if isinstance(error, StoreError | OverQuota):
                raise
            LOGGER.error("an entry of the outbox was refused: %s %s: %s", entry.operation, entry.id, error)
            return str(error)
        return ""


def _file_state(path: str) -> Any:
    """Size and time of a database file and its log; None if the file is gone."""
    try:
        found = [Path(path).stat()]
        with suppress(FileNotFoundError):
            found.append(Path(f"{path}-wal").stat())
    except OSError:
        return None
    return [(one.st_size, one.st_mtime_ns) for one in found]
