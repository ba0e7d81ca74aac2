"""What a run took of budgets, lease by lease, in the words of each budget."""

from __future__ import annotations

from msgspec import Struct

from timewright.core.run import Run
from timewright.ports import Transaction


class ChargeRow(Struct, frozen=True, kw_only=True):
    """What one lease of a run took of a budget, or holds while it is under way."""

    budget: str
    fence: int
    used: str
    held: str


def charges_of(tx: Transaction, run: Run) -> tuple[ChargeRow, ...]:
    """What a run took of the budgets there are."""
    book = tx.book(needed=lambda: False)
    budgets = {budget.key: budget for budget in book.budgets.get(run.namespace, ())}
    if not budgets:
        return ()
    return tuple(
        ChargeRow(
            budget=budgets[one.budget].name,
            fence=one.fence,
            used=budgets[one.budget].spell(one.used),
            held=budgets[one.budget].spell(one.held) if one.held else "",
        )
        for one in tx.charges_of([run.id])
        if one.budget in budgets
    )
