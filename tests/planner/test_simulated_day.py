"""A simulated day of a queue that grows and drains: what the planner gains, in fixed figures."""

from __future__ import annotations

import pytest

from docs.planner_day import MINUTE, PLOT, Lived, alarms, draw, live


@pytest.fixture(scope="module")
def alone() -> Lived:
    return live(planned=False)


@pytest.fixture(scope="module")
def advised() -> Lived:
    return live(planned=True)


def test_an_alarm_is_seen_five_times_sooner_for_at_most_twice_the_runs(alone: Lived, advised: Lived) -> None:
    assert len(alarms()) == 4
    assert advised.mean * 5 <= alone.mean
    assert len(advised.looked) <= 2 * len(alone.looked)
    assert all(seen < 5 * MINUTE for seen in advised.reactions)


def test_the_picture_in_the_manual_is_of_these_two_days(alone: Lived, advised: Lived) -> None:
    assert PLOT.read_text("utf-8") == draw(alone, advised)
