"""Windows of providers: an answer that says when to come back closes its provider for everyone till then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from timewright.core.budgets import Book, Window
from timewright.core.facts import Fact, ProviderClosed
from timewright.core.lifecycle import Settlement
from timewright.core.run import Failed, Outcome
from timewright.ledger.owners import owners_of
from timewright.ledger.shelf import Under
from timewright.ports import Entry, Stored, Transaction

PROVIDER = "provider"
LONGEST_SAID = 200

Named = tuple[str, str]


class Ended(Struct, frozen=True):
    """A lease that is over: what it made of its run, what that ran under, and what was answered."""

    settlement: Settlement
    under: Under
    outcome: Outcome


def close_providers(tx: Transaction, book: Book, ended: Sequence[Ended], *, now: datetime) -> list[Fact]:
    """Close providers until the instant that an answer named; what is closed for longer stays so."""
    asked = [
        (one, one.outcome.not_before)
        for one in ended
        if isinstance(one.outcome, Failed) and one.outcome.not_before is not None
    ]
    if not asked:
        return []
    runs = [one.settlement.run for one, _ in asked]
    owners = owners_of(tx, runs, {one.settlement.run.id: one.under for one, _ in asked})
    windows: dict[Named, Window] = {}
    for one, not_before in asked:
        run, schedule = one.settlement.run, owners[one.settlement.run.id].schedule
        until = min(not_before, now + one.under.terms.retry.longest_wait)
        if schedule is None or not schedule.provider or until <= now:
            continue
        place = (run.namespace, schedule.provider)
        before = windows.get(place) or book.windows.get(place) or Window()
        if before.until is None or before.until < until:
            said = one.settlement.attempt.error[:LONGEST_SAID]
            windows[place] = Window(until=until, reason=said, actor=run.id)
    return _write(tx, windows, now=now) if windows else []


def _write(tx: Transaction, windows: Mapping[Named, Window], *, now: datetime) -> list[Fact]:
    tx.hold_book()
    for (namespace, provider), window in sorted(windows.items(), key=lambda pair: pair[0]):
        last = tx.get_objects(PROVIDER, namespace=namespace, names=[provider])
        revision = last[0].revision + 1 if last else 1
        tx.put_objects([_row(namespace, provider, window, revision=revision, now=now)])
    tx.change_book()
    tx.add_audit(
        [
            Entry(
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


def _row(namespace: str, provider: str, window: Window, *, revision: int, now: datetime) -> Stored:
    """A provider's window as it is kept."""
    return Stored(
        kind=PROVIDER,
        namespace=namespace,
        name=provider,
        revision=revision,
        body=msgspec.json.encode(window),
        at=now,
    )
