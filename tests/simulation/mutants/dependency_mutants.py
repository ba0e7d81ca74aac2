"""Mutants of dependencies: follow-ups, needs, budgets and output."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.simulation.mutants.mutation import Mutant, Patches
from timewright.core.budgets.budgets import AccountKey, BudgetUsage
from timewright.core.schedule.upstream import Need
from timewright.engine.output_buffer import OutputBuffer
from timewright.ledger import admission_batch, lease, run_ends, settle
from timewright.stores.queries.budgets import SqlBudgetQueries


def _counted_first() -> Patches:
    """Accounts read in an earlier transaction."""
    plain = SqlBudgetQueries.lock_accounts
    seen: dict[AccountKey, BudgetUsage] = {}

    def lock_accounts(self: SqlBudgetQueries, places: Any) -> dict[AccountKey, BudgetUsage]:
        found = plain(self, places)
        before = {place: seen.get(place, account) for place, account in found.items()}
        seen.update(found)
        return before

    return [(SqlBudgetQueries, "lock_accounts", lock_accounts)]


def _ever() -> Patches:
    def is_met(self: Need, met_at: datetime | None, *, planned_at: datetime) -> bool:
        return met_at is not None

    return [(Need, "is_met", is_met)]


DEPENDENCY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="no follow-up is created",
        needs_dependencies=True,
        broken_invariants=("I41",),
        first_seed=13,
        patches=lambda: [(run_ends, "notify_downstream", lambda *a, **k: [])],
    ),
    Mutant(
        name="an end is followed twice",
        needs_dependencies=True,
        broken_invariants=("I41",),
        patches=lambda: [(admission_batch, "close_follow_ups", lambda *a, **k: None)],
    ),
    Mutant(
        name="started without its needs",
        needs_dependencies=True,
        broken_invariants=("I43",),
        patches=lambda: [(lease, "split_by_needs", lambda *a, **k: ([], []))],
    ),
    Mutant(
        name="an end of any age meets a need",
        needs_dependencies=True,
        broken_invariants=("I43",),
        patches=_ever,
    ),
    Mutant(
        name="the budget is counted first",
        needs_dependencies=True,
        broken_invariants=("I44",),
        patches=_counted_first,
    ),
    Mutant(
        name="a lease is not charged",
        needs_dependencies=True,
        broken_invariants=("I44",),
        patches=lambda: [(lease, "record_charges", lambda *a, **k: None)],
    ),
    Mutant(
        name="reservations are never released",
        needs_dependencies=True,
        broken_invariants=("I42",),
        first_seed=9,
        patches=lambda: [(settle, "settle_charges", lambda *a, **k: [])],
    ),
    Mutant(
        name="output is written late",
        needs_dependencies=True,
        broken_invariants=("I45",),
        patches=lambda: [(OutputBuffer, "write_final", lambda self, store, *, now: None)],
    ),
    Mutant(
        name="final output is lost",
        needs_dependencies=True,
        broken_invariants=("I45",),
        patches=lambda: [(OutputBuffer, "record_end", lambda self, flown, work, outcome: None)],
    ),
)
