"""Each kind of damage is found by its invariant."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.conformance.support.databases import Database
from tests.verification.busy_day import checked
from tests.verification.damage import damaged
from tests.verification.damage_cases import DAMAGE
from timewright.core.moments import to_micros
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.testing.bench import Bench
from timewright.verification.checker import check


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


def test_a_lease_after_its_deadline_is_found() -> None:
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="1m", deadline="30s")
    bench.advance("3m10s")
    history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _facts: None))
    now, first, *rest = to_micros(bench.now), *history.attempts
    late = replace(first, leased_at=first.leased_at + 40_000_000)

    assert check(history, now=now).holds
    found = check(replace(history, attempts=(late, *rest)), now=now, only=["I62"]).violations
    assert [violation.invariant for violation in found] == ["I62"]
