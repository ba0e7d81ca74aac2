"""Every protocol with one thing wrong in it is found out, or it is written down why nothing can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from timewright.testing.simulate import killed_by
from timewright.testing.world.mutants import BY_NAME, MUTANTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"
SEEN = [mutant.name for mutant in MUTANTS if not mutant.redundant]
UNSEEN = {mutant.name: mutant.redundant for mutant in MUTANTS if mutant.redundant}


@pytest.mark.parametrize("name", SEEN)
def test_a_mutant_is_caught_within_fifty_seeds_by_a_promise_that_it_breaks(name: str) -> None:
    found = killed_by(name)
    assert found is not None
    assert found[1].split()[0] in BY_NAME[name].owners


@pytest.mark.parametrize("name", UNSEEN)
def test_a_guard_that_is_redundant_is_written_down_with_the_reason(name: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert name in page
    assert UNSEEN[name] in page


def test_there_are_at_least_twenty_five_mutants_that_are_caught() -> None:
    assert len(SEEN) >= 25
