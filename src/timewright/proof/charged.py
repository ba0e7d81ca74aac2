"""Budgets add up: an account holds what its charges say, and a charge is one lease's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.rows import AccountRow, AuditRow, ChargeRow, Plain, RunRow
from timewright.proof.spans import spelled
from timewright.proof.view import View, read_plain

Broken = Iterator[tuple[str, tuple[Struct, ...]]]


@invariant("I42", "budgets add up", counts="charges")
def every_account_is_the_sum_of_its_charges(view: View, seen: Seen) -> Broken:
    """Every account of a budget is the sum of what leases took, and a lease holds nothing once it is over."""
    history = view.history
    if history.since is not None or history.cut or history.charges is None:
        seen.missing = "accounts also count what was taken by others than those that were looked at"
        return
    seen.count = len(history.charges)
    yield from _sums(history.charges, view)
    yield from _owners(history.charges, view)


def _sums(charges: Sequence[ChargeRow], view: View) -> Broken:
    """Where history was pruned, an account is no less than what is left."""
    pruned = bool(view.history.meta.get("pruned_to"))
    used: defaultdict[tuple[str, int], int] = defaultdict(int)
    held: defaultdict[tuple[str, int], int] = defaultdict(int)
    for charge in charges:
        used[charge.budget, charge.period] += charge.used
        held[charge.budget, charge.period] += charge.held
    known = {(account.budget, account.period): account for account in view.history.accounts}
    for place in sorted(known.keys() | used.keys()):
        account = known.get(place) or AccountRow(budget=place[0], period=place[1], used=0, held=0)
        fits = account.used >= used[place] if pruned else account.used == used[place]
        if not fits or account.held != held[place]:
            counted = f"{account.used} used and {account.held} held"
            said = f"{place[0]} counts {counted}, and its charges are {used[place]} and {held[place]}"
            yield said, (account,)


def _owners(charges: Sequence[ChargeRow], view: View) -> Broken:
    """A charge names a lease that there was; it is open only while that lease is live, and then holds."""
    over = {(attempt.run_id, attempt.fence) for attempt in view.history.attempts}
    leased = {(run.id, run.fence) for run in view.history.runs if run.state == "leased"}
    for charge in charges:
        lease = (charge.run_id, charge.fence)
        if lease not in over and lease not in leased:
            said = f"{charge.budget} was charged for {charge.run_id}, fence {charge.fence}, never leased so"
        elif charge.open and lease not in leased:
            said = f"{charge.budget} still holds {charge.held} for {charge.run_id}, whose lease is over"
        elif charge.held and not charge.open:
            said = f"{charge.budget} holds {charge.held} for {charge.run_id}, although it is known"
        else:
            continue
        yield said, (charge,)


@invariant("I44", "nothing is leased beyond its budget", counts="leases under a budget")
def no_lease_beyond_a_budget(view: View, seen: Seen) -> Broken:
    """Every lease under a budget is charged to it, and none is granted where nothing was left of it."""
    history = view.history
    if history.since is not None or history.cut or history.charges is None:
        seen.missing = "budgets also count what was taken by others than those that were looked at"
        return
    charged = {(charge.run_id, charge.fence, charge.budget) for charge in history.charges}
    for run in history.runs:
        for fence, leased_at, *_ in view.leases(run):
            for name in _named(view, run, leased_at):
                seen.count += 1
                if (run.id, fence, f"{run.namespace}/{name}") not in charged:
                    yield f"run {run.id}, fence {fence}, was leased and not charged to {name}", (run,)
    of_place: defaultdict[tuple[str, int], list[ChargeRow]] = defaultdict(list)
    for charge in history.charges:
        of_place[charge.budget, charge.period].append(charge)
    for (budget, period), charges in sorted(of_place.items()):
        limit, unit = _limit(view, budget, period)
        if limit is not None:
            yield from _spent(view, charges, limit=limit, at_once=unit == "requests")


def _named(view: View, run: RunRow, leased_at: int) -> set[str]:
    """The budgets that the schedule of a run named when it was leased, as far as dates are sure."""
    revisions = view.revisions.get(run.schedule_id, ())
    before = [one for one in revisions if one.at < leased_at - view.skew][-1:]
    around = [one for one in revisions if leased_at - view.skew <= one.at <= leased_at + view.skew]
    said = [_draws_on(one.body) for one in (*before, *around)]
    return set.intersection(*said) if said else set()


def _draws_on(body: Plain) -> set[str]:
    """What the runs of a schedule draw on; the run of a workflow only starts its steps, and they do."""
    target = body.get("target")
    starts_steps = isinstance(target, dict) and target.get("kind") == "workflow"
    return set() if starts_steps else set(body.get("budgets", ()))


def _limit(view: View, budget: str, period: int) -> tuple[int | None, str]:
    """The most that a budget allowed in a period, and its unit; nothing where it was changed otherwise."""
    namespace, _, name = budget.partition("/")
    lines = [line for line in view.audit.get(name, ()) if _is_about(line, namespace)]
    bodies = [(line.at, read_plain(line.after) or {}) for line in lines]
    if len({_counts(body) for _, body in bodies}) != 1:
        return None, ""
    before = [body for at, body in bodies if at <= period - view.skew][-1:]
    later = [body for at, body in bodies if at > period - view.skew]
    return max(int(body.get("limit", 0)) for body in (*before, *later)), str(bodies[0][1].get("unit", ""))


def _is_about(line: AuditRow, namespace: str) -> bool:
    return line.namespace == namespace and line.action in ("budget.put", "budget.delete")


def _counts(body: Plain) -> tuple[object, ...]:
    return tuple(body.get(field, "") for field in ("unit", "period", "zone", "currency"))


def _spent(view: View, charges: Sequence[ChargeRow], *, limit: int, at_once: bool) -> Broken:
    """A request is used when it is leased; all else is known when the lease is over."""
    leases = {(charge.run_id, charge.fence): charge for charge in charges}
    spells = [
        (began, ended, leases[run_id, fence])
        for run_id in {charge.run_id for charge in charges}
        if (run := view.runs.get(run_id)) is not None
        for fence, began, ended, _ in view.leases(run)
        if (run_id, fence) in leases
    ]
    if at_once and sum(charge.used for charge in charges) > limit:
        used = sum(charge.used for charge in charges)
        said = f"{charges[0].budget}: {used} used from {spelled(charges[0].period)} on"
        yield f"{said}, and {limit} were allowed", tuple(charges)
    for began, _, charge in spells if not at_once else ():
        known = sum(c.used for _, ended, c in spells if ended is not None and ended < began - view.skew)
        if known >= limit:
            said = f"{charge.budget}: {known} of {limit} were used when {charge.run_id} was leased"
            yield f"{said} at {spelled(began)}", (charge,)
