"""`timewright verify`: its output and exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from tests.verification.busy_day import START
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.clock import ManualClock


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[OperationsHarness]:
    clock = ManualClock(START)
    store = SqliteStore(tmp_path / "store.db", clock=clock)
    harness = OperationsHarness(store=store, clock=clock)
    harness.ask("schedule create", name="job", every="10m", note="x")
    harness.advance(hours=1)
    yield harness
    store.close()


@pytest.fixture
def broken(harness: OperationsHarness, tmp_path: Path) -> OperationsHarness:
    """The same store with one occurrence deleted."""
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("DELETE FROM runs WHERE id = (SELECT id FROM runs ORDER BY id LIMIT 1 OFFSET 2)")
    connection.close()
    return harness


def test_verify_exits_with_0_without_violations(harness: OperationsHarness) -> None:
    said = invoke(harness, "verify")
    assert said.code == 0
    assert "✔ I1" in said.out
    assert "6 occurrences, 6 runs, 6 ended leases of 1 schedule" in said.lines[-1]
    assert "needs the events of a simulation" in said.out


def test_a_violation_is_printed_with_its_rows_and_exits_with_1(broken: OperationsHarness) -> None:
    said = invoke(broken, "verify")
    assert said.code == 1
    assert "✘ I3" in said.out
    assert "job: nothing is recorded for 2026-03-29T00:30:00Z" in said.out
    assert "cursor: 2026-03-29T01:00:00Z" in said.out
    assert "promises broken" in said.lines[-1]


def test_only_the_named_invariants_are_checked(broken: OperationsHarness) -> None:
    said = invoke(broken, "verify", "--only", "I1", "--only", "i14", "-o", "json")
    assert said.code == 0
    assert [one["promise"] for one in said.data["promises"]] == ["I1", "I14"]
    assert invoke(broken, "verify", "--only", "I3", "-o", "json").code == 1


def test_since_checks_only_newer_runs(broken: OperationsHarness) -> None:
    said = invoke(broken, "verify", "--since", "2026-03-29T00:35:00Z", "-o", "json")
    assert said.code == 0
    assert said.data["runs"] == 3
    assert said.data["since"] == "2026-03-29T00:35:00Z"


def test_an_unknown_invariant_is_refused(harness: OperationsHarness) -> None:
    said = invoke(harness, "verify", "--only", "I99")
    assert said.code == 1
    assert "unknown invariant 'I99'" in said.err
    assert "I40" in said.err
