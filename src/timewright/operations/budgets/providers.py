"""Providers: external services that can be closed until an instant; runs that need them wait until then."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter

import msgspec
from msgspec import Struct

from timewright.core.budgets.budgets import ProviderWindow
from timewright.core.budgets.spending import reason_prefix
from timewright.core.input.input_errors import check_name
from timewright.core.moments import check_storable, format_instant
from timewright.core.run.leasing import WaitReason
from timewright.errors import InvalidInput
from timewright.ledger.budgets.budget_records import close_provider, open_provider, read_window
from timewright.ledger.budgets.charges import PROVIDER
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_object
from timewright.operations.pagination import paginate_rows
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.ports import StoredObject, Transaction
from timewright.ports.overview import DeferredRuns


class CloseProvider(WriteRequest, frozen=True, kw_only=True):
    """Which provider, and until when no run that needs it starts."""

    provider: ObjectName
    until: datetime


class OpenProvider(WriteRequest, frozen=True, kw_only=True):
    """Which provider to open."""

    provider: ObjectName


class ListProviders(ListRequest, frozen=True, kw_only=True):
    """List the providers of the namespace that were ever closed."""


class ProviderSummary(Struct, frozen=True, kw_only=True):
    """A provider: until when it is closed, who closed it and why, and how many runs wait."""

    provider: str
    closed_until: datetime | None
    why: str
    closed_by: str
    waiting: int
    revision: int


class ProviderList(Struct, frozen=True, kw_only=True):
    """A page of providers, by name."""

    providers: tuple[ProviderSummary, ...]
    cursor: str = ""


@operations.write(
    "provider close",
    scope="write",
    examples=({"provider": "openai", "until": "2026-03-10T18:00:00Z", "reason": "quota used up"},),
)
def close_provider_until(
    context: OperationContext, tx: Transaction, request: CloseProvider
) -> ProviderSummary:
    """Close a provider until an instant: runs that need it wait, and do not fail."""
    now = context.now()
    provider = check_name(request.provider, field="provider")
    if check_storable(request.until, field="until") <= now:
        raise InvalidInput(
            f"until {format_instant(request.until)} is in the past",
            field="until",
            value=format_instant(request.until),
            rule="`until` must be in the future",
            fix="use a later instant, or provider open",
        )
    by, namespace = context.actor_with_reason(request.reason), context.namespace
    context.notify([close_provider(tx, namespace, provider, until=request.until, by=by, now=now)])
    return _summarize(tx, find_object(tx, PROVIDER, namespace, provider), now=now)


@operations.write(
    "provider open", scope="write", examples=({"provider": "mail-api", "reason": "back again"},)
)
def open_provider_now(context: OperationContext, tx: Transaction, request: OpenProvider) -> ProviderSummary:
    """Open a closed provider; runs that waited for it may start at once."""
    now = context.now()
    by, namespace = context.actor_with_reason(request.reason), context.namespace
    provider = find_object(tx, PROVIDER, namespace, request.provider).name
    context.notify([open_provider(tx, namespace, provider, by=by, now=now)])
    return _summarize(tx, find_object(tx, PROVIDER, namespace, provider), now=now)


@operations.read("provider list", scope="read", examples=({},))
def list_providers(context: OperationContext, tx: Transaction, request: ListProviders) -> ProviderList:
    """List the providers, until when each is closed and why."""
    now = context.now()
    stored = tx.get_objects(PROVIDER, namespace=context.namespace)
    page, cursor = paginate_rows(context, request, stored, key=attrgetter("name"))
    return ProviderList(providers=tuple(_summarize(tx, row, now=now) for row in page), cursor=cursor)


def _summarize(tx: Transaction, row: StoredObject, *, now: datetime) -> ProviderSummary:
    try:
        window = read_window(row)
    except (msgspec.MsgspecError, ValueError):
        window = ProviderWindow(unreadable=True, reason="the stored record cannot be read")
    until = window.closed_until(now=now)
    prefix = reason_prefix(WaitReason.PROVIDER, row.name)
    return ProviderSummary(
        provider=row.name,
        closed_until=until,
        why=window.reason if until is not None else "",
        closed_by=window.actor if until is not None else "",
        waiting=tx.count(DeferredRuns(namespace=row.namespace, prefix=prefix))["runs"],
        revision=row.revision,
    )
