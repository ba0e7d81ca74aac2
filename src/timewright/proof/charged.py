"""Budgets add up: an account holds what its charges say, and a charge is one lease's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from timewright.proof.checking import Seen, invariant
from timewright.proof.rows import AccountRow, ChargeRow
from timewright.proof.view import View

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
