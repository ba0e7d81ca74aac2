"""Checks runs against budgets and provider windows: which may start, and which are deferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.budgets.budgets import (
    CALENDAR_PERIODS,
    AccountKey,
    ApplicableBudgets,
    Budget,
    BudgetUsage,
    Charge,
    Unit,
    describe_window,
)
from timewright.core.budgets.costs import Cost
from timewright.core.moments import MINUTE
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Outcome, Released, Run


class Deferral(Struct, frozen=True, kw_only=True):
    """A deferred run: what it waits for, until when, and an explanation."""

    run: Run
    wait_reason: WaitReason
    name: str
    until: datetime
    why: str

    @property
    def reason(self) -> str:
        """The reason stored with the run."""
        return f"{reason_prefix(self.wait_reason, self.name)} {self.why}"


class SpendingPlan(Struct, frozen=True, kw_only=True):
    """The runs that may start, their charges, and the deferred runs."""

    granted: tuple[Run, ...]
    charges: tuple[Charge, ...] = ()
    deferred: tuple[Deferral, ...] = ()


def reason_prefix(reason_kind: WaitReason, name: str) -> str:
    """Return the first words of the reason of a run that waits for this."""
    return f"{reason_kind.value}: {name}:"


def plan_spending(
    runs: Sequence[Run],
    *,
    applicable: Mapping[str, ApplicableBudgets],
    accounts: Mapping[AccountKey, BudgetUsage],
    now: datetime,
) -> SpendingPlan:
    """Grant runs in order while their budgets have free capacity and their providers are open."""
    taken: dict[AccountKey, int] = {}
    granted: list[Run] = []
    charges: list[Charge] = []
    deferred: list[Deferral] = []
    for run in runs:
        terms = applicable.get(run.id)
        if terms is not None:
            deferral = _longest_deferral(run, terms, accounts, taken, now=now)
            if deferral is not None:
                deferred.append(deferral)
                continue
            for charge in _charges(run, terms, now=now):
                key = (charge.budget, charge.period)
                taken[key] = taken.get(key, 0) + charge.used + charge.held
                charges.append(charge)
        granted.append(run)
    return SpendingPlan(granted=tuple(granted), charges=tuple(charges), deferred=tuple(deferred))


def settle_charge(charge: Charge, budget: Budget, cost: Cost | None, outcome: Outcome) -> Charge:
    """Return the final charge of a lease: the reported cost, else the estimate; 0 if it was released."""
    amount = budget.amount_of(cost) if cost is not None else None
    if amount is None:
        amount = 0 if isinstance(outcome, Released) else charge.held
    return replace(charge, used=amount, held=0, open=False)


def expected_amount(budget: Budget, estimate: Cost) -> int:
    """Return the amount that one attempt reserves before its cost is known."""
    return 1 if budget.unit is Unit.REQUESTS else budget.amount_of(estimate) or 0


def _charges(run: Run, terms: ApplicableBudgets, *, now: datetime) -> list[Charge]:
    """Return the charges of a lease: a request counts as used at once, other units are held first."""
    found = []
    for budget in terms.budgets:
        is_request = budget.unit is Unit.REQUESTS
        amount = expected_amount(budget, terms.estimate)
        found.append(
            Charge(
                run_id=run.id,
                fence=run.fence + 1,
                budget=budget.account_name,
                period=budget.period_at(now).start,
                at=now,
                used=amount if is_request else 0,
                held=0 if is_request else amount,
                open=not is_request,
            )
        )
    return found


def _longest_deferral(
    run: Run,
    terms: ApplicableBudgets,
    accounts: Mapping[AccountKey, BudgetUsage],
    taken: Mapping[AccountKey, int],
    *,
    now: datetime,
) -> Deferral | None:
    """Return the deferral that lasts longest, if any."""
    found: list[tuple[WaitReason, str, datetime, str]] = []
    if terms.unreadable:
        why = "it cannot be read, so its limit is unknown"
        found.append((WaitReason.BUDGET, terms.unreadable, now + MINUTE, why))
    closed_until = terms.window.closed_until(now=now) if terms.window is not None else None
    if terms.window is not None and closed_until is not None:
        found.append((WaitReason.PROVIDER, terms.provider, closed_until, describe_window(terms.window)))
    exhausted = exhausted_budgets(terms, accounts, taken, now=now)
    found += ((WaitReason.BUDGET, name, until, why) for name, until, why in exhausted)
    if not found:
        return None
    wait_reason, name, until, why = max(found, key=lambda one: one[2])
    return Deferral(run=run, wait_reason=wait_reason, name=name, until=until, why=why)


def exhausted_budgets(
    terms: ApplicableBudgets,
    accounts: Mapping[AccountKey, BudgetUsage],
    taken: Mapping[AccountKey, int],
    *,
    now: datetime,
) -> list[tuple[str, datetime, str]]:
    """Return the budgets without capacity for another attempt: name, end of the period, explanation."""
    found = []
    for budget in terms.budgets:
        period = budget.period_at(now)
        key = (budget.account_name, period.start)
        account = accounts.get(key, BudgetUsage())
        spent = account.used + account.held + taken.get(key, 0)
        amount = expected_amount(budget, terms.estimate)
        if spent + max(amount, 1) > budget.limit:
            why = f"{_describe_usage(budget, spent, amount)}; the next {_period_name(budget)} begins then"
            found.append((budget.name, period.end, why))
    return found


def _describe_usage(budget: Budget, spent: int, amount: int) -> str:
    if amount > budget.limit:
        limit = budget.format_amount(budget.limit)
        return f"an attempt is expected to take {budget.format_amount(amount)}, of {limit}"
    return f"{budget.format_amount(spent)} used or held of {budget.format_amount(budget.limit)}"


def _period_name(budget: Budget) -> str:
    return budget.period if budget.period in CALENDAR_PERIODS else f"period of {budget.period}"
