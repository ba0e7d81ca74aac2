"""Queries for named objects, the audit log, single values, and pruning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from timewright.core.budgets.spending import reason_prefix
from timewright.core.moments import to_micros
from timewright.core.policies.limits import LIMIT, Limit, decode_limit
from timewright.core.run.leasing import WaitReason
from timewright.core.schedule.adjustments import Adjustment
from timewright.core.schedule.pauses import Pause, pause_need
from timewright.errors import InvalidInput, TimewrightError
from timewright.ids import first_id
from timewright.ports import (
    AuditCheck,
    AuditEntry,
    Page,
    PruneRequest,
    StoredObject,
)
from timewright.ports.rows import AuditFilter, IncidentPrune, LimitKeyPrune, ObjectPrune
from timewright.stores.queries.alerts import CHANNEL
from timewright.stores.queries.base import LAST_KEY, MAX_PAGE_ROWS, page_limit, stale_revision
from timewright.stores.queries.budgets import BUDGET, PROVIDER, SqlBudgetQueries
from timewright.stores.queries.leases import DEFAULT_LIMIT, SqlLeaseQueries
from timewright.stores.rows import (
    json_text,
    ready_bucket,
    struct_reader,
    struct_row,
)

FIRST_AUDIT_HASH = "0" * 64
# How many numbers behind the last sealed entry one that was committed later is looked for.
MAX_LATE_ENTRIES = 10_000


class SqlObjectQueries(SqlBudgetQueries, SqlLeaseQueries):
    """Named objects, the audit log, single values, and pruning."""

    def put_objects(self, rows: Sequence[StoredObject], *, replaces: Mapping[str, int] | None = None) -> None:
        """Write objects. Raises Conflict if `replaces` names a revision other than the last."""
        expected = replaces or {}
        if any(row.kind == CHANNEL for row in rows):
            self._forget_channels()
        for kind, namespace in {(row.kind, row.namespace) for row in rows}:
            names = [row.name for row in rows if (row.kind, row.namespace) == (kind, namespace)]
            parameters = {"kind": kind, "namespace": namespace, "names": names}
            last = {row[0]: row[1] for row in self._query("object_revisions", parameters)}
            for name in names:
                if expected.get(name) is not None and expected[name] != last.get(name, 0):
                    raise stale_revision(f"{kind} {name}", expected[name], last.get(name, 0))
        new = [row for row in rows if expected.get(row.name) == 0]
        # A missing row cannot be locked; of several concurrent creators the insert lets one through.
        made = {tuple(row) for row in self._execute_many("create_objects", [struct_row(row) for row in new])}
        for row in new:
            if (row.kind, row.namespace, row.name) not in made:
                raise stale_revision(f"{row.kind} {row.name}", 0, 1)
        self._execute_many("insert_objects", [struct_row(row) for row in rows if expected.get(row.name) != 0])
        for row in rows:
            if row.kind == LIMIT:
                # A limit that cannot be read keeps the one before in force.
                with suppress(msgspec.MsgspecError, TimewrightError):
                    self.define_limit(row.namespace, decode_limit(row.body))
        if any(row.kind in (BUDGET, PROVIDER) for row in rows):
            self._mark_budgets_changed()

    def get_objects(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        names: Iterable[str] | None = None,
        newest: int | None = None,
        before: str = "",
    ) -> list[StoredObject]:
        """Return objects of one kind, by name; with `newest`, that many of a namespace, last name first."""
        wanted = list(names) if names is not None else []
        if namespace == "":
            return []  # an empty namespace means all of them in the statement
        if newest is not None:
            page = {"before": before or LAST_KEY, "limit": page_limit(newest)}
            rows = self._query("newest_objects", {"kind": kind, "namespace": namespace or "", **page})
            return [_read_object(row) for row in rows]
        parameters = {
            "kind": kind,
            "namespace": namespace or "",
            "all_names": int(names is None),
            "names": wanted,
        }
        return [_read_object(row) for row in self._query("get_objects", parameters)]

    def delete_object(self, kind: str, *, namespace: str, name: str) -> bool:
        """Delete an object; returns whether it existed."""
        if kind == CHANNEL:
            self._forget_channels()
        is_deleted = bool(self._query("delete_object", {"kind": kind, "namespace": namespace, "name": name}))
        if kind == LIMIT:
            self.define_limit(namespace, Limit(name=name, max_running=DEFAULT_LIMIT))
        if kind == BUDGET:
            self._delete_budget_usage(f"{namespace}/{name}")
        if kind in (BUDGET, PROVIDER):
            self._mark_budgets_changed()
        return is_deleted

    def _forget_channels(self) -> None:
        self._executor.cache.channels, self._executor.has_uncommitted_revisions = None, True

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append to the audit log.

        SQLite has one writer, so the entries join the hash chain at once. On PostgreSQL writers would wait
        for each other there, and `seal_audit` adds the entries later.
        """
        if entries:
            self._execute_many("insert_audit", [struct_row(entry) for entry in entries])
            if not self._executor.is_remote:
                self._extend_audit_chain(limit=MAX_LATE_ENTRIES)

    def seal_audit(self, *, limit: int = 10_000) -> int:
        """Add entries to the hash chain of the audit log; returns how many."""
        newest, seal = self._query("last_audit", {})[0][0] or 0, self._query("last_audit_seal", {})
        if newest <= (seal[0][2] if seal else 0):
            return 0
        # Writers of the chain wait for each other; writers of entries do not.
        self._query("lock_meta", {"name": "audit"})
        return self._extend_audit_chain(limit=limit)

    def _extend_audit_chain(self, *, limit: int) -> int:
        seal = self._query("last_audit_seal", {})
        position, entry_hash, last = seal[0] if seal else (0, FIRST_AUDIT_HASH, 0)
        cache, rows = self._executor.cache, []
        look_back = 0 if cache.is_audit_in_order else MAX_LATE_ENTRIES
        for values in self._query("unsealed_audit", {"after": last - look_back, "limit": limit}):
            position += 1
            entry_hash = audit_hash(entry_hash, position, values)
            rows.append((position, values[0], entry_hash))
        # On SQLite nothing is committed late, but a store that came from PostgreSQL may have late entries.
        cache.is_audit_in_order = not self._executor.is_remote and all(row[1] > last for row in rows)
        if rows:
            self._execute_many("insert_audit_seals", rows)
            self._query("put_meta", {"name": "audit", "value": str(position)})
        return len(rows)

    def find_audit(self, which: AuditFilter) -> Page:
        """Return a page of the audit log, newest first."""
        if which.namespace == "":
            return Page(())  # an empty namespace means all of them in the statement
        parameters = {
            "before": _audit_cursor(which.cursor),
            "namespace": which.namespace or "",
            "limit": page_limit(which.limit) + 1,
        }
        rows = self._query("list_audit", parameters)
        page = rows[: page_limit(which.limit)]
        entries = tuple(_read_entry(row[1:]) for row in page)
        return Page(entries, str(page[-1][0]) if len(rows) > len(page) else "")

    def check_audit(self) -> AuditCheck:
        """Recompute the hash chain of the audit log."""
        entry_hash, position, last = FIRST_AUDIT_HASH, 0, 0
        ((entries,),), sealed = self._query("count_audit", {}), int(self.get_meta("audit") or 0)
        while rows := self._query("sealed_audit", {"after": position, "limit": MAX_PAGE_ROWS}):
            for row in rows:
                position += 1
                entry_hash = audit_hash(entry_hash, position, row[2:])
                if row[0] != position or row[3] is None or row[1] != entry_hash:
                    return AuditCheck(entries, sealed, row[2])
                last = row[2]
        return AuditCheck(entries, sealed, last + 1 if position < sealed else None)

    def lock(self, name: str) -> None:
        """Lock a name against other writers until the transaction ends."""
        if name == "budgets":
            self._query("lock_budgets", {})
        else:
            self._query("lock_meta", {"name": name})

    def add_adjustments(self, adjustments: Sequence[Adjustment]) -> None:
        """Append adjustments of schedules; the caller has locked the schedules."""
        if not adjustments:
            return
        found = self._query(
            "last_adjustment_numbers", {"ids": sorted({one.schedule_id for one in adjustments})}
        )
        numbers = {row[0]: row[1] for row in found}
        rows = []
        for one in adjustments:
            numbers[one.schedule_id] = numbers.get(one.schedule_id, 0) + 1
            schedule_id, *values = struct_row(one)
            rows.append((schedule_id, numbers[one.schedule_id], *values))
        self._execute_many("insert_adjustments", rows)

    def add_pause(self, pause: Pause) -> None:
        """Insert a pause; it holds from this commit on."""
        self._query("end_elapsed_pauses", {"now": to_micros(pause.at)})
        self._execute_many("insert_pauses", [struct_row(pause)[:-1]])

    def end_pause(self, pause_id: str, *, by: str, now: datetime) -> bool:
        """End a pause, and make due what waited for its end; returns whether it was open."""
        at = to_micros(now)
        was_open = bool(self._query("end_pause", {"id": pause_id, "by": by, "at": at}))
        if was_open:
            waits = ready_bucket((pause_need(pause_id),), ())
            self._query("wake_waiting_schedules", {"buckets": [waits], "now": at})
            parameters = {"prefix": reason_prefix(WaitReason.PAUSE, pause_id), "now": at}
            self._query("release_paused_runs", parameters)
        return was_open

    def get_meta(self, name: str) -> str | None:
        """Return a single value about the store."""
        rows = self._query("get_meta", {"name": name})
        return rows[0][0] if rows else None

    def put_meta(self, name: str, value: str) -> None:
        """Write a single value about the store."""
        self._query("put_meta", {"name": name, "value": value})

    def prune(self, request: PruneRequest | ObjectPrune | IncidentPrune | LimitKeyPrune) -> int:
        """Delete old rows; returns how many, of those kinds whose number is known."""
        match request:
            case PruneRequest():
                return self._prune_runs(request)
            case ObjectPrune():
                page = {"older": to_micros(request.older_than), "limit": page_limit(request.limit)}
                which = {"kind": request.kind, "namespace": request.namespace}
                return len(self._query("prune_objects", {**which, **page}))
            case IncidentPrune():
                self._query("delete_incidents", {"before": to_micros(request.before)})
            case LimitKeyPrune():
                self._query("prune_groups", {"before": to_micros(request.before)})
                self._query("prune_limit_keys", {"before": to_micros(request.before)})
        return 0

    def _prune_runs(self, request: PruneRequest) -> int:
        """Delete finished runs and what is recorded about them, oldest first; returns how many.

        A schedule's cursor is past everything it has decided, so a pruned occurrence is not made again.
        """
        beyond = self._prune_beyond(request)
        aged = first_id("run", at=request.older_than) if request.older_than is not None else ""
        parameters = {
            "last": max(beyond, aged),
            "beyond": beyond,
            "aged": aged,
            "ended": to_micros(request.older_than) if request.older_than is not None else 0,
            "limit": request.limit,
        }
        ids = [row[0] for row in self._query("prunable_runs", parameters)] if beyond or aged else []
        if not ids:
            return 0
        deleted = [row[0] for row in self._query("delete_runs", {"ids": ids})]
        self._query("delete_attempts", {"ids": deleted})
        self._query("delete_charges", {"ids": deleted})
        self._query("delete_output_of_runs", {"ids": deleted})
        self._query("delete_run_progress", {"ids": deleted})
        self._query("delete_external_ids", {"ids": deleted})
        self._query("delete_artifacts", {"ids": deleted})
        self._query("delete_dependency_waits", {"ids": deleted})
        self._query("delete_steps", {"ids": deleted})
        self._query("delete_decided_follow_ups", {"ids": deleted})
        # Recorded so that `timewright verify` can tell pruned runs from lost ones.
        self.put_meta("pruned_to", max([*deleted, self.get_meta("pruned_to") or ""]))
        return len(deleted)

    def _prune_beyond(self, request: PruneRequest) -> str:
        """The id below which runs exceed the count or the size limit."""
        if request.keep_runs is not None and request.keep_runs < 1:
            return LAST_KEY
        if request.keep_bytes is not None and self._query("store_bytes", {})[0][0] > request.keep_bytes:
            return LAST_KEY
        if request.keep_runs is None:
            return ""
        rows = self._query("nth_newest_run", {"offset": request.keep_runs - 1})
        return str(rows[0][0]) if rows else ""


def audit_hash(previous: str, position: int, values: Sequence[Any]) -> str:
    """The hash of an audit entry (its number first), which covers the hash before it."""
    return hashlib.sha256(json_text([previous, position, *values]).encode()).hexdigest()


def _audit_cursor(cursor: str) -> int:
    if not cursor:
        return 2**62
    if cursor.isascii() and cursor.isdigit() and len(cursor) < 19:
        return int(cursor)
    raise InvalidInput(
        f"cursor {ascii(cursor)[:60]} is invalid",
        field="cursor",
        value=cursor[:60],
        rule="a cursor is taken unchanged from the page before",
        fix="omit the cursor to start with the newest entry",
    )


_read_object = struct_reader(StoredObject, body=str.encode)
_read_entry = struct_reader(AuditEntry)
