"""What a store keeps besides: named objects, the audit log, facts about itself; and how it forgets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from timewright.core.moments import from_micros, micros
from timewright.errors import InvalidInput
from timewright.ids import first_id
from timewright.ports import (
    Entry,
    Page,
    Prune,
    Stored,
)
from timewright.stores.rows import clean, text
from timewright.stores.verbs import LAST, Verbs, page_limit, stale_revision

CHAIN_START = "0" * 64


class MemoryVerbs(Verbs):
    """Objects, the audit log, and pruning."""

    def put_objects(self, rows: Sequence[Stored], *, replaces: Mapping[str, int] | None = None) -> None:
        """Write small named objects; Conflict when `replaces` names another revision than the last."""
        expected = replaces or {}
        for kind, namespace in {(row.kind, row.namespace) for row in rows}:
            names = [row.name for row in rows if (row.kind, row.namespace) == (kind, namespace)]
            parameters = {"kind": kind, "namespace": namespace, "names": names}
            last = {row[0]: row[1] for row in self._ask("object_revisions", parameters)}
            for name in names:
                if expected.get(name) is not None and expected[name] != last.get(name, 0):
                    raise stale_revision(f"{kind} {name}", expected[name], last.get(name, 0))
        new = [row for row in rows if expected.get(row.name) == 0]
        # A row that is not there cannot be locked: of several who make it at once, the insert chooses one.
        made = {tuple(row) for row in self._tell("create_objects", [_object_row(row) for row in new])}
        for row in new:
            if (row.kind, row.namespace, row.name) not in made:
                raise stale_revision(f"{row.kind} {row.name}", 0, 1)
        self._tell("insert_objects", [_object_row(row) for row in rows if expected.get(row.name) != 0])

    def get_objects(
        self, kind: str, *, namespace: str | None = None, names: Iterable[str] | None = None
    ) -> list[Stored]:
        """Small named objects of one kind, by name."""
        wanted = list(names) if names is not None else []
        if namespace == "":
            return []  # nobody's; the statement would read it as everybody's
        parameters = {
            "kind": kind,
            "namespace": namespace or "",
            "all_names": int(names is None),
            "names": wanted,
        }
        return [
            Stored(
                kind=r[0], namespace=r[1], name=r[2], revision=r[3], body=r[4].encode(), at=from_micros(r[5])
            )
            for r in self._ask("get_objects", parameters)
        ]

    def delete_object(self, kind: str, *, namespace: str, name: str) -> bool:
        """Remove a small named object; says whether it was there."""
        return bool(self._ask("delete_object", {"kind": kind, "namespace": namespace, "name": name}))

    def add_audit(self, entries: Sequence[Entry]) -> None:
        """Append to the audit log; each line carries the hash of the one before."""
        if not entries:
            return
        # The head of the chain is one row that every writer holds in turn; it tells how far the log went.
        self._ask("hold_meta", {"name": "audit"})
        last = self._ask("last_audit", {})
        seq, chain = (last[0][0], last[0][1]) if last else (0, CHAIN_START)
        rows = []
        for entry in entries:
            seq += 1
            line = _audit_row(entry)
            chain = audit_hash(chain, seq, line)
            rows.append((seq, *line, chain))
        self._tell("insert_audit", rows)
        self._ask("put_meta", {"name": "audit", "value": str(seq)})

    def find_audit(self, *, namespace: str | None = None, limit: int = 50, cursor: str = "") -> Page:
        """A page of the audit log, newest first."""
        if namespace == "":
            return Page(())  # nobody's; the statement would read it as everybody's
        parameters = {
            "before": _audit_cursor(cursor),
            "namespace": namespace or "",
            "limit": page_limit(limit) + 1,
        }
        rows = self._ask("list_audit", parameters)
        page = rows[: page_limit(limit)]
        entries = tuple(
            Entry(
                at=from_micros(r[1]),
                namespace=r[2],
                actor=r[3],
                origin=r[4],
                action=r[5],
                subject=r[6],
                before=r[7],
                after=r[8],
                reason=r[9],
            )
            for r in page
        )
        return Page(entries, str(page[-1][0]) if len(rows) > len(page) else "")

    def broken_audit(self) -> int | None:
        """The number of the first line of the audit log whose hash does not follow, if any."""
        rows = self._ask("list_audit", {"before": 2**62, "namespace": "", "limit": 2**31})
        chain, expected = CHAIN_START, 1
        for row in reversed(rows):
            chain = audit_hash(chain, expected, tuple(row[1:10]))
            if row[0] != expected or row[10] != chain:
                return expected
            expected += 1
        return expected if expected <= int(self.get_meta("audit") or 0) else None

    def get_meta(self, name: str) -> str | None:
        """A small fact about the store itself."""
        rows = self._ask("get_meta", {"name": name})
        return rows[0][0] if rows else None

    def put_meta(self, name: str, value: str) -> None:
        """Write a small fact about the store itself."""
        self._ask("put_meta", {"name": name, "value": value})

    def prune(self, what: Prune) -> int:
        """Remove finished runs and their attempts, oldest first; says how many went.

        A schedule's cursor stands past everything it ever decided, so what is pruned cannot come again.
        """
        beyond = self._prune_beyond(what)
        aged = first_id("run", at=what.older_than) if what.older_than is not None else ""
        parameters = {
            "last": max(beyond, aged),
            "beyond": beyond,
            "aged": aged,
            "ended": micros(what.older_than) if what.older_than is not None else 0,
            "limit": what.limit,
        }
        ids = [row[0] for row in self._ask("prunable", parameters)] if beyond or aged else []
        if not ids:
            return 0
        gone = [row[0] for row in self._ask("delete_runs", {"ids": ids})]
        self._ask("delete_attempts", {"ids": gone})
        self._ask("delete_charges", {"ids": gone})
        self._ask("delete_said", {"ids": gone})
        self._ask("delete_waits", {"ids": gone})
        self._ask("delete_steps", {"ids": gone})
        self._ask("forget_follow_ups", {"ids": gone})
        # How far it went, so that the checker can tell what was pruned from what is lost.
        self.put_meta("pruned_to", max([*gone, self.get_meta("pruned_to") or ""]))
        return len(gone)

    def _prune_beyond(self, what: Prune) -> str:
        """Runs with an id below this one are too many, or too much."""
        if what.keep_runs is not None and what.keep_runs < 1:
            return LAST
        if what.keep_bytes is not None and self._ask("store_bytes", {})[0][0] > what.keep_bytes:
            return LAST
        if what.keep_runs is None:
            return ""
        rows = self._ask("nth_newest_run", {"offset": what.keep_runs - 1})
        return str(rows[0][0]) if rows else ""


def audit_hash(chain: str, seq: int, line: Sequence[Any]) -> str:
    """The hash of one audit line, over the one before it."""
    return hashlib.sha256(text([chain, seq, *line]).encode()).hexdigest()


def _audit_row(entry: Entry) -> tuple[Any, ...]:
    return (
        micros(entry.at),
        clean(entry.namespace),
        clean(entry.actor),
        clean(entry.origin),
        clean(entry.action),
        clean(entry.subject),
        clean(entry.before),
        clean(entry.after),
        clean(entry.reason),
    )


def _audit_cursor(cursor: str) -> int:
    if not cursor:
        return 2**62
    if cursor.isascii() and cursor.isdigit() and len(cursor) < 19:
        return int(cursor)
    raise InvalidInput(
        f"cursor {ascii(cursor)[:60]} is not one of ours",
        field="cursor",
        value=cursor[:60],
        rule="the cursor of the page before, as it was given",
        fix="leave it out to begin with the newest",
    )


def _object_row(row: Stored) -> tuple[Any, ...]:
    return (row.kind, row.namespace, row.name, row.revision, row.body.decode(), micros(row.at))
