"""Invariants of budgets: accounts equal their charges, and no lease exceeds its budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant
from timewright.verification.rows import AuditRow, BudgetAccountRow, BudgetChargeRow, JsonObject, RunRow
from timewright.verification.view import HistoryView, parse_json_object


@invariant("I42", "budget accounts match their charges", unit="charges")
def every_account_is_the_sum_of_its_charges(view: HistoryView, coverage: Coverage) -> Violations:
    """Every budget account is the sum of its charges, and a finished lease reserves nothing."""
    history = view.history
    if history.since is not None or history.cut or history.charges is None:
        coverage.not_checked_because = "accounts also include charges outside the rows that were read"
        return
    coverage.count = len(history.charges)
    yield from _check_sums(history.charges, view)
    yield from _check_owners(history.charges, view)


def _check_sums(charges: Sequence[BudgetChargeRow], view: HistoryView) -> Violations:
    """Compare accounts with their charges; after pruning, an account may exceed the remaining charges."""
    pruned = bool(view.history.meta.get("pruned_to"))
    used: defaultdict[tuple[str, int], int] = defaultdict(int)
    held: defaultdict[tuple[str, int], int] = defaultdict(int)
    for charge in charges:
        used[charge.budget, charge.period] += charge.used
        held[charge.budget, charge.period] += charge.held
    known = {(account.budget, account.period): account for account in view.history.accounts}
    for place in sorted(known.keys() | used.keys()):
        account = known.get(place) or BudgetAccountRow(budget=place[0], period=place[1], used=0, held=0)
        fits = account.used >= used[place] if pruned else account.used == used[place]
        if not fits or account.held != held[place]:
            counted = f"{account.used} used and {account.held} held"
            message = f"{place[0]} has {counted}, but its charges sum to {used[place]} and {held[place]}"
            yield message, (account,)


def _check_owners(charges: Sequence[BudgetChargeRow], view: HistoryView) -> Violations:
    """Every charge belongs to a recorded lease; it is open, with a reservation, only while that lease is
    live.
    """
    over = {(attempt.run_id, attempt.fence) for attempt in view.history.attempts}
    leased = {(run.id, run.fence) for run in view.history.runs if run.state == "leased"}
    for charge in charges:
        lease = (charge.run_id, charge.fence)
        if lease not in over and lease not in leased:
            message = (
                f"{charge.budget}: charged for {charge.run_id}, fence {charge.fence}, which was never leased"
            )
        elif charge.open and lease not in leased:
            message = (
                f"{charge.budget} still reserves {charge.held} for {charge.run_id}, whose lease has ended"
            )
        elif charge.held and not charge.open:
            message = (
                f"{charge.budget} reserves {charge.held} for {charge.run_id}, although its charge is closed"
            )
        else:
            continue
        yield message, (charge,)


@invariant("I44", "no lease exceeds its budget", unit="leases under a budget")
def no_lease_beyond_a_budget(view: HistoryView, coverage: Coverage) -> Violations:
    """Every lease under a budget is charged to it, and none is granted once the budget is used up."""
    history = view.history
    if history.since is not None or history.cut or history.charges is None:
        coverage.not_checked_because = "budgets also include charges outside the rows that were read"
        return
    charged = {(charge.run_id, charge.fence, charge.budget) for charge in history.charges}
    for run in history.runs:
        for fence, leased_at, *_ in view.leases(run):
            for name in _named_budgets(view, run, leased_at):
                coverage.count += 1
                if (run.id, fence, f"{run.namespace}/{name}") not in charged:
                    yield f"run {run.id}, fence {fence}, was leased but not charged to {name}", (run,)
    by_period: defaultdict[tuple[str, int], list[BudgetChargeRow]] = defaultdict(list)
    for charge in history.charges:
        by_period[charge.budget, charge.period].append(charge)
    for (budget, period), charges in sorted(by_period.items()):
        limit, unit = _limit(view, budget, period)
        if limit is not None:
            yield from _check_spending(view, charges, limit=limit, at_once=unit == "requests")


def _named_budgets(view: HistoryView, run: RunRow, leased_at: int) -> set[str]:
    """The budgets that the run's schedule named at the lease; revisions within the skew must agree."""
    revisions = view.revisions.get(run.schedule_id, ())
    before = [one for one in revisions if one.at < leased_at - view.skew][-1:]
    around = [one for one in revisions if leased_at - view.skew <= one.at <= leased_at + view.skew]
    message = [_budgets_of(one.body) for one in (*before, *around)]
    return set.intersection(*message) if message else set()


def _budgets_of(body: JsonObject) -> set[str]:
    """The budgets of a schedule's runs; a workflow run charges none, because its steps do."""
    target = body.get("target")
    starts_steps = isinstance(target, dict) and target.get("kind") == "workflow"
    return set() if starts_steps else set(body.get("budgets", ()))


def _limit(view: HistoryView, budget: str, period: int) -> tuple[int | None, str]:
    """The highest limit of a budget in a period, and its unit; None if other terms of it changed."""
    namespace, _, name = budget.partition("/")
    lines = [line for line in view.audit.get(name, ()) if _is_about(line, namespace)]
    bodies = [(line.at, parse_json_object(line.after) or {}) for line in lines]
    if len({_counting_terms(body) for _, body in bodies}) != 1:
        return None, ""
    before = [body for at, body in bodies if at <= period - view.skew][-1:]
    later = [body for at, body in bodies if at > period - view.skew]
    return max(int(body.get("limit", 0)) for body in (*before, *later)), str(bodies[0][1].get("unit", ""))


def _is_about(line: AuditRow, namespace: str) -> bool:
    return line.namespace == namespace and line.action in ("budget.put", "budget.delete")


def _counting_terms(body: JsonObject) -> tuple[object, ...]:
    return tuple(body.get(field, "") for field in ("unit", "period", "zone", "currency"))


def _check_spending(
    view: HistoryView, charges: Sequence[BudgetChargeRow], *, limit: int, at_once: bool
) -> Violations:
    """Requests are charged at the lease; other units are known when the lease ends."""
    leases = {(charge.run_id, charge.fence): charge for charge in charges}
    lease_times = [
        (began, ended, leases[run_id, fence])
        for run_id in {charge.run_id for charge in charges}
        if (run := view.runs.get(run_id)) is not None
        for fence, began, ended, _ in view.leases(run)
        if (run_id, fence) in leases
    ]
    if at_once and sum(charge.used for charge in charges) > limit:
        used = sum(charge.used for charge in charges)
        message = f"{charges[0].budget}: {used} used from {format_instant(charges[0].period)} on"
        yield f"{message}, but the limit is {limit}", tuple(charges)
    for began, _, charge in lease_times if not at_once else ():
        known = sum(c.used for _, ended, c in lease_times if ended is not None and ended < began - view.skew)
        if known >= limit:
            message = f"{charge.budget}: {known} of {limit} were used when {charge.run_id} was leased"
            yield f"{message} at {format_instant(began)}", (charge,)
