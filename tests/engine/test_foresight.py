"""What is due next is read ahead, in the rest before it; nothing is decided before its instant."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from timewright.core.run import RunState
from timewright.core.schedule import Schedule
from timewright.core.target import Call, Http
from timewright.core.triggers import every
from timewright.errors import MissingExtra
from timewright.ledger.replan import By, pause
from timewright.ports import Target
from timewright.stores.schedule_verbs import ScheduleVerbs
from timewright.testing.bench import Bench

BY = By(actor="tester")


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The instants that were looked ahead to."""
    looked: list[datetime] = []
    foresee = ScheduleVerbs.foresee

    def note(self: Any, *, until: datetime, limit: int) -> list[Schedule]:
        looked.append(until)
        return foresee(self, until=until, limit=limit)

    monkeypatch.setattr(ScheduleVerbs, "foresee", note)
    return looked


def test_what_is_due_after_the_rest_is_read_in_it_once(foreseen: list[datetime]) -> None:
    bench = Bench()
    bench.schedule("a", every("1m"))
    bench.loop.step()
    bench.loop.step()
    assert foreseen == [bench.now + timedelta(minutes=1)]
    assert bench.runs("a") == []


@pytest.mark.parametrize("ahead", [timedelta(milliseconds=20), timedelta(hours=1)])
def test_what_is_due_at_once_or_long_after_the_rest_is_not_read_ahead(
    foreseen: list[datetime], ahead: timedelta
) -> None:
    bench = Bench()
    bench.schedule("a", every("2h"))
    bench.clock.advance(timedelta(hours=2) - ahead)
    bench.loop.step()
    assert foreseen == []


def test_whoever_pauses_what_was_read_ahead_is_heeded(foreseen: list[datetime]) -> None:
    bench = Bench()
    schedule = bench.schedule("a", every("1m"))
    bench.loop.step()
    bench.clock.advance(seconds=59)
    pause(bench.store, schedule.id, by=BY, now=bench.now)
    bench.advance(seconds=2)
    assert foreseen
    assert {run.state for run in bench.runs("a")} <= {RunState.SKIPPED}
    assert bench.target.launched == []


def test_what_the_work_needs_is_built_in_the_rest_before_it() -> None:
    bench = Bench()
    built: list[str] = []

    class Workshop(dict[str, Target]):
        def get(self, kind: str, default: Any = None) -> Any:
            built.append(kind)
            if kind == "http":
                raise MissingExtra("HTTP is not installed")
            return super().get(kind, default)

    bench.loop.launcher._targets = Workshop(bench.loop.launcher._targets)
    bench.schedule("a", every("1m"))
    bench.schedule("b", every("1m"), target=Http(url="https://example.org/"))
    bench.schedule("c", every("9h"), target=Call(name="never"))
    bench.loop.step()
    assert sorted(built) == ["http", "note"]
    bench.advance(minutes=1)
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED]
