"""Budgets add up: an account holds what its charges say, and a charge is one lease's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct


class AccountRow(Struct, frozen=True, kw_only=True):
    """How much of a budget was used in a period, and is held by what is under way."""

    budget: str
    period: int
    used: int
    held: int


class ChargeRow(Struct, frozen=True, kw_only=True):
    """What one lease took from one budget; one that is open is not known yet."""

    run_id: str
    fence: int
    budget: str
    period: int
    used: int
    held: int
    open: bool


def accounts_that_do_not_add_up(
    accounts: Iterable[AccountRow], charges: Iterable[ChargeRow], *, pruned: bool
) -> Iterator[str]:
    """Every account is the sum of its charges; where history was pruned, no less than what is left."""
    used: defaultdict[tuple[str, int], int] = defaultdict(int)
    held: defaultdict[tuple[str, int], int] = defaultdict(int)
    for charge in charges:
        used[charge.budget, charge.period] += charge.used
        held[charge.budget, charge.period] += charge.held
    known = {(account.budget, account.period): account for account in accounts}
    for place in sorted(known.keys() | used.keys()):
        account = known.get(place) or AccountRow(budget=place[0], period=place[1], used=0, held=0)
        fits = account.used >= used[place] if pruned else account.used == used[place]
        if not fits or account.held != held[place]:
            counted = f"{account.used} used and {account.held} held"
            yield f"{place[0]} counts {counted}, and its charges are {used[place]} and {held[place]}"


def charges_of_nobody(
    charges: Iterable[ChargeRow], *, ended: Iterable[tuple[str, int]], live: Iterable[tuple[str, int]]
) -> Iterator[str]:
    """A charge names a lease that there was; it is open only while that lease is live, and then holds."""
    over, leased = set(ended), set(live)
    for charge in charges:
        lease = (charge.run_id, charge.fence)
        if lease not in over and lease not in leased:
            yield f"{charge.budget} was charged for {charge.run_id}, fence {charge.fence}, never leased so"
        elif charge.open and lease not in leased:
            yield f"{charge.budget} still holds {charge.held} for {charge.run_id}, whose lease is over"
        elif charge.held and not charge.open:
            yield f"{charge.budget} holds {charge.held} for {charge.run_id}, although it is known"
