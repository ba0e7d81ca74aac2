"""Invariants between schedules: needs, budgets, output and follow-ups."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright.core.moments import to_micros
from timewright.operations.health.verify import read_history
from timewright.testing.targets import fail, succeed
from timewright.verification import History, check
from timewright.verification.rows import SimulationEvent

MINUTE = 60_000_000


def broken(history: History, *only: str, now: int = 0) -> list[str]:
    return [violation.message for violation in check(history, now=now, only=only).violations]


def lived(harness: OperationsHarness, *only: str) -> list[str]:
    return broken(read_history(harness.context, since=None), *only, now=to_micros(harness.now))


@pytest.fixture
def needy() -> OperationsHarness:
    """An hour of a schedule that needs a fresh end of another, and of one that gives up waiting."""
    harness = OperationsHarness()
    harness.ask("schedule create", name="load", every="20m", note="x")
    need: dict[str, Any] = {"schedule": "load", "within": "5m", "wait": "12m"}
    harness.ask("schedule create", name="report", every="10m", needs=[need], note="x")
    harness.ask("schedule create", name="anyway", every="7m", needs=[{**need, "else": "run"}], note="x")
    harness.advance(hours=1)
    return harness


def test_runs_that_wait_for_their_needs_pass(needy: OperationsHarness) -> None:
    history = read_history(needy.context, since=None)
    (finding,) = check(history, now=to_micros(needy.now), only=["I43"]).findings
    assert finding.count == 0
    assert finding.checked > 5


@pytest.mark.parametrize("name", ["report", "anyway"])
def test_a_run_started_without_its_needs_is_found(needy: OperationsHarness, name: str) -> None:
    history = read_history(needy.context, since=None)
    mine = next(row.id for row in history.schedules if row.name == name)
    early = {run.id: run.planned_at - 10 * MINUTE for run in history.runs if run.schedule_id == mine}
    attempts = tuple(
        replace(one, leased_at=early[one.run_id]) if one.run_id in early else one for one in history.attempts
    )
    said = broken(replace(history, attempts=attempts), "I43", now=to_micros(needy.now))
    assert said
    assert all(one.endswith("without an end of load") for one in said)


@pytest.fixture
def spending() -> OperationsHarness:
    """An hour under a budget of four requests and one of a thousand tokens, both used up."""
    harness = OperationsHarness()
    harness.ask("budget set", budget="calls", unit="requests", limit=4, period="1h")
    harness.ask("budget set", budget="tokens", unit="tokens", limit=1000, period="1h")
    both: dict[str, Any] = {"every": "5m", "overlap": "allow", "note": "x"}
    harness.ask("schedule create", name="caller", budgets=["calls"], **both)
    harness.ask("schedule create", name="writer", budgets=["tokens"], estimate={"tokens": 300}, **both)
    harness.advance(hours=1)
    return harness


def test_leases_within_their_budget_pass(spending: OperationsHarness) -> None:
    assert lived(spending, "I44") == []


def test_an_uncharged_lease_is_found(spending: OperationsHarness) -> None:
    history = read_history(spending.context, since=None)
    assert history.charges is not None
    found = broken(replace(history, charges=history.charges[1:]), "I44", now=to_micros(spending.now))
    assert [one.rpartition(" ")[0].endswith("was leased but not charged to") for one in found] == [True]


@pytest.mark.parametrize(("budget", "limit"), [("calls", 3), ("tokens", 600)])
def test_a_lease_beyond_its_budget_is_found(spending: OperationsHarness, budget: str, limit: int) -> None:
    history = read_history(spending.context, since=None)
    lowered = tuple(
        replace(line, after=re.sub(r'"limit":\d+', f'"limit":{limit}', line.after))
        if line.subject == budget
        else line
        for line in history.audit
    )
    said = broken(replace(history, audit=lowered), "I44", now=to_micros(spending.now))
    assert said
    assert all(one.startswith(f"default/{budget}: ") for one in said)


def test_output_written_after_the_result_is_found() -> None:
    note = SimulationEvent(kind="output", at=1, subject="run_a", fence=2, value=7, limit=14)
    assert broken(History(events=(replace(note, value=14),)), "I45") == []
    (said,) = broken(History(events=(note,)), "I45")
    assert said == "run run_a, fence 2, ended with 7 of 14 bytes of its output stored"


def test_a_retried_run_is_followed_once_even_after_pruning() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="load", every="10m", max_runs=1, retry={"max_attempts": 1}, note="x")
    harness.ask("schedule create", name="alarm", after={"schedule": "load", "on": "end"}, note="x")
    harness.bench.target.script("load", fail(), succeed())
    harness.advance(minutes=15)
    (failed,) = harness.ask("run list", schedule="load")["runs"]
    harness.advance(minutes=10)
    harness.ask("run retry", run=failed["id"])
    harness.advance(minutes=5)
    assert lived(harness, "I41") == []
    history = read_history(harness.context, since=None)
    (alarm,) = [row.id for row in history.schedules if row.name == "alarm"]
    (followed,) = [run for run in history.runs if run.schedule_id == alarm]
    assert followed.planned_at < to_micros(harness.now) - 10 * MINUTE
    gone = tuple(run for run in history.runs if run.id != followed.id)
    pruned = replace(history, runs=gone, meta={**history.meta, "pruned_to": followed.id})
    assert broken(pruned, "I41", now=to_micros(harness.now)) == []


def test_an_end_followed_twice_is_found() -> None:
    harness = OperationsHarness()
    harness.ask("schedule create", name="load", every="5m", note="x")
    harness.ask("schedule create", name="report", after="load", overlap="allow", note="x")
    harness.advance(minutes=30)
    history = read_history(harness.context, since=None)
    (mine,) = [row.id for row in history.schedules if row.name == "report"]
    row = [run for run in history.runs if run.schedule_id == mine][2]
    twice = replace(row, id="run_x", planned_at=row.planned_at + 1)
    (said,) = broken(replace(history, runs=(*history.runs, twice)), "I41", now=to_micros(harness.now))
    assert said.endswith("follows no end of load")
