"""What is due next is read ahead, in the rest before it; nothing is decided before its instant."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from timewright.core.run import RunState
from timewright.core.triggers import every
from timewright.ledger.replan import By, pause
from timewright.stores.schedule_verbs import ScheduleVerbs
from timewright.testing.bench import Bench

BY = By(actor="tester")


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The instants that were looked ahead to."""
    looked: list[datetime] = []
    foresee = ScheduleVerbs.foresee

    def note(self: Any, *, until: datetime, limit: int) -> int:
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
