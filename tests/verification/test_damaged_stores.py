"""Each kind of damage is found by its invariant."""

from __future__ import annotations

import pytest

from tests.conformance.support.databases import Database
from tests.verification.busy_day import checked
from tests.verification.damage import damaged
from tests.verification.damage_cases import DAMAGE


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_rows_are_found_by_their_invariant(name: str, busy: Database) -> None:
    number, message, statements = DAMAGE[name]
    with damaged(busy, *statements) as history:
        (finding,) = checked(history, number).findings
    assert finding.count >= 1
    assert any(message in violation.message for violation in finding.violations), finding.violations
    assert all(violation.rows for violation in finding.violations)


def test_a_rolled_back_damage_leaves_no_violation(busy: Database) -> None:
    with damaged(busy) as history:
        assert checked(history).holds
