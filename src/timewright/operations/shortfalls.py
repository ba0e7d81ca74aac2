"""Budgets that will not last: what is planned ahead would take more of a period than it allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from timewright.core.budgets import Budget, Load, Place, Unit
from timewright.core.moments import HOUR
from timewright.core.periods import Period
from timewright.core.schedule import Schedule
from timewright.ports import Transaction

NAMED = 5
Starts = Iterable[tuple[datetime, int]]


class Shortfall(Struct, frozen=True, kw_only=True):
    """The first period ahead that a budget does not last for; what comes after the limit waits for the next.

    `expected` is what was used of it already and what the schedules, those that take most first, will take
    by their estimates; where none is given, only requests can be told. Of a period shorter than an hour, the
    hour is told.
    """

    budget: str
    since: datetime
    until: datetime
    limit: str
    expected: str
    schedules: tuple[str, ...]


class Accounts:
    """What the schedules of one namespace will take of their budgets, period by period."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._book = tx.book()
        self._budgets: dict[str, Budget] = {}
        self._periods: dict[tuple[str, datetime], Period] = {}
        self._taken: dict[Place, Counter[str]] = {}

    def add(self, schedule: Schedule, starts: Starts) -> None:
        """Count what a schedule will take when it starts at these instants, so many times at each."""
        load = None if self._book.is_empty else self._book.of_schedule(schedule)
        prices = [(b, price) for b in load.budgets if (price := _price(b, load))] if load is not None else []
        if not prices:
            return
        for at, count in starts:
            for budget, price in prices:
                place = budget.key, self._period(budget, at).start
                self._taken.setdefault(place, Counter())[schedule.name] += count * price

    def shortfalls(self) -> tuple[Shortfall, ...]:
        """The first period of each budget that is too short, by name."""
        spent = self._tx.read_accounts(self._taken)
        found: dict[str, Shortfall] = {}
        for (key, start), taken in sorted(self._taken.items(), key=lambda one: one[0]):
            budget, period, account = self._budgets[key], self._periods[key, start], spent[key, start]
            most = _allowed(budget, period)
            expected = taken.total() + account.used + account.held
            if expected > most and key not in found:
                found[key] = Shortfall(
                    budget=budget.name,
                    since=period.start,
                    until=period.end,
                    limit=budget.spell(most),
                    expected=budget.spell(expected),
                    schedules=tuple(name for name, _ in taken.most_common(NAMED)),
                )
        return tuple(found.values())

    def _period(self, budget: Budget, at: datetime) -> Period:
        """The period of an instant; looked up by the hour, for there may be very many instants."""
        hour = at.replace(minute=0, second=0, microsecond=0)
        known = self._periods.get((budget.key, at)) or self._periods.get((budget.key, hour))
        if known is not None and known.start <= at < known.end:
            return known
        found = budget.at(at)
        if found.end - found.start < HOUR:
            found = Period(hour, hour + HOUR)
        self._budgets[budget.key] = budget
        self._periods[budget.key, hour] = self._periods[budget.key, found.start] = found
        return found


def _allowed(budget: Budget, period: Period) -> int:
    """How much may be taken in a period that is told, which may hold several of the budget's own."""
    own = budget.at(period.start)
    return budget.limit * max((period.end - period.start) // (own.end - own.start), 1)


def _price(budget: Budget, load: Load) -> int:
    """What one attempt is expected to take; nothing where nobody said."""
    return 1 if budget.unit is Unit.REQUESTS else budget.amount(load.estimate) or 0
