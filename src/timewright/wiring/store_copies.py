"""Backs up and restores stores, and moves a live store to another database."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct

from timewright.access.keyring import ENV_SECRET_KEY, KEYRING_META, read_private, write_private
from timewright.clocks import SystemClock
from timewright.core.moments import MINUTE, format_duration, to_micros
from timewright.core.run.simulation import SimulatedRun
from timewright.core.schedule.pauses import COPY_ORIGINS, Pause
from timewright.core.sensitive_keys import redact_store_url
from timewright.errors import Conflict, NotFound, StoreError
from timewright.ids import TimedIds
from timewright.ledger.replan import Actor
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT, HELD_BY_WORKFLOW
from timewright.operations import OperationContext
from timewright.operations.health.pauses import add_installation_pause, audit_pause, new_pause
from timewright.operations.health.verify import read_history
from timewright.ports import Clock, Store, Transaction
from timewright.ports.objects import OpenPauses
from timewright.stores.store_info import back_up_file, check_new_file, read_file_info
from timewright.stores.table_copy import SqliteTables, TableAccess, copy_tables, store_tables
from timewright.verification import check
from timewright.wiring.artifact_copies import ArtifactCopies
from timewright.wiring.store_urls import (
    inspect_store,
    open_store,
    private_file,
    sqlite_path,
)
from timewright.wiring.what_if import WhatIf, what_if

# The origins of the pauses that these commands set.
RESTORE, MOVE = COPY_ORIGINS
# The id of the completed move that filled a store.
MOVED_META = "moved_by"
POLL_S = 0.2
MAX_LISTED_RUNS = 1000

Progress = Callable[[float, str], None]


class WouldRun(Struct, frozen=True, kw_only=True):
    """What happens when the store is resumed now: the first decisions of each namespace."""

    namespace: str
    runs: int
    skipped: dict[str, int]
    first: tuple[SimulatedRun, ...]


class StoreCopy(Struct, frozen=True, kw_only=True):
    """A restored or moved store, and how many rows it has."""

    store: str
    rows: int
    notes: tuple[str, ...] = ()
    would_run: tuple[WouldRun, ...] = ()


class StoreCopier:
    """Copies whole stores; reports its progress as a share and a text."""

    def __init__(
        self,
        *,
        user: str,
        progress: Progress | None = None,
        clock: Clock | None = None,
        artifacts: str = "",
    ) -> None:
        self._user = user
        self._report: Progress = progress or (lambda _share, _text: None)
        self._clock: Clock = clock or SystemClock()
        # A server has its own clock, unless a test gives one.
        self._open: Callable[[str], Store] = partial(open_store, clock=clock)
        self._artifacts = ArtifactCopies(artifacts, self._open)

    def back_up(self, url: str, to: Path) -> int:
        """Copy a store in use to a new SQLite file, whichever database it is in; return its size in bytes."""
        path = sqlite_path(url)
        if path is not None:
            size = back_up_file(Path(path), to)
            self._artifacts.copy(url, str(to))
            return size
        _check_exists(url)
        with _new_file(to) as part, _tables(url, read_only=True) as source:
            self._open(str(part)).close()
            with _tables(str(part)) as target:
                self._copy(source, target, copy_id="backup")
                target.finish_copy(now=to_micros(self._clock.now()))
        return to.stat().st_size

    def restore(self, backup: Path, url: str, *, reason: str = "") -> StoreCopy:
        """Fill a new store from a backup. It comes up paused, and the answer says what would run."""
        if not read_file_info(backup).exists:
            raise NotFound(
                f"no backup at {backup}", field="path", value=str(backup), fix="timewright backup FILE"
            )
        by = Actor(name=self._user, origin=RESTORE, reason=reason or f"restored from {backup.name}")
        path = sqlite_path(url)
        self._artifacts.check_place(str(backup), url)
        if path is None:
            self._restore_to_server(backup, url, by=by)
        else:
            with _new_file(Path(path)) as part:
                back_up_file(backup, part)
                with _tables(str(part)) as tables:
                    _check_complete(tables, str(backup))
                    tables.unfreeze()
                self._pause(str(part), by)
        self._artifacts.restore(str(backup), url)
        with closing(self._open(url)) as store, _tables(url) as tables:
            return StoreCopy(
                store=redact_store_url(url),
                rows=_count(tables),
                notes=(*_key_notes(url, tables), *self._artifacts.notes(store)),
                would_run=tuple(_would_run(store, tables)),
            )

    def move(self, url: str, to: str, *, wait: timedelta) -> StoreCopy:
        """Move a live store. Called again after a kill, it continues where it stopped.

        The store is paused, the runs under way end, the tables are copied and both sides verified; then the
        new store is resumed. The old one stays paused and refuses every write.
        """
        _check_exists(url)
        self._artifacts.check_place(url, to)
        reason = f"moved to {redact_store_url(to)}"
        with closing(self._open(url)) as source, _tables(url) as tables:
            pause = _move_pause(source)
            if pause is not None and pause.reason != reason:
                raise _another_move(pause)
            self._open(to).close()
            with _tables(to) as target:
                if pause is None:
                    _check_empty(target, to, copy_id="")
                    pause = self._pause_source(source, reason)
                if target.get_meta(MOVED_META) != pause.id:
                    _check_empty(target, to, copy_id=pause.id)
                    self._freeze(source, tables, pause, wait=wait)
                    self._copy(tables, target, copy_id=pause.id)
                    self._check_same(source, tables, to, target)
                    _copy_private_files(url, to)
                    self._artifacts.copy(url, to)
                    target.put_meta(MOVED_META, pause.id)
                    target.finish_copy(now=to_micros(source.now()))
                rows = _count(target)
            with closing(self._open(to)) as moved:
                _end_pause(moved, pause, by=self._user)
        return StoreCopy(store=redact_store_url(to), rows=rows)

    def cancel_move(self, url: str, to: str) -> None:
        """Resume the old store of a move that is not complete; the new one stays paused."""
        _check_exists(url)
        with closing(self._open(url)) as source, _tables(url) as tables:
            pause = _move_pause(source)
            if pause is None:
                shown = redact_store_url(url)
                raise NotFound(f"no move of {shown} was begun", field="store", fix="timewright resume")
            if inspect_store(to).exists:
                with _tables(to) as target:
                    if target.get_meta(MOVED_META) == pause.id:
                        raise Conflict(
                            f"the move to {redact_store_url(to)} is complete",
                            field="to",
                            rule="the new store may have run work that the old one does not know",
                            fix="move it back to a new store",
                        )
            tables.unfreeze()
            _end_pause(source, pause, by=self._user)

    def _restore_to_server(self, backup: Path, url: str, *, by: Actor) -> None:
        copy_id = f"restore {backup.name} {backup.stat().st_size}"
        self._open(url).close()
        with _tables(str(backup), read_only=True) as source, _tables(url) as target:
            _check_complete(source, str(backup))
            with closing(self._open(url)) as store:
                if _check_empty(target, url, copy_id=copy_id):
                    # Paused before the first row; the audit log is appended to once it is copied.
                    store.write(lambda tx: tx.add_pause(new_pause(ids=TimedIds(), by=by, now=tx.now())))
                self._copy(source, target, copy_id=copy_id)
            with closing(self._open(url)) as store:
                pause = new_pause(ids=TimedIds(), by=by, now=store.now())
                store.write(lambda tx: audit_pause(tx, pause, by=by, now=tx.now()))
            target.finish_copy(now=0)

    def _freeze(self, source: Store, tables: TableAccess, pause: Pause, *, wait: timedelta) -> None:
        """Wait until no run is under way, then refuse every write."""
        until = self._clock.monotonic() + wait.total_seconds()
        while True:
            running = _running(source, tables)
            if not running:
                tables.freeze(pause.reason)
                # A lease that was granted while the pause was written is seen by now.
                if not _running(source, tables):
                    return
                tables.unfreeze()
            if self._clock.monotonic() >= until:
                _end_pause(source, pause, by=self._user)
                raise Conflict(
                    f"{running} runs are still under way, so nothing was moved and the store is resumed",
                    field="wait",
                    value=format_duration(wait),
                    rule="a run ends on the store that it started on",
                    fix="wait longer: --wait 1h, or cancel them: timewright run list --state leased",
                )
            self._report(0.0, f"waiting for {running} runs to end")
            self._clock.sleep(POLL_S)

    def _copy(self, source: TableAccess, target: TableAccess, *, copy_id: str) -> None:
        total, done = max(_count(source), 1), _count(target)

        def on_batch(table: str, rows: int) -> None:
            nonlocal done
            done += rows
            self._report(done / total, f"{table}: {done:,} of {total:,} rows")

        copy_tables(source, target, copy_id=copy_id, on_batch=on_batch)

    def _check_same(self, source: Store, tables: TableAccess, to: str, target: TableAccess) -> None:
        """Compare the number of rows of every table, and verify the promises on both sides."""
        for table in store_tables():
            there, here = target.count_rows(table), tables.count_rows(table)
            if there != here:
                raise StoreError(
                    f"{table.name} has {here} rows in the old store and {there} in the new one",
                    rule="a move copies every row",
                    fix="timewright move --cancel, then move to an empty store",
                )
        self._report(1.0, "verifying both stores")
        now = source.now()
        with closing(self._open(to)) as moved:
            before, after = (_violations(store, now) for store in (source, moved))
        if before != after:
            raise StoreError(
                f"verify finds {before or 'no'} violations in the old store"
                f" and {after or 'no'} violations in the new one",
                rule="both stores hold the same history",
                fix="timewright move --cancel, then timewright verify on each store shows the violations",
            )

    def _pause(self, url: str, by: Actor) -> None:
        with closing(self._open(url)) as store:
            store.write(lambda tx: _add_pause(tx, by))

    def _pause_source(self, source: Store, reason: str) -> Pause:
        by = Actor(name=self._user, origin=MOVE, reason=reason)
        return source.write(lambda tx: _add_pause(tx, by))


def _running(source: Store, tables: TableAccess) -> int:
    """Count live leases; an expired one is reclaimed by the new store. Workflows and what waits move."""
    return tables.count_running(now=to_micros(source.now()), without_holders=(HELD_BY_WORKFLOW, HELD_BY_WAIT))


def _violations(store: Store, now: datetime) -> dict[str, int]:
    """Count the violations of each promise."""
    context = OperationContext(store=store, ids=TimedIds(), notify=lambda _: None)
    report = check(read_history(context, all_namespaces=True), now=to_micros(now))
    return {one.invariant: one.count for one in report.findings if one.count}


def _would_run(store: Store, tables: TableAccess) -> Iterator[WouldRun]:
    for namespace in tables.read_namespaces():
        now = store.now()
        question = WhatIf(since=now, until=now + MINUTE, max_rows=MAX_LISTED_RUNS)
        late = [
            one for one in what_if(question, source=store, namespace=namespace).rows if one.planned_at <= now
        ]
        first = tuple(one for one in late if one.state != "skipped")
        skipped = Counter[str]()
        for one in late:
            skipped[one.reason] += one.count if one.state == "skipped" else 0
        yield WouldRun(namespace=namespace, runs=len(first), skipped=dict(+skipped), first=first)


def _add_pause(tx: Transaction, by: Actor) -> Pause:
    return add_installation_pause(tx, ids=TimedIds(), by=by, now=tx.now())


def _end_pause(store: Store, pause: Pause, *, by: str) -> None:
    store.write(lambda tx: tx.end_pause(pause.id, by=by, now=tx.now()))


def _move_pause(store: Store) -> Pause | None:
    open_pauses = store.read(lambda tx: tx.select(OpenPauses()))
    return next((pause for pause in open_pauses if pause.origin == MOVE), None)


def _count(tables: TableAccess) -> int:
    return sum(tables.count_rows(table) for table in store_tables())


def _check_exists(url: str) -> None:
    if not inspect_store(url).exists:
        shown = redact_store_url(url)
        raise NotFound(f"no store at {shown}", field="store", value=shown, fix="timewright up")


def _check_complete(tables: TableAccess, name: str) -> None:
    if tables.read_progress() is not None:
        raise Conflict(
            f"{name} is an unfinished copy", field="path", value=name, fix="finish it, or use another backup"
        )


def _check_empty(tables: TableAccess, url: str, *, copy_id: str) -> bool:
    """Return whether the store is empty; raise if it holds anything but an unfinished copy with this id."""
    begun = tables.read_progress()
    if begun is not None and begun.copy_id == copy_id:
        return False
    if begun is None and not any(
        tables.count_rows(table) for table in store_tables() if table.name != "meta"
    ):
        return True
    raise Conflict(
        f"{redact_store_url(url)} is not empty",
        field="to",
        value=redact_store_url(url),
        rule="a store is moved or restored into a new file or an empty database",
        fix="another name, or createdb timewright_new",
    )


def _another_move(pause: Pause) -> Conflict:
    return Conflict(
        f"this store is already being {pause.reason}",
        field="to",
        rule="one move at a time",
        fix="give the same address to continue it, or cancel it: timewright move ADDRESS --cancel",
    )


def _copy_private_files(url: str, to: str) -> None:
    """Copy the secret key and the local API key to where the new store looks for them."""
    for kind in ("key", "admin"):
        here, there = private_file(url, kind), private_file(to, kind)
        text = read_private(here) if here is not None else None
        if text is not None and there is not None:
            write_private(there, text)


def _key_notes(url: str, tables: TableAccess) -> Iterator[str]:
    path = private_file(url, "key")
    if (
        tables.get_meta(KEYRING_META)
        and path is not None
        and not path.exists()
        and not os.environ.get(ENV_SECRET_KEY)
    ):
        yield f"the secret key is not part of a backup: put it at {path}, or secrets and API keys do not work"


@contextmanager
def _tables(url: str, *, read_only: bool = False) -> Iterator[TableAccess]:
    path = sqlite_path(url)
    if path is not None:
        tables: TableAccess = SqliteTables(path, read_only=read_only)
    else:
        from timewright.stores.postgres.tables import PostgresTables

        tables = PostgresTables(url, read_only=read_only)
    try:
        yield tables
    finally:
        tables.close()


@contextmanager
def _new_file(to: Path) -> Iterator[Path]:
    """Yield the path of a part file, which gets its name when the block is done; never overwrites a file."""
    check_new_file(to)
    part = to.with_name(f"{to.name}.part")
    check_new_file(part)
    try:
        yield part
        check_new_file(to)
        os.link(part, to)
    finally:
        part.unlink(missing_ok=True)
