"""Provider windows: a result that says when to try again closes its provider for all runs until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.core.budgets.budgets import BudgetCatalog, ProviderWindow
from timewright.core.facts import Fact, ProviderClosed
from timewright.core.run.lifecycle import Settlement
from timewright.core.run.run import Failed, Outcome
from timewright.ledger.budgets.owners import find_owners
from timewright.ledger.lookups import RunTerms
from timewright.ports import AuditEntry, StoredObject, Transaction

PROVIDER = "provider"
MAX_REASON_CHARS = 200

ProviderKey = tuple[str, str]


class EndedLease(Struct, frozen=True):
    """An ended lease: its settlement, the terms of its run, and the outcome."""

    settlement: Settlement
    under: RunTerms
    outcome: Outcome


def close_providers(
    tx: Transaction, catalog: BudgetCatalog, ended: Sequence[EndedLease], *, now: datetime
) -> list[Fact]:
    """Close providers until the instant that a result named; a longer close stays."""
    requested = [
        (one, one.outcome.not_before)
        for one in ended
        if isinstance(one.outcome, Failed) and one.outcome.not_before is not None
    ]
    if not requested:
        return []
    runs = [one.settlement.run for one, _ in requested]
    owners = find_owners(tx, runs, {one.settlement.run.id: one.under for one, _ in requested})
    windows: dict[ProviderKey, ProviderWindow] = {}
    for one, not_before in requested:
        run, schedule = one.settlement.run, owners[one.settlement.run.id].schedule
        until = min(not_before, now + one.under.terms.retry.max_wait)
        if schedule is None or not schedule.provider or until <= now:
            continue
        place = (run.namespace, schedule.provider)
        before = windows.get(place) or catalog.windows.get(place) or ProviderWindow()
        if before.until is None or before.until < until:
            reason = one.settlement.attempt.error[:MAX_REASON_CHARS]
            windows[place] = ProviderWindow(until=until, reason=reason, actor=run.id)
    return _write(tx, windows, now=now) if windows else []


def _write(tx: Transaction, windows: Mapping[ProviderKey, ProviderWindow], *, now: datetime) -> list[Fact]:
    tx.lock("budgets")
    for (namespace, provider), window in sorted(windows.items(), key=lambda pair: pair[0]):
        last = tx.get_objects(PROVIDER, namespace=namespace, names=[provider])
        revision = last[0].revision + 1 if last else 1
        tx.put_objects([_row(namespace, provider, window, revision=revision, now=now)])
    tx.mark_budgets_changed()
    tx.add_audit(
        [
            AuditEntry(
                at=now,
                namespace=namespace,
                actor=window.actor,
                origin="engine",
                action="provider.close",
                subject=provider,
                after=msgspec.json.encode(window).decode(),
                reason=window.reason,
            )
            for (namespace, provider), window in windows.items()
        ]
    )
    return [
        ProviderClosed(
            at=now, namespace=namespace, provider=provider, until=window.until, reason=window.reason
        )
        for (namespace, provider), window in windows.items()
        if window.until is not None
    ]


def _row(
    namespace: str, provider: str, window: ProviderWindow, *, revision: int, now: datetime
) -> StoredObject:
    """The stored form of a provider's window."""
    return StoredObject(
        kind=PROVIDER,
        namespace=namespace,
        name=provider,
        revision=revision,
        body=msgspec.json.encode(window),
        at=now,
    )
