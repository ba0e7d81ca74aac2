"""Schedules that are due next are preloaded during the sleep; nothing is decided before its instant."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from timewright.core.recurrence.triggers import every
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Http
from timewright.engine import sleep_plan
from timewright.errors import MissingExtra
from timewright.ledger.replan import Actor, pause
from timewright.ports import Target, Transaction
from timewright.ports.schedules import DueSchedules
from timewright.testing.bench import Bench

BY = Actor(name="tester")


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The instants for which schedules were preloaded."""
    looked: list[datetime] = []
    preload = sleep_plan.preload

    def note(tx: Transaction, which: DueSchedules) -> list[Schedule]:
        looked.append(which.until)
        return preload(tx, which)

    monkeypatch.setattr(sleep_plan, "preload", note)
    return looked


def test_schedules_due_after_the_sleep_are_preloaded_once(foreseen: list[datetime]) -> None:
    bench = Bench()
    bench.schedule("a", every("1m"))
    bench.loop.step()
    bench.loop.step()
    assert foreseen == [bench.now + timedelta(minutes=1)]
    assert bench.runs("a") == []


@pytest.mark.parametrize("ahead", [timedelta(milliseconds=20), timedelta(hours=1)])
def test_schedules_due_at_once_or_much_later_are_not_preloaded(
    foreseen: list[datetime], ahead: timedelta
) -> None:
    bench = Bench()
    bench.schedule("a", every("2h"))
    bench.clock.advance(timedelta(hours=2) - ahead)
    bench.loop.step()
    assert foreseen == []


def test_a_pause_of_a_preloaded_schedule_takes_effect(foreseen: list[datetime]) -> None:
    bench = Bench()
    schedule = bench.schedule("a", every("1m"))
    bench.loop.step()
    bench.clock.advance(seconds=59)
    pause(bench.store, schedule.id, ids=bench.ids, by=BY, now=bench.now)
    bench.advance(seconds=2)
    assert foreseen
    assert {run.state for run in bench.runs("a")} <= {RunState.SKIPPED}
    assert bench.target.launched == []


def test_targets_are_built_during_the_sleep() -> None:
    bench = Bench()
    built: list[str] = []

    class FailingTargets(dict[str, Target]):
        def get(self, kind: str, default: Any = None) -> Any:
            built.append(kind)
            if kind == "http":
                raise MissingExtra("HTTP is not installed")
            return super().get(kind, default)

    bench.loop.launcher._targets = FailingTargets(bench.loop.launcher._targets)
    bench.schedule("a", every("1m"))
    bench.schedule("b", every("1m"), target=Http(url="https://example.org/"))
    bench.schedule("c", every("9h"), target=Call(name="never"))
    bench.loop.step()
    assert sorted(built) == ["http", "note"]
    bench.advance(minutes=1)
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED]
