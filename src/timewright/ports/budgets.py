"""What we ask of a store for budgets and providers: what is set, what is spent, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from timewright.core.budgets import Account, Book, Charge, Place


class BudgetVerbs(Protocol):
    """Verbs for what may be spent; where nobody has set a budget or closed a provider, each costs nothing."""

    def book(self, *, needed: Callable[[], bool] | None = None) -> Book:
        """Every budget and window; read once, and again when one was changed.

        Where it is not needed, the first of all may be seen a second late by whoever did not write it.
        """
        ...

    def change_book(self) -> None:
        """Say that a budget or a window was written or removed; those who would do the same wait here."""
        ...

    def hold_book(self) -> None:
        """Keep others from changing the book until the transaction ends."""
        ...

    def hold_accounts(self, places: Iterable[Place]) -> dict[Place, Account]:
        """Hold accounts until the transaction ends, and read how much is spent."""
        ...

    def read_accounts(self, places: Iterable[Place]) -> dict[Place, Account]:
        """How much is spent, for a plan; nothing is held and nothing is written."""
        ...

    def accounts_of(self, budget: str, *, limit: int) -> list[tuple[datetime, Account]]:
        """How much was spent in each period that anything was spent in, the newest first."""
        ...

    def add_charges(self, charges: Sequence[Charge]) -> None:
        """Write what leases take, and count it in its accounts."""
        ...

    def open_charges(self, run_ids: Iterable[str]) -> list[Charge]:
        """What leases have taken and is not known yet."""
        ...

    def close_charges(self, known: Mapping[Charge, Charge]) -> None:
        """Write what open charges came to, and count it instead of what was held."""
        ...

    def charges_of(self, run_ids: Iterable[str]) -> list[Charge]:
        """What every lease of runs took."""
        ...

    def recount(self, budget: str, *, since: datetime) -> None:
        """Count what was taken from a budget since an instant, as the account of the period it begins."""
        ...

    def forget_budget(self, budget: str) -> None:
        """Remove what was counted of a budget."""
        ...

    def count_deferred(self, namespace: str, *, prefix: str) -> int:
        """How many runs wait whose reason begins so."""
        ...

    def undefer(self, namespace: str, *, prefix: str, now: datetime) -> int:
        """Let those start at once whose reason to wait begins so; says how many."""
        ...
