"""Budgets are checked against their charges: what adds up passes, and every kind of damage is named."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from timewright.proof.charged import AccountRow, ChargeRow, accounts_that_do_not_add_up, charges_of_nobody

ACCOUNT = AccountRow(budget="default/day", period=0, used=7, held=4)
CHARGES = (
    ChargeRow(run_id="a", fence=1, budget="default/day", period=0, used=5, held=0, open=False),
    ChargeRow(run_id="b", fence=2, budget="default/day", period=0, used=2, held=0, open=False),
    ChargeRow(run_id="c", fence=1, budget="default/day", period=0, used=0, held=4, open=True),
)
ENDED, LIVE = {("a", 1), ("b", 2)}, {("c", 1)}


def found(account: AccountRow = ACCOUNT, charges: Any = CHARGES, *, pruned: bool = False) -> list[str]:
    sums = accounts_that_do_not_add_up([account], charges, pruned=pruned)
    return [*sums, *charges_of_nobody(charges, ended=ENDED, live=LIVE)]


def test_an_account_that_is_the_sum_of_its_charges_is_whole() -> None:
    assert found() == []
    assert found(charges=CHARGES[1:], pruned=True) == []


@pytest.mark.parametrize(
    ("account", "charges", "said"),
    [
        (replace(ACCOUNT, used=8), CHARGES, "counts 8 used and 4 held, and its charges are 7 and 4"),
        (replace(ACCOUNT, held=0), CHARGES, "counts 7 used and 0 held"),
        (replace(ACCOUNT, period=9, used=0, held=0), CHARGES, "counts 0 used and 0 held"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], fence=2)), "never leased so"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], run_id="a")), "whose lease is over"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], open=False)), "although it is known"),
    ],
)
def test_what_does_not_add_up_is_named(account: AccountRow, charges: Any, said: str) -> None:
    (first, *_) = found(account, charges)
    assert said in first


def test_pruned_history_explains_a_larger_account_and_not_a_smaller_one() -> None:
    assert found(replace(ACCOUNT, used=100), pruned=True) == []
    assert found(replace(ACCOUNT, used=6), pruned=True)
