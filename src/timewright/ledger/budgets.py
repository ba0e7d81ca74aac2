"""Budgets and providers at work: who may be leased, what an ended lease took, which provider it closes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.budgets import Book, Budget, Charge, Load, Unit
from timewright.core.facts import Fact, RunDeferred
from timewright.core.run import Failed, Run
from timewright.core.schedule import Schedule
from timewright.core.spending import Deferral, Spending, expected, known, spend
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.owners import owners_of
from timewright.ledger.shelf import Under
from timewright.ledger.telling import about
from timewright.ledger.unfold_launch import Answered
from timewright.ledger.windows import Ended, close_providers
from timewright.ports import Change, Transaction

BUDGET = "budget"
LONGEST_REASON = 500


def afford(
    tx: Transaction, runs: Sequence[Run], under: Mapping[str, Under], *, now: datetime, hold: bool = True
) -> Spending:
    """Those that may start within their budgets, and those that wait; the accounts are held until the end."""
    book = tx.book(needed=lambda: _any_names(under))
    loads = {} if book.is_empty else _loads(tx, book, runs, under)
    if not loads:
        return Spending(granted=tuple(runs))
    places = [place for load in loads.values() for place in load.places(now)]
    accounts = tx.hold_accounts(places) if hold else tx.read_accounts(places)
    return spend(runs, loads=loads, accounts=accounts, now=now)


def defer(tx: Transaction, deferred: Sequence[Deferral], *, now: datetime) -> list[Fact]:
    """Let runs wait until their date, with the reason; no attempt is taken from them."""
    if not deferred:
        return []
    changes = {
        one.run.id: Change(
            replace(one.run, fire_at=one.until, reason=one.reason[:LONGEST_REASON]),
            one.run.state,
            one.run.fence,
        )
        for one in deferred
    }
    kept = tx.change_runs(list(changes.values()))
    return [
        RunDeferred(reason=change.run.reason, until=change.run.fire_at, **about(change.run, now=now))
        for run_id, change in changes.items()
        if run_id in kept
    ]


def charge(tx: Transaction, charges: Iterable[Charge], *, granted: Sequence[Run]) -> None:
    """Write what leases take, of those that were granted."""
    leases = {run.id for run in granted}
    tx.add_charges([one for one in charges if one.run_id in leases])


def has_charges(tx: Transaction, answers: Mapping[str, Answered], under: Mapping[str, Under]) -> bool:
    """Whether the end of leases may mean anything to a budget or a provider; most often it does not."""
    for answer in answers.values():
        outcome = answer.outcome
        if isinstance(outcome, Failed) and outcome.not_before is not None:
            return True

    def tells() -> bool:
        return any(answer.outcome.cost is not None for answer in answers.values()) or _any_names(under)

    return not tx.book(needed=tells).is_empty


def settle_charges(tx: Transaction, ended: Sequence[Ended], *, now: datetime) -> list[Fact]:
    """Write what ended leases took of their budgets, and close the providers that asked for it."""
    book = tx.book()
    facts = close_providers(tx, book, ended, now=now)
    if not book.budgets:
        return facts
    budgets = {budget.key: budget for found in book.budgets.values() for budget in found}
    by_lease = {(one.settlement.run.id, one.settlement.attempt.fence): one for one in ended}
    still_open = [c for c in tx.open_charges({i for i, _ in by_lease}) if (c.run_id, c.fence) in by_lease]
    tx.close_charges({c: _known(c, budgets, by_lease[c.run_id, c.fence]) for c in still_open})
    tx.add_charges(_unexpected(tx, book, ended, taken={(c.run_id, c.budget) for c in still_open}))
    return facts


def check_named(tx: Transaction, schedules: Iterable[Schedule]) -> None:
    """Refuse a schedule that names a budget which is not there, or expects more than it ever allows."""
    named = [schedule for schedule in schedules if schedule.budgets]
    if not named:
        return
    tx.hold_book()
    book = tx.book()
    for schedule in named:
        there = {budget.name: budget for budget in book.budgets.get(schedule.namespace, ())}
        for name in schedule.budgets:
            if name not in there:
                raise _unknown(name, there)
            _check_estimate(schedule, there[name])


def _any_names(under: Mapping[str, Under]) -> bool:
    """Whether a schedule among these names a budget or a provider."""
    schedules = {id(one.schedule): one.schedule for one in under.values()}
    return any(one is not None and (one.budgets or one.provider) for one in schedules.values())


def _loads(tx: Transaction, book: Book, runs: Sequence[Run], under: Mapping[str, Under]) -> dict[str, Load]:
    owners = owners_of(tx, runs, under)
    found = {
        run.id: book.load_of(
            owners[run.id].schedule,
            under[run.id].terms.target,
            namespace=run.namespace,
            principal=owners[run.id].principal,
            queue=run.queue,
        )
        for run in runs
    }
    return {run_id: load for run_id, load in found.items() if load is not None}


def _known(one: Charge, budgets: Mapping[str, Budget], ended: Ended) -> Charge:
    budget = budgets.get(one.budget)
    if budget is None:
        return replace(one, used=one.held, held=0, open=False)
    return known(one, budget, ended.settlement.attempt.cost, ended.outcome)


def _unexpected(
    tx: Transaction, book: Book, ended: Sequence[Ended], *, taken: set[tuple[str, str]]
) -> list[Charge]:
    """What was reported for budgets that did not cover the run yet when it was leased."""
    told = [one for one in ended if one.settlement.attempt.cost is not None]
    if not told:
        return []
    loads = _loads(
        tx, book, [one.settlement.run for one in told], {o.settlement.run.id: o.under for o in told}
    )
    found: list[Charge] = []
    for one in told:
        attempt, load = one.settlement.attempt, loads.get(one.settlement.run.id)
        for budget in load.budgets if load is not None and attempt.cost is not None else ():
            amount = budget.amount(attempt.cost) if attempt.cost is not None else None
            if amount is not None and (attempt.run_id, budget.key) not in taken:
                found.append(
                    Charge(
                        run_id=attempt.run_id,
                        fence=attempt.fence,
                        budget=budget.key,
                        period=budget.at(attempt.leased_at).start,
                        at=attempt.leased_at,
                        used=amount,
                    )
                )
    return found


def _check_estimate(schedule: Schedule, budget: Budget) -> None:
    wanted = expected(budget, schedule.estimate)
    if budget.unit is not Unit.REQUESTS and wanted > budget.limit:
        raise InvalidInput(
            f"an attempt is expected to take {budget.spell(wanted)} of budget {budget.name}, which allows"
            f" {budget.spell(budget.limit)}",
            field="estimate",
            value=wanted,
            rule="an attempt fits into the budgets that its schedule names",
            fix="a smaller estimate, or a larger budget",
        )


def _unknown(name: str, there: Iterable[str]) -> NotFound:
    listed = ", ".join(sorted(there)[:5])
    return NotFound(
        f"no budget {name!r}",
        field="budgets",
        value=name,
        rule="a schedule names budgets of its namespace",
        fix=f"one of {listed}" if listed else f"budget set {name} first",
    )
