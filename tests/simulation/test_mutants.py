"""Every mutant is detected, or the documentation says why its guard is redundant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.command import find_killing_seed
from tests.simulation.mutants.catalog import BY_NAME, MUTANTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test" / "simulation.md"
SEEN = [mutant.name for mutant in MUTANTS if not mutant.redundant]
UNSEEN = {mutant.name: mutant.redundant for mutant in MUTANTS if mutant.redundant}


@pytest.mark.parametrize("name", SEEN)
def test_a_mutant_is_detected_within_fifty_seeds_by_its_invariant(name: str) -> None:
    found = find_killing_seed(name)
    assert found is not None
    assert found[1].split()[0] in BY_NAME[name].broken_invariants


@pytest.mark.parametrize("name", UNSEEN)
def test_redundant_guards_are_documented_with_their_reason(name: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert name in page
    assert UNSEEN[name] in page


def test_at_least_twenty_five_mutants_are_detected() -> None:
    assert len(SEEN) >= 25
