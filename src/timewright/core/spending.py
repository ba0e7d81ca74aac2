"""Who may start within the budgets, what that takes from them, and who must wait until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from timewright.core.budgets import Account, Budget, Charge, Load, Place, Unit, told_window
from timewright.core.costs import Cost
from timewright.core.leasing import Waits
from timewright.core.moments import MINUTE
from timewright.core.periods import CALENDAR
from timewright.core.run import Outcome, Released, Run


class Deferral(Struct, frozen=True, kw_only=True):
    """A run that must wait: for what, until when, and the sentence that says so."""

    run: Run
    waits: Waits
    name: str
    until: datetime
    why: str

    @property
    def reason(self) -> str:
        """The sentence as the run keeps it."""
        return f"{reason_prefix(self.waits, self.name)} {self.why}"


class Spending(Struct, frozen=True, kw_only=True):
    """Who may start within the budgets, what that takes from them, and who waits."""

    granted: tuple[Run, ...]
    charges: tuple[Charge, ...] = ()
    deferred: tuple[Deferral, ...] = ()


def reason_prefix(waits: Waits, name: str) -> str:
    """How the reason of a run begins that waits for this."""
    return f"{waits.value}: {name}:"


def spend(
    runs: Sequence[Run], *, loads: Mapping[str, Load], accounts: Mapping[Place, Account], now: datetime
) -> Spending:
    """Let runs start, in their order, while their budgets last and their providers are open."""
    taken: dict[Place, int] = {}
    granted: list[Run] = []
    charges: list[Charge] = []
    deferred: list[Deferral] = []
    for run in runs:
        load = loads.get(run.id)
        if load is not None:
            hindrance = _hindrance(run, load, accounts, taken, now=now)
            if hindrance is not None:
                deferred.append(hindrance)
                continue
            for charge in _charges(run, load, now=now):
                place = (charge.budget, charge.period)
                taken[place] = taken.get(place, 0) + charge.used + charge.held
                charges.append(charge)
        granted.append(run)
    return Spending(granted=tuple(granted), charges=tuple(charges), deferred=tuple(deferred))


def known(charge: Charge, budget: Budget, cost: Cost | None, outcome: Outcome) -> Charge:
    """A charge when its lease is over: what was reported, else what was expected; given back, nothing."""
    amount = budget.amount(cost) if cost is not None else None
    if amount is None:
        amount = 0 if isinstance(outcome, Released) else charge.held
    return Charge(
        run_id=charge.run_id,
        fence=charge.fence,
        budget=charge.budget,
        period=charge.period,
        at=charge.at,
        used=amount,
    )


def expected(budget: Budget, estimate: Cost) -> int:
    """How much of a budget one attempt is counted with before it is over."""
    return 1 if budget.unit is Unit.REQUESTS else budget.amount(estimate) or 0


def _charges(run: Run, load: Load, *, now: datetime) -> list[Charge]:
    """What a lease takes: a request is used at once, all else is held until it is known."""
    found = []
    for budget in load.budgets:
        is_request = budget.unit is Unit.REQUESTS
        amount = expected(budget, load.estimate)
        found.append(
            Charge(
                run_id=run.id,
                fence=run.fence + 1,
                budget=budget.key,
                period=budget.at(now).start,
                at=now,
                used=amount if is_request else 0,
                held=0 if is_request else amount,
                open=not is_request,
            )
        )
    return found


def _hindrance(
    run: Run, load: Load, accounts: Mapping[Place, Account], taken: Mapping[Place, int], *, now: datetime
) -> Deferral | None:
    """What a run must wait for the longest, if anything."""
    found: list[Deferral] = []
    if load.broken:
        why = "it cannot be read, and what it allows is not known"
        found.append(Deferral(run=run, waits=Waits.BUDGET, name=load.broken, until=now + MINUTE, why=why))
    until = load.window.closed_until(now=now) if load.window is not None else None
    if load.window is not None and until is not None:
        why = told_window(load.window)
        found.append(Deferral(run=run, waits=Waits.PROVIDER, name=load.provider, until=until, why=why))
    for name, until, why in used_up(load, accounts, taken, now=now):
        found.append(Deferral(run=run, waits=Waits.BUDGET, name=name, until=until, why=why))
    return max(found, key=lambda one: one.until, default=None)


def used_up(
    load: Load, accounts: Mapping[Place, Account], taken: Mapping[Place, int], *, now: datetime
) -> list[tuple[str, datetime, str]]:
    """The budgets that leave no room for another attempt: each with the end of its period, and why."""
    found = []
    for budget in load.budgets:
        period = budget.at(now)
        place = (budget.key, period.start)
        account = accounts.get(place, Account())
        spent = account.used + account.held + taken.get(place, 0)
        wanted = expected(budget, load.estimate)
        if spent + max(wanted, 1) > budget.limit:
            why = f"{_used(budget, spent, wanted)}; a new {_called(budget)} begins then"
            found.append((budget.name, period.end, why))
    return found


def _used(budget: Budget, spent: int, wanted: int) -> str:
    if wanted > budget.limit:
        return f"an attempt is expected to take {budget.spell(wanted)}, of {budget.spell(budget.limit)}"
    return f"{budget.spell(spent)} used or held of {budget.spell(budget.limit)}"


def _called(budget: Budget) -> str:
    return budget.period if budget.period in CALENDAR else f"period of {budget.period}"
