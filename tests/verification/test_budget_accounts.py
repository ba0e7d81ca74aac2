"""Budget accounts are checked against their charges."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from timewright.verification import History, check
from timewright.verification.rows import AttemptRow, BudgetAccountRow, BudgetChargeRow, RunRow

ACCOUNT = BudgetAccountRow(budget="default/day", period=0, used=7, held=4)
PRUNED = {"pruned_to": "run_1"}
CHARGES = (
    BudgetChargeRow(run_id="a", fence=1, budget="default/day", period=0, used=5, held=0, open=False),
    BudgetChargeRow(run_id="b", fence=2, budget="default/day", period=0, used=2, held=0, open=False),
    BudgetChargeRow(run_id="c", fence=1, budget="default/day", period=0, used=0, held=4, open=True),
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


def found(account: BudgetAccountRow = ACCOUNT, charges: Any = CHARGES, **fields: Any) -> list[str]:
    history = replace(WHOLE, accounts=(account,), charges=charges, **fields)
    return [one.message for one in check(history, now=1, only=["I42"]).violations]


def test_an_account_equal_to_its_charges_passes() -> None:
    assert found() == []
    assert found(charges=CHARGES[1:], meta=PRUNED) == []


@pytest.mark.parametrize(
    ("account", "charges", "said"),
    [
        (replace(ACCOUNT, used=8), CHARGES, "has 8 used and 4 held, but its charges sum to 7 and 4"),
        (replace(ACCOUNT, held=0), CHARGES, "has 7 used and 0 held"),
        (replace(ACCOUNT, period=9, used=0, held=0), CHARGES, "has 0 used and 0 held"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], fence=2)), "which was never leased"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], run_id="a")), "whose lease has ended"),
        (ACCOUNT, (*CHARGES[:2], replace(CHARGES[2], open=False)), "although its charge is closed"),
    ],
)
def test_accounts_that_differ_from_their_charges_are_found(
    account: BudgetAccountRow, charges: Any, said: str
) -> None:
    (first, *_) = found(account, charges)
    assert said in first


def test_pruned_history_explains_a_larger_account_and_not_a_smaller_one() -> None:
    assert found(replace(ACCOUNT, used=100), meta=PRUNED) == []
    assert found(replace(ACCOUNT, used=6), meta=PRUNED)


@pytest.mark.parametrize("part", [{"since": 5}, {"cut": True}, {"charges": None}])
def test_budgets_are_not_checked_on_a_partial_history(part: dict[str, Any]) -> None:
    broken = replace(ACCOUNT, used=8)
    (finding,) = check(replace(WHOLE, accounts=(broken,), **part), now=1, only=["I42"]).findings
    assert (finding.count, bool(finding.not_checked_because)) == (0, True)
