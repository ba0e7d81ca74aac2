"""What follows an end, as the checker sees it: neither is without the other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.operations.house import House
from timewright.core.moments import micros
from timewright.operations.verify import gather
from timewright.proof import History, check

SECOND = 1_000_000


@pytest.fixture
def lived() -> tuple[History, int]:
    """An hour in which one follows another."""
    house = House()
    house.ask("schedule create", name="load", every="5m", note="x")
    house.ask("schedule create", name="report", after="load", delay="20s", note="x")
    house.advance(hours=1)
    return gather(house.context, since=None), micros(house.now)


def broken(history: History, now: int) -> list[str]:
    return [violation.message for violation in check(history, now=now, only=["I41"]).violations]


def test_an_hour_in_which_one_follows_another_holds(lived: tuple[History, int]) -> None:
    history, now = lived
    (finding,) = check(history, now=now, only=["I41"]).findings
    assert (finding.count, finding.looked_at) == (0, 11)


def test_a_row_that_is_missing_moved_or_too_many_is_found(lived: tuple[History, int]) -> None:
    history, now = lived
    mine = next(row.id for row in history.schedules if row.name == "report")
    rows = [run for run in history.runs if run.schedule_id == mine]
    others = tuple(run for run in history.runs if run.schedule_id != mine)
    (said,) = broken(replace(history, runs=(*others, *rows[1:])), now)
    assert said.endswith("and nothing followed")
    moved = replace(rows[3], planned_at=rows[3].planned_at + 100 * SECOND)
    told = broken(replace(history, runs=(*others, *rows[:3], moved, *rows[4:])), now)
    assert [one.partition(" ")[0] for one in told] == ["report:", "report:"]
    assert told[1].endswith("follows no end of load")
    twice = replace(rows[3], id="run_x", planned_at=rows[3].planned_at + 130 * SECOND)
    (said,) = broken(replace(history, runs=(*others, *rows, twice)), now)
    assert said.endswith("follows no end of load")
