"""Watches: every change is reported exactly once through crashes, and each guard of that is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulation.model.backends import MemoryBackend
from tests.simulation.verdict import SimulationResult, simulate, sum_counts
from tests.simulation.workload.watches import draw_watches, find_wrong_changes
from timewright.ledger import settle
from timewright.ledger.records import schedule_states

IS_FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
WORLDS = 2000 if IS_FULL else 200
MUTANT_WORLDS = 200
AT_ONCE = 20


def live(seed: int) -> SimulationResult:
    return simulate(draw_watches(seed), MemoryBackend(), find_more=find_wrong_changes)


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
def test_every_change_fires_exactly_once_through_crashes(first: int, witness: Any) -> None:
    for seed in range(first, first + AT_ONCE):
        witness(live(seed), replay=f"tests/simulation/test_watches.py, seed {seed}")


def test_the_worlds_of_watches_are_full_of_crashes_and_changes() -> None:
    results = [live(seed) for seed in range(10)]
    counts = sum_counts(results)
    assert counts["crash injected"] >= 20
    assert counts["skipped: quiet"] >= 50
    assert counts["watch reported a change"] >= 20


def ignore_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge answers of lost leases too, and remember what they saw."""
    monkeypatch.setattr(schedule_states, "_is_current", lambda run, result: run is not None)


def write_the_state_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember a change although its run failed."""
    real = schedule_states._next_state

    def remembers(schedule: Any, result: Any, judged: Any, before: Any, *, now: Any) -> Any:
        after = real(schedule, result, judged, before, now=now)
        is_failed = after is before and before.seen
        return schedule_states.KeptState(seen={"result.version": -1}) if is_failed else after

    monkeypatch.setattr(schedule_states, "_next_state", remembers)


def forget_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a change and do not remember it."""

    def save(tx: Any, states: Any, namespaces: Any, *, now: Any) -> None:
        firsts = {name: state for name, state in states.items() if state.seen.get("result.version") == 0}
        schedule_states.save_states(tx, firsts, namespaces, now=now)

    monkeypatch.setattr(settle, "save_states", save)


def fold_over_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count quiet runs in one row with the run before them, also if that one was not quiet."""
    real = schedule_states.fold_quiet_runs

    def fold(tx: Any, settled: Any, terms: Any) -> None:
        counted: Any = AllCounted(tx)
        real(counted, settled, terms)

    monkeypatch.setattr(schedule_states, "_follows", lambda row, run, schedule: True)
    monkeypatch.setattr(settle, "fold_quiet_runs", fold)


class AllCounted:
    """A transaction in which every run is counted, so that the next one replaces its row."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def get_runs(self, ids: Any) -> dict[str, Any]:
        return {key: replace(run, dropped=max(run.dropped, 1)) for key, run in self._tx.get_runs(ids).items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


MUTANTS = [ignore_the_fence, write_the_state_first, forget_the_state, fold_over_gaps]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_watch_without_one_of_its_guards_is_detected(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(not live(seed).holds for seed in range(MUTANT_WORLDS))
