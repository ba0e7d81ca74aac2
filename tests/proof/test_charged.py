"""Budgets are checked against their charges: what adds up passes, and every kind of damage is named."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from timewright.proof import History, check
from timewright.proof.rows import AccountRow, AttemptRow, ChargeRow, RunRow

ACCOUNT = AccountRow(budget="default/day", period=0, used=7, held=4)
PRUNED = {"pruned_to": "run_1"}
CHARGES = (
    ChargeRow(run_id="a", fence=1, budget="default/day", period=0, used=5, held=0, open=False),
    ChargeRow(run_id="b", fence=2, budget="default/day", period=0, used=2, held=0, open=False),
    ChargeRow(run_id="c", fence=1, budget="default/day", period=0, used=0, held=4, open=True),
)


def attempt(run_id: str, fence: int) -> AttemptRow:
    return AttemptRow(
        run_id=run_id,
        fence=fence,
        number=fence,
        leased_at=0,
        lease_until=9,
        ended_at=1,
        outcome="succeeded",
        charged=True,
    )


WHOLE = History(
    accounts=(ACCOUNT,),
    charges=CHARGES,
    attempts=(attempt("a", 1), attempt("b", 2)),
    runs=(
        RunRow(id="c", namespace="default", planned_at=0, fire_at=0, state="leased", fence=1, created_at=0),
    ),
)


def found(account: AccountRow = ACCOUNT, charges: Any = CHARGES, **fields: Any) -> list[str]:
    history = replace(WHOLE, accounts=(account,), charges=charges, **fields)
    return [one.message for one in check(history, now=1, only=["I42"]).violations]


def test_an_account_that_is_the_sum_of_its_charges_is_whole() -> None:
    assert found() == []
    assert found(charges=CHARGES[1:], meta=PRUNED) == []


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
    assert found(replace(ACCOUNT, used=100), meta=PRUNED) == []
    assert found(replace(ACCOUNT, used=6), meta=PRUNED)


@pytest.mark.parametrize("part", [{"since": 5}, {"cut": True}, {"charges": None}])
def test_part_of_a_history_is_not_judged_and_says_so(part: dict[str, Any]) -> None:
    broken = replace(ACCOUNT, used=8)
    (finding,) = check(replace(WHOLE, accounts=(broken,), **part), now=1, only=["I42"]).findings
    assert (finding.count, bool(finding.not_checked)) == (0, True)
