"""The audit log: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from timewright.operations.context import Context
from timewright.operations.find import find_schedule
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Request, operations
from timewright.ports import Entry, Page, Transaction


class List(Listing, frozen=True, kw_only=True):
    """Which lines; every filter that is given must fit. An action may be a beginning: `schedule.`."""

    schedule: str = ""
    subject: str = ""
    actor: str = ""
    origin: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None


class Verify(Request, frozen=True, kw_only=True):
    """Nothing to say: the chain is one for the whole store."""


class AuditProof(Struct, frozen=True, kw_only=True):
    """Whether every line follows from the one before; if not, the first that does not.

    `entry` is that line as it stands now, if it is there and of this namespace.
    """

    intact: bool
    lines: int
    first_broken: int | None
    entry: Entry | None


class Audit(Struct, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    entries: tuple[Entry, ...]
    cursor: str = ""


@operations.add(
    "audit",
    "list",
    List,
    scope="read",
    examples=({}, {"schedule": "nightly-report", "action": "schedule.", "limit": 20}),
)
def list_audit(context: Context, ask: List) -> Audit:
    """List who changed what, newest first."""

    def work(tx: Transaction) -> Audit:
        subject = ask.subject
        if ask.schedule:
            subject = find_schedule(tx, context.namespace, ask.schedule).schedule.id

        def find(limit: int, place: str) -> Page:
            return tx.find_audit(namespace=context.namespace, limit=limit, cursor=place)

        def fits(rows: Sequence[Entry]) -> list[bool]:
            return [_fits(row, ask, subject) for row in rows]

        sifts = bool(subject or ask.actor or ask.origin or ask.action or ask.since or ask.until)
        rows, cursor = paged(context, ask, find, fits=fits if sifts else None)
        return Audit(entries=tuple(rows), cursor=cursor)

    return context.store.read(work)


@operations.add("audit", "verify", Verify, scope="admin", examples=({},))
def verify_audit(context: Context, _ask: Verify) -> AuditProof:
    """Check the hash chain of the audit log, from its first line to its last."""

    def work(tx: Transaction) -> AuditProof:
        broken = tx.broken_audit()
        lines = int(tx.get_meta("audit") or 0)
        entry = None
        if broken is not None:
            page = tx.find_audit(namespace=context.namespace, limit=1, cursor=str(broken + 1))
            after = tx.find_audit(namespace=context.namespace, limit=1, cursor=str(broken))
            # The newest line up to the broken one, unless that line is gone or another's.
            entry = page.rows[0] if page.rows and page.rows != after.rows else None
        return AuditProof(intact=broken is None, lines=lines, first_broken=broken, entry=entry)

    return context.store.read(work)


def _fits(entry: Entry, ask: List, subject: str) -> bool:
    return (
        (not subject or entry.subject == subject)
        and (not ask.actor or entry.actor == ask.actor)
        and (not ask.origin or entry.origin == ask.origin)
        and (ask.since is None or entry.at >= ask.since)
        and (ask.until is None or entry.at <= ask.until)
        and entry.action.startswith(ask.action)
    )
