"""Follow-ups are checked against upstream ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from tests.promises.schedule_outcomes import alarms, at
from timewright.core.moments import to_micros
from timewright.operations.health.verify import read_history
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed
from timewright.verification import History, check

SECOND = 1_000_000


@pytest.fixture
def lived() -> tuple[History, int]:
    """An hour in which one schedule follows another."""
    harness = OperationsHarness()
    harness.ask("schedule create", name="load", every="5m", note="x")
    harness.ask("schedule create", name="report", after="load", delay="20s", note="x")
    harness.advance(hours=1)
    return read_history(harness.context, since=None), to_micros(harness.now)


def broken(history: History, now: int) -> list[str]:
    return [violation.message for violation in check(history, now=now, only=["I41"]).violations]


def test_an_hour_of_follow_ups_passes(lived: tuple[History, int]) -> None:
    history, now = lived
    (finding,) = check(history, now=now, only=["I41"]).findings
    assert (finding.count, finding.checked) == (0, 11)


def test_missing_moved_and_extra_follow_ups_are_found(lived: tuple[History, int]) -> None:
    history, now = lived
    mine = next(row.id for row in history.schedules if row.name == "report")
    rows = [run for run in history.runs if run.schedule_id == mine]
    others = tuple(run for run in history.runs if run.schedule_id != mine)
    (said,) = broken(replace(history, runs=(*others, *rows[1:])), now)
    assert said.endswith("but no run followed")
    moved = replace(rows[3], planned_at=rows[3].planned_at + 100 * SECOND)
    told = broken(replace(history, runs=(*others, *rows[:3], moved, *rows[4:])), now)
    assert [one.partition(" ")[0] for one in told] == ["report:", "report:"]
    assert told[1].endswith("follows no end of load")
    twice = replace(rows[3], id="run_x", planned_at=rows[3].planned_at + 130 * SECOND)
    (said,) = broken(replace(history, runs=(*others, *rows, twice)), now)
    assert said.endswith("follows no end of load")


def test_a_run_that_was_reset_may_end_together_with_one_that_is_followed() -> None:
    """Dense seed 110000309: I41. Both ended while the clock stood still, and the reset run came first."""
    bench = Bench()
    bench.call("schedule create", name="load", call="x", every="5m", overlap="allow")
    bench.call("schedule create", name="report", after="load", on="end", note="x")
    bench.target.script("load", fail(), succeed())
    bench.advance("5m")
    bench.clock.advance("5m")
    bench.call("run retry", run=bench.runs("load")[0].id)
    bench.advance("10s")

    first, second = bench.runs("load")
    assert first.finished_at == second.finished_at == at("12:10:00")
    assert [run.planned_at for run in bench.runs("report")] == [at("12:05:00"), at("12:10:00")]
    assert alarms(bench) == []
