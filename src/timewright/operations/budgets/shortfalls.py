"""Forecast shortfalls: budgets whose limit is lower than what planned runs will use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from timewright.core.budgets.budgets import AccountKey, ApplicableBudgets, Budget, Period, Unit
from timewright.core.moments import HOUR
from timewright.core.schedule.schedule import Schedule
from timewright.ports import Transaction

MAX_NAMES_SHOWN = 5
Starts = Iterable[tuple[datetime, int]]


class Shortfall(Struct, frozen=True, kw_only=True):
    """The first future period in which a budget is not enough; runs beyond the limit wait for the next.

    `expected` is what was used already plus what the schedules (largest first) will use by their estimates;
    without an estimate, only the unit `requests` can be forecast. Periods shorter than an hour are summed up
    per hour.
    """

    budget: str
    since: datetime
    until: datetime
    limit: str
    expected: str
    schedules: tuple[str, ...]


class BudgetForecast:
    """Sums up what the schedules of a namespace will use of their budgets, per period."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._catalog = tx.read_budgets()
        self._budgets: dict[str, Budget] = {}
        self._periods: dict[tuple[str, datetime], Period] = {}
        self._usage: dict[AccountKey, Counter[str]] = {}

    def add(self, schedule: Schedule, starts: Starts) -> None:
        """Add what a schedule will use when it starts at these instants, each with a count."""
        load = None if self._catalog.is_empty else self._catalog.budgets_of_schedule(schedule)
        costs = (
            [(b, cost) for b in load.budgets if (cost := _cost_per_attempt(b, load))]
            if load is not None
            else []
        )
        if not costs:
            return
        for at, count in starts:
            for budget, cost in costs:
                place = budget.account_name, self._period(budget, at).start
                self._usage.setdefault(place, Counter())[schedule.name] += count * cost

    def shortfalls(self) -> tuple[Shortfall, ...]:
        """Return the first period of each budget in which the limit is too low."""
        spent = self._tx.get_accounts(self._usage)
        found: dict[str, Shortfall] = {}
        for (key, start), usage in sorted(self._usage.items(), key=lambda one: one[0]):
            budget, period, account = self._budgets[key], self._periods[key, start], spent[key, start]
            limit = _allowed(budget, period)
            expected = usage.total() + account.used + account.held
            if expected > limit and key not in found:
                found[key] = Shortfall(
                    budget=budget.name,
                    since=period.start,
                    until=period.end,
                    limit=budget.format_amount(limit),
                    expected=budget.format_amount(expected),
                    schedules=tuple(name for name, _ in usage.most_common(MAX_NAMES_SHOWN)),
                )
        return tuple(found.values())

    def _period(self, budget: Budget, at: datetime) -> Period:
        """Return the period of an instant; cached by hour, because there may be very many instants."""
        hour = at.replace(minute=0, second=0, microsecond=0)
        known = self._periods.get((budget.account_name, at)) or self._periods.get((budget.account_name, hour))
        if known is not None and known.start <= at < known.end:
            return known
        found = budget.period_at(at)
        if found.end - found.start < HOUR:
            found = Period(hour, hour + HOUR)
        self._budgets[budget.account_name] = budget
        self._periods[budget.account_name, hour] = self._periods[budget.account_name, found.start] = found
        return found


def _allowed(budget: Budget, period: Period) -> int:
    """Return the limit of a period, which may span several periods of the budget."""
    budget_period = budget.period_at(period.start)
    return budget.limit * max((period.end - period.start) // (budget_period.end - budget_period.start), 1)


def _cost_per_attempt(budget: Budget, load: ApplicableBudgets) -> int:
    """Return what one attempt is expected to use; 0 without an estimate."""
    return 1 if budget.unit is Unit.REQUESTS else budget.amount_of(load.estimate) or 0
