"""The audit log: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from timewright.operations.context import Context
from timewright.operations.find import find_schedule
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, operations
from timewright.ports import Entry, Page, Transaction


class List(Listing, frozen=True, kw_only=True):
    """Which lines; every filter that is given must fit. An action may be a beginning: `schedule.`."""

    schedule: str = ""
    subject: str = ""
    actor: str = ""
    action: str = ""


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

        sifts = bool(subject or ask.actor or ask.action)
        rows, cursor = paged(context, ask, find, fits=fits if sifts else None)
        return Audit(entries=tuple(rows), cursor=cursor)

    return context.store.read(work)


def _fits(entry: Entry, ask: List, subject: str) -> bool:
    return (
        (not subject or entry.subject == subject)
        and (not ask.actor or entry.actor == ask.actor)
        and entry.action.startswith(ask.action)
    )
