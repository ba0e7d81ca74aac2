"""Providers: a window that is closed until an instant is a floor for every schedule that names it."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.core.budgets import Window
from timewright.core.leasing import Waits
from timewright.core.moments import check_stored, spell_instant
from timewright.core.spending import reason_prefix
from timewright.core.vocabulary import check_name
from timewright.errors import InvalidInput
from timewright.ledger.budget_shelf import close_provider, open_provider, read_window
from timewright.ledger.windows import PROVIDER
from timewright.operations.context import Context, together
from timewright.operations.find import no_such
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.ports import Page, Stored, Transaction


class Close(Write, frozen=True, kw_only=True):
    """Which provider, and until when nothing of it starts."""

    provider: Named
    until: datetime


class Open(Write, frozen=True, kw_only=True):
    """Which provider may be used again."""

    provider: Named


class List(Listing, frozen=True, kw_only=True):
    """Which providers: all of the namespace that were ever closed."""


class ProviderRow(Struct, frozen=True, kw_only=True):
    """A provider: until when it is closed, if it is, who closed it and why, and how many runs wait."""

    provider: str
    closed_until: datetime | None
    why: str
    closed_by: str
    waiting: int
    revision: int


class Providers(Struct, frozen=True, kw_only=True):
    """A page of providers, by name."""

    providers: tuple[ProviderRow, ...]
    cursor: str = ""


@operations.add(
    "provider",
    "close",
    Close,
    scope="write",
    examples=({"provider": "openai", "until": "2026-03-10T18:00:00Z", "reason": "quota used up"},),
)
def close_one(context: Context, ask: Close) -> ProviderRow:
    """Let nothing start before an instant that names this provider; runs wait and are not failed."""
    now = context.now()
    provider = check_name(ask.provider, field="provider")
    if check_stored(ask.until, field="until") <= now:
        raise InvalidInput(
            f"until {spell_instant(ask.until)} is not ahead",
            field="until",
            value=spell_instant(ask.until),
            rule="a provider is closed until an instant after now",
            fix="a later instant, or provider open",
        )

    def work(inside: Context) -> ProviderRow:
        by, namespace = inside.because(ask.reason), inside.namespace
        inside.tell(
            [
                inside.store.write(
                    lambda tx: close_provider(tx, namespace, provider, until=ask.until, by=by, now=now)
                )
            ]
        )
        return inside.store.read(lambda tx: _row(tx, _found(tx, namespace, provider), now=now))

    return together(context, work)


@operations.add(
    "provider", "open", Open, scope="write", examples=({"provider": "mail-api", "reason": "back again"},)
)
def open_one(context: Context, ask: Open) -> ProviderRow:
    """Open a provider before its time; what waited for it may start at once."""
    now = context.now()

    def work(inside: Context) -> ProviderRow:
        by, namespace = inside.because(ask.reason), inside.namespace
        provider = inside.store.read(lambda tx: _found(tx, namespace, ask.provider)).name
        inside.tell([inside.store.write(lambda tx: open_provider(tx, namespace, provider, by=by, now=now))])
        return inside.store.read(lambda tx: _row(tx, _found(tx, namespace, provider), now=now))

    return together(context, work)


@operations.add("provider", "list", List, scope="read", examples=({},))
def list_all(context: Context, ask: List) -> Providers:
    """List the providers, until when each is closed and why."""
    now = context.now()

    def work(tx: Transaction) -> Providers:
        stored = tx.get_objects(PROVIDER, namespace=context.namespace)

        def find(limit: int, place: str) -> Page:
            after = [row for row in stored if row.name > place]
            return Page(tuple(after[:limit]), after[limit - 1].name if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Providers(providers=tuple(_row(tx, row, now=now) for row in page), cursor=cursor)

    return context.store.read(work)


def _found(tx: Transaction, namespace: str, name: str) -> Stored:
    rows = tx.get_objects(PROVIDER, namespace=namespace, names=[name])
    if not rows:
        known = [row.name for row in tx.get_objects(PROVIDER, namespace=namespace)]
        raise no_such("provider", name, known, lister="provider list")
    return rows[0]


def _row(tx: Transaction, row: Stored, *, now: datetime) -> ProviderRow:
    try:
        window = read_window(row)
    except (msgspec.MsgspecError, ValueError):
        window = Window(unreadable=True, reason="its window cannot be read")
    until = window.closed_until(now=now)
    prefix = reason_prefix(Waits.PROVIDER, row.name)
    return ProviderRow(
        provider=row.name,
        closed_until=until,
        why=window.reason if until is not None else "",
        closed_by=window.actor if until is not None else "",
        waiting=tx.count_deferred(row.namespace, prefix=prefix),
        revision=row.revision,
    )
