"""The quick fault scenarios; `python3 dev.py faults` runs all of them."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.faults import __main__ as command
from tests.faults.scenario import CannotRun, CoveredFault, FaultEnvironment, FaultScenario

ROOT = Path(__file__).resolve().parents[2]
QUICK = [scenario for scenario in command.SCENARIOS if isinstance(scenario, FaultScenario) and scenario.quick]
COVERED = [scenario for scenario in command.SCENARIOS if isinstance(scenario, CoveredFault)]


@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_a_quick_scenario_meets_its_expectation(
    scenario: FaultScenario, environment: FaultEnvironment
) -> None:
    # Mounting needs root; without it the scenario must say so.
    may_not_mount = pytest.raises(CannotRun, match="mount") if needs_root(scenario) else nullcontext()
    with may_not_mount:
        assert scenario.run(environment)


def needs_root(scenario: FaultScenario) -> bool:
    return scenario.name == "read-only" and os.geteuid() != 0


@pytest.mark.parametrize("scenario", COVERED, ids=lambda scenario: scenario.name)
def test_the_tests_that_cover_a_fault_exist(scenario: CoveredFault) -> None:
    for test in scenario.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_scenario_is_documented_with_its_row() -> None:
    page = (ROOT / "docs" / "test" / "faults.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| ([A-HP]\d+(?:, [A-HP]\d+)*) \| `([a-z-]+)` \|", page, re.MULTILINE))
    assert shown == {(scenario.row, scenario.name) for scenario in command.SCENARIOS}


def test_a_failed_scenario_is_reported_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(environment: FaultEnvironment) -> str:
        raise AssertionError("unexpected result")

    def cannot(environment: FaultEnvironment) -> str:
        raise CannotRun("not supported")

    kept: dict[str, Any] = {"row": "Z1", "action": "wait", "expected": "ok"}
    scenarios = (
        FaultScenario(name="failing", run=fails, **kept),
        FaultScenario(name="unsupported", run=cannot, **kept),
        FaultScenario(name="passing", run=lambda environment: "ok", **kept),
    )
    monkeypatch.setattr(command, "SCENARIOS", scenarios)
    assert command.main([]) == 1
    output = capsys.readouterr().out
    assert "FAILED: failing (row Z1): AssertionError: unexpected result" in output
    assert "NOT RUN: unsupported (row Z1): not supported" in output
    assert "3 scenarios in 0 s: 1 ok, 1 FAILED, 1 NOT RUN" in output
    assert command.main(["--only", "passing"]) == 0
