"""Charges budgets: reserves before a lease, settles after it; closes providers that ask to wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.channels import Message
from timewright.core.budgets.budgets import (
    ApplicableBudgets,
    Budget,
    BudgetCatalog,
    Charge,
    ProviderWindow,
    Unit,
)
from timewright.core.budgets.spending import (
    Deferral,
    SpendingPlan,
    expected_amount,
    plan_spending,
    settle_charge,
)
from timewright.core.facts import Fact, ProviderClosed, RunDeferred
from timewright.core.finding import command_line
from timewright.core.run.lifecycle import Settlement
from timewright.core.run.run import Failed, Outcome, Run
from timewright.core.schedule.schedule import Schedule
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.alerts.deliveries import deliver_messages, is_wanted
from timewright.ledger.fact_builders import run_fields
from timewright.ledger.lookups import RunTerms, find_owners
from timewright.ledger.run_ends import AttemptResult
from timewright.ports import AuditEntry, RunChange, StoredObject, Transaction

PROVIDER = "provider"
MAX_ERROR_CHARS = 200

ProviderKey = tuple[str, str]


class EndedLease(Struct, frozen=True):
    """An ended lease: its settlement, the terms of its run, and the outcome."""

    settlement: Settlement
    under: RunTerms
    outcome: Outcome


def close_providers(
    tx: Transaction, catalog: BudgetCatalog, ended: Sequence[EndedLease], *, now: datetime
) -> list[Fact]:
    """Close providers until the instant that a result named; a longer close stays."""
    requested = [
        (one, one.outcome.not_before)
        for one in ended
        if isinstance(one.outcome, Failed) and one.outcome.not_before is not None
    ]
    if not requested:
        return []
    runs = [one.settlement.run for one, _ in requested]
    owners = find_owners(tx, runs, {one.settlement.run.id: one.under for one, _ in requested})
    windows: dict[ProviderKey, ProviderWindow] = {}
    for one, not_before in requested:
        run, schedule = one.settlement.run, owners[one.settlement.run.id].schedule
        until = min(not_before, now + one.under.terms.retry.max_wait)
        if schedule is None or not schedule.provider or until <= now:
            continue
        place = (run.namespace, schedule.provider)
        before = windows.get(place) or catalog.windows.get(place) or ProviderWindow()
        if before.until is None or before.until < until:
            reason = one.settlement.attempt.error[:MAX_ERROR_CHARS]
            windows[place] = ProviderWindow(until=until, reason=reason, actor=run.id)
    return _write(tx, windows, now=now) if windows else []


def _write(tx: Transaction, windows: Mapping[ProviderKey, ProviderWindow], *, now: datetime) -> list[Fact]:
    tx.lock("budgets")
    rows = []
    for (namespace, provider), window in sorted(windows.items(), key=lambda pair: pair[0]):
        last = tx.get_objects(PROVIDER, namespace=namespace, names=[provider])
        revision = last[0].revision + 1 if last else 1
        rows.append(
            StoredObject.of(PROVIDER, provider, window, namespace=namespace, revision=revision, at=now)
        )
    tx.put_objects(rows)
    tx.add_audit(
        [
            AuditEntry(
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


BUDGET = "budget"
MAX_REASON_CHARS = 500
# A budget is low when this share of it is used or reserved.
LOW_SHARE = 0.8


def select_affordable(
    tx: Transaction, runs: Sequence[Run], terms: Mapping[str, RunTerms], *, now: datetime, hold: bool = True
) -> SpendingPlan:
    """Split runs into those within their budgets and those to defer; locks the accounts until the commit."""
    catalog = tx.read_budgets(needed=lambda: _any_budgeted(terms))
    applicable = {} if catalog.is_empty else _applicable_budgets(tx, catalog, runs, terms)
    if not applicable:
        return SpendingPlan(granted=tuple(runs))
    places = [place for load in applicable.values() for place in load.account_keys(now)]
    accounts = tx.get_accounts(places, lock=True) if hold else tx.get_accounts(places)
    return plan_spending(runs, applicable=applicable, accounts=accounts, now=now)


def defer_runs(tx: Transaction, deferred: Sequence[Deferral], *, now: datetime) -> list[RunDeferred]:
    """Defer runs until an instant, with the reason; that costs no attempt."""
    if not deferred:
        return []
    changes = {
        one.run.id: RunChange(
            replace(one.run, fire_at=one.until, reason=one.reason[:MAX_REASON_CHARS]),
            one.run.state,
            one.run.fence,
        )
        for one in deferred
    }
    kept = tx.change_runs(list(changes.values()))
    return [
        RunDeferred(reason=change.run.reason, until=change.run.fire_at, **run_fields(change.run, now=now))
        for run_id, change in changes.items()
        if run_id in kept
    ]


def record_charges(tx: Transaction, charges: Iterable[Charge], *, granted: Sequence[Run]) -> None:
    """Write the charges of the leases that were granted."""
    leases = {run.id for run in granted}
    added = [one for one in charges if one.run_id in leases]
    tx.add_charges(added)
    if added and is_wanted(tx, "budget-low"):
        _tell_low_budgets(tx, added)


def _tell_low_budgets(tx: Transaction, added: Sequence[Charge]) -> None:
    """Tell the channels that ask for `budget-low` when a budget passes four fifths of its limit."""
    known = {one.account_name: one for found in tx.read_budgets().budgets.values() for one in found}
    for (account, period), usage in tx.get_accounts({(one.budget, one.period) for one in added}).items():
        budget = known.get(account)
        mine = [one for one in added if (one.budget, one.period) == (account, period)]
        after, new = usage.used + usage.held, sum(one.used + one.held for one in mine)
        if budget is None or not after - new < LOW_SHARE * budget.limit <= after:
            continue
        message = Message(
            type="budget-low",
            at=mine[-1].at,
            namespace=budget.namespace,
            subject=f"budget {budget.name}",
            sentence=f"budget {budget.name}: {after} of {budget.limit} {budget.unit} are used or reserved",
            remedy=command_line("budget", "get", budget.name, namespace=budget.namespace),
        )
        deliver_messages(tx, [message], identity=f"budget:{account}:{period}", now=mine[-1].at)


def may_change_budgets(
    tx: Transaction, answers: Mapping[str, AttemptResult], terms: Mapping[str, RunTerms]
) -> bool:
    """Whether the end of these leases may change a budget or a provider; usually it does not."""
    for answer in answers.values():
        outcome = answer.outcome
        if isinstance(outcome, Failed) and outcome.not_before is not None:
            return True

    def may_matter() -> bool:
        return any(answer.outcome.cost is not None for answer in answers.values()) or _any_budgeted(terms)

    return not tx.read_budgets(needed=may_matter).is_empty


def settle_charges(tx: Transaction, ended: Sequence[EndedLease], *, now: datetime) -> list[Fact]:
    """Write what ended leases cost, and close the providers that asked to be left alone."""
    catalog = tx.read_budgets()
    facts = close_providers(tx, catalog, ended, now=now)
    if not catalog.budgets:
        return facts
    budgets = {budget.account_name: budget for found in catalog.budgets.values() for budget in found}
    by_lease = {(one.settlement.run.id, one.settlement.attempt.fence): one for one in ended}
    charges = chain.from_iterable(tx.get_run_rows(Charge, {i for i, _ in by_lease}).values())
    still_open = [c for c in charges if c.open and (c.run_id, c.fence) in by_lease]
    tx.close_charges({c: _settled_charge(c, budgets, by_lease[c.run_id, c.fence]) for c in still_open})
    tx.add_charges(_unplanned_charges(tx, catalog, ended, taken={(c.run_id, c.budget) for c in still_open}))
    return facts


def check_budget_names(tx: Transaction, schedules: Iterable[Schedule]) -> None:
    """Raise if a schedule names an unknown budget, or its estimate exceeds the limit of one."""
    named = [schedule for schedule in schedules if schedule.budgets]
    if not named:
        return
    tx.lock("budgets")
    catalog = tx.read_budgets()
    for schedule in named:
        existing = {budget.name: budget for budget in catalog.budgets.get(schedule.namespace, ())}
        for name in schedule.budgets:
            if name not in existing:
                raise _unknown_budget(name, existing)
            _check_estimate(schedule, existing[name])


def _any_budgeted(terms: Mapping[str, RunTerms]) -> bool:
    """Whether one of the schedules names a budget or a provider."""
    schedules = {id(one.schedule): one.schedule for one in terms.values()}
    return any(one is not None and (one.budgets or one.provider) for one in schedules.values())


def _applicable_budgets(
    tx: Transaction, catalog: BudgetCatalog, runs: Sequence[Run], terms: Mapping[str, RunTerms]
) -> dict[str, ApplicableBudgets]:
    owners = find_owners(tx, runs, terms)
    found = {
        run.id: catalog.applicable_budgets(
            owners[run.id].schedule,
            terms[run.id].terms.target,
            namespace=run.namespace,
            principal=owners[run.id].principal,
            queue=run.queue,
        )
        for run in runs
    }
    return {run_id: load for run_id, load in found.items() if load is not None}


def _settled_charge(one: Charge, budgets: Mapping[str, Budget], ended: EndedLease) -> Charge:
    budget = budgets.get(one.budget)
    if budget is None:
        return replace(one, used=one.held, held=0, open=False)
    return settle_charge(one, budget, ended.settlement.attempt.cost, ended.outcome)


def _unplanned_charges(
    tx: Transaction, catalog: BudgetCatalog, ended: Sequence[EndedLease], *, taken: set[tuple[str, str]]
) -> list[Charge]:
    """Charges for reported costs of budgets that did not apply when the run was leased."""
    reporting = [one for one in ended if one.settlement.attempt.cost is not None]
    if not reporting:
        return []
    applicable = _applicable_budgets(
        tx,
        catalog,
        [one.settlement.run for one in reporting],
        {o.settlement.run.id: o.under for o in reporting},
    )
    found: list[Charge] = []
    for one in reporting:
        attempt, load = one.settlement.attempt, applicable.get(one.settlement.run.id)
        for budget in load.budgets if load is not None and attempt.cost is not None else ():
            amount = budget.amount_of(attempt.cost) if attempt.cost is not None else None
            if amount is not None and (attempt.run_id, budget.account_name) not in taken:
                found.append(
                    Charge(
                        run_id=attempt.run_id,
                        fence=attempt.fence,
                        budget=budget.account_name,
                        period=budget.period_at(attempt.leased_at).start,
                        at=attempt.leased_at,
                        used=amount,
                    )
                )
    return found


def _check_estimate(schedule: Schedule, budget: Budget) -> None:
    wanted = expected_amount(budget, schedule.estimate)
    if budget.unit is not Unit.REQUESTS and wanted > budget.limit:
        raise InvalidInput(
            f"the estimate of one attempt, {budget.format_amount(wanted)}, exceeds budget {budget.name}"
            f" with {budget.format_amount(budget.limit)}",
            field="estimate",
            value=wanted,
            rule="the estimate of an attempt is at most the limit of each budget",
            fix="lower the estimate, or raise the budget",
        )


def _unknown_budget(name: str, existing: Iterable[str]) -> NotFound:
    listed = ", ".join(sorted(existing)[:5])
    return NotFound(
        f"no budget {name!r}",
        field="budgets",
        value=name,
        rule="the name of a budget in the namespace of the schedule",
        fix=f"use one of {listed}" if listed else f"create it first: budget set {name}",
    )
