"""Mutants of what stands between schedules: ends that are passed on, needs, budgets, and last words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from timewright.core.budgets import Account, Place
from timewright.core.upstream import Need
from timewright.engine.sayings import Sayings
from timewright.ledger import admission_pass, endings, lease, settle
from timewright.stores.budget_verbs import SqlBudgetVerbs
from timewright.testing.world.mutating import Mutant, Patches


def _counted_first() -> Patches:
    """Accounts that were read in a transaction before."""
    plain = SqlBudgetVerbs.hold_accounts
    seen: dict[Place, Account] = {}

    def hold_accounts(self: SqlBudgetVerbs, places: Any) -> dict[Place, Account]:
        found = plain(self, places)
        before = {place: seen.get(place, account) for place, account in found.items()}
        seen.update(found)
        return before

    return [(SqlBudgetVerbs, "hold_accounts", hold_accounts)]


def _ever() -> Patches:
    def is_met(self: Need, met_at: datetime | None, *, planned_at: datetime) -> bool:
        return met_at is not None

    return [(Need, "is_met", is_met)]


LINKED: tuple[Mutant, ...] = (
    Mutant(
        name="an end is not passed on",
        relations=True,
        owners=("I41",),
        patches=lambda: [(endings, "pass_on", lambda *a, **k: [])],
    ),
    Mutant(
        name="an end is followed again and again",
        relations=True,
        owners=("I41",),
        patches=lambda: [(admission_pass, "close", lambda *a, **k: None)],
    ),
    Mutant(
        name="started without what it needs",
        relations=True,
        owners=("I43",),
        patches=lambda: [(lease, "without_needs", lambda *a, **k: ([], []))],
    ),
    Mutant(name="an end of any age will do", relations=True, owners=("I43",), patches=_ever),
    Mutant(name="what is spent is counted first", relations=True, owners=("I44",), patches=_counted_first),
    Mutant(
        name="a lease is not charged",
        relations=True,
        owners=("I44",),
        patches=lambda: [(lease, "charge", lambda *a, **k: None)],
    ),
    Mutant(
        name="what a lease held stays held",
        relations=True,
        owners=("I42",),
        patches=lambda: [(settle, "settle_charges", lambda *a, **k: [])],
    ),
    Mutant(
        name="last words are late",
        relations=True,
        owners=("I45",),
        patches=lambda: [(Sayings, "write_last", lambda self, store, *, now: None)],
    ),
    Mutant(
        name="last words are forgotten",
        relations=True,
        owners=("I45",),
        patches=lambda: [(Sayings, "end", lambda self, flown, work, outcome: None)],
    ),
)
