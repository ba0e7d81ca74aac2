"""The audit log: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, OperationRequest, operations
from timewright.ports import AuditEntry, Page, Transaction
from timewright.ports.rows import AuditFilter


class ListAuditEntries(ListRequest, frozen=True, kw_only=True):
    """Filters of the audit log, combined with AND. `action` may be a prefix: `schedule.`."""

    schedule: str = ""
    subject: str = ""
    actor: str = ""
    origin: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None


class VerifyAudit(OperationRequest, frozen=True, kw_only=True):
    """No parameters: there is one hash chain for the whole store."""


class AuditVerification(Struct, frozen=True, kw_only=True):
    """Whether every hash follows from the entry and the hash before; if not, the number of the first entry.

    `lines` are all entries. `unsealed` ones are not in the hash chain yet: on PostgreSQL an instance adds
    them every 15 seconds, and until then a change of them is not found. `entry` is the broken entry as it is
    now, if it still exists and belongs to this namespace.
    """

    intact: bool
    lines: int
    unsealed: int
    first_broken: int | None
    entry: AuditEntry | None


class AuditEntryList(Struct, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    entries: tuple[AuditEntry, ...]
    cursor: str = ""


@operations.read(
    "audit list",
    scope="read",
    examples=({}, {"schedule": "nightly-report", "action": "schedule.", "limit": 20}),
)
def list_audit_entries(
    context: OperationContext, tx: Transaction, request: ListAuditEntries
) -> AuditEntryList:
    """List audit entries, newest first."""
    subject = request.subject
    if request.schedule:
        subject = find_schedule(tx, context.namespace, request.schedule).schedule.id

    def find(limit: int, place: str) -> Page:
        return tx.find(AuditFilter(namespace=context.namespace, limit=limit, cursor=place))

    def matches(rows: Sequence[AuditEntry]) -> list[bool]:
        return [_matches(row, request, subject) for row in rows]

    is_filtered = bool(
        subject or request.actor or request.origin or request.action or request.since or request.until
    )
    rows, cursor = paginate(context, request, find, matches=matches if is_filtered else None)
    return AuditEntryList(entries=tuple(rows), cursor=cursor)


@operations.read("audit verify", scope="admin", examples=({},))
def verify_audit(context: OperationContext, tx: Transaction, _request: VerifyAudit) -> AuditVerification:
    """Check the hash chain of the audit log, from the first entry to the last."""
    check = tx.check_audit()
    broken, lines = check.first_broken, check.entries
    entry = None
    if broken is not None:
        page = tx.find(AuditFilter(namespace=context.namespace, limit=1, cursor=str(broken + 1)))
        after = tx.find(AuditFilter(namespace=context.namespace, limit=1, cursor=str(broken)))
        # The broken entry itself, unless it is gone or belongs to another namespace.
        entry = page.rows[0] if page.rows and page.rows != after.rows else None
    return AuditVerification(
        intact=broken is None,
        lines=lines,
        unsealed=max(lines - check.sealed, 0),
        first_broken=broken,
        entry=entry,
    )


def _matches(entry: AuditEntry, request: ListAuditEntries, subject: str) -> bool:
    return (
        (not subject or entry.subject == subject)
        and (not request.actor or entry.actor == request.actor)
        and (not request.origin or entry.origin == request.origin)
        and (request.since is None or entry.at >= request.since)
        and (request.until is None or entry.at <= request.until)
        and entry.action.startswith(request.action)
    )
