"""Garbage is collected in a rest that is long enough, where a full pass is near and would be short."""

from __future__ import annotations

from datetime import timedelta

import pytest

from timewright.core.triggers import every
from timewright.engine import tidy as tidying
from timewright.engine.tidy import MOST_BLOCKS, SHORTEST_REST, tidy
from timewright.testing.bench import Bench


class Collector:
    """What Python says of its collector, and how often it was asked for a full pass."""

    def __init__(self) -> None:
        self.passes = 0
        self.enabled = True
        self.last = 10
        self.since = 10

    def isenabled(self) -> bool:
        return self.enabled

    def get_threshold(self) -> tuple[int, int, int]:
        return 700, 10, self.last

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.since

    def collect(self) -> None:
        self.passes += 1


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    collector = Collector()
    monkeypatch.setattr(tidying, "gc", collector)
    monkeypatch.setattr("sys.getallocatedblocks", lambda: MOST_BLOCKS)
    return collector


def test_a_full_pass_that_is_near_is_made_now(collector: Collector) -> None:
    tidy()
    assert collector.passes == 1


def test_a_pass_that_is_far_off_is_not_made(collector: Collector) -> None:
    collector.since = 4
    tidy()
    assert collector.passes == 0


def test_a_large_program_is_not_stopped_for_it(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.getallocatedblocks", lambda: MOST_BLOCKS + 1)
    tidy()
    assert collector.passes == 0


@pytest.mark.parametrize(("enabled", "last"), [(False, 10), (True, 0)])
def test_a_program_that_collects_by_itself_is_left_to_it(
    collector: Collector, *, enabled: bool, last: int
) -> None:
    collector.enabled, collector.last = enabled, last
    tidy()
    assert collector.passes == 0


@pytest.mark.parametrize(("left", "times"), [(SHORTEST_REST, 1), (SHORTEST_REST - timedelta(seconds=0.1), 0)])
def test_a_rest_that_is_long_enough_is_used_once(left: timedelta, times: int) -> None:
    bench, rests = Bench(), list[None]()
    bench.loop.tidy = lambda: rests.append(None)
    bench.schedule("a", every("1m"))
    bench.clock.advance(timedelta(minutes=1) - left)
    bench.loop.step()
    bench.loop.step()
    assert len(rests) == times
