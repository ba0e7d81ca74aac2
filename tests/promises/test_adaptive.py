"""The adaptive document, sentence by sentence: governor, hints with an end, clamps, pause and sources."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from timewright.errors import InvalidInput
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed

MINUTE = timedelta(minutes=1)


def endpoint(bench: Bench, **fields: Any) -> Any:
    given = {"name": "poll", "call": "work", "preset": "adaptive", **fields}
    if "baseline_cron" not in given:
        given.setdefault("baseline_interval_ms", 300_000)
    return bench.call("schedule create", **given)


def next_at(bench: Bench) -> datetime:
    found = bench.progress("poll").next_at
    assert found is not None
    return found


def source(bench: Bench) -> str:
    return str(bench.call("schedule get", schedule="poll")["progress"]["source"])


def test_without_hints_the_baseline_decides() -> None:
    bench = Bench()
    endpoint(bench)
    assert (next_at(bench) - bench.now, source(bench)) == (5 * MINUTE, "baseline-interval")


def test_an_interval_hint_overrides_the_baseline_nudges_at_once_and_ends() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint interval", schedule="poll", interval="30s", ttl="2m", reason="queue grows")
    assert (next_at(bench) - bench.now, source(bench)) == (timedelta(seconds=30), "ai-interval")
    bench.advance("10m")
    assert source(bench) == "baseline-interval"


def test_an_interval_hint_lasts_an_hour_and_a_one_shot_half_an_hour_by_default() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint interval", schedule="poll", interval="30s")
    bench.call("hint once", schedule="poll", at="2026-03-10T12:01:00Z")
    hints = bench.progress("poll").hints
    assert hints.interval is not None
    assert hints.one_shot is not None
    assert hints.interval.expires_at == bench.now + 60 * MINUTE
    assert hints.one_shot.expires_at == bench.now + 30 * MINUTE


def test_a_one_shot_competes_with_the_baseline_and_the_earlier_wins() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint once", schedule="poll", at="2026-03-10T12:20:00Z")
    assert source(bench) == "baseline-interval"
    bench.call("hint once", schedule="poll", at="2026-03-10T12:01:00Z")
    assert (next_at(bench) - bench.now, source(bench)) == (MINUTE, "ai-oneshot")


def test_of_two_hints_the_earlier_wins_and_the_baseline_is_ignored() -> None:
    bench = Bench()
    endpoint(bench, baseline_interval_ms=60_000)
    bench.call("hint interval", schedule="poll", interval="10m")
    bench.call("hint once", schedule="poll", at="2026-03-10T12:04:00Z")
    bench.advance("1m")
    assert (next_at(bench), source(bench)) == (bench.now + 3 * MINUTE, "ai-oneshot")


@pytest.mark.parametrize(
    ("interval", "expected", "why"),
    [("10s", MINUTE, "clamped-min"), ("10h", 10 * MINUTE, "clamped-max"), ("2m", 2 * MINUTE, "ai-interval")],
)
def test_the_minimum_and_the_maximum_bind_hints_too(interval: str, expected: timedelta, why: str) -> None:
    bench = Bench()
    endpoint(bench, min_interval_ms=60_000, max_interval_ms=600_000)
    bench.advance("5m")
    bench.call("hint interval", schedule="poll", interval=interval)
    bench.advance("5m")
    bench.tick()
    gap = next_at(bench) - max(run.planned_at for run in bench.runs("poll"))
    assert (gap, source(bench)) == (expected, why)


def test_a_pause_wins_over_everything_and_ends_by_itself() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint interval", schedule="poll", interval="30s")
    bench.call("hint pause", schedule="poll", until="2026-03-10T13:00:00Z")
    assert (next_at(bench), source(bench)) == (bench.now + 60 * MINUTE, "paused")
    bench.advance("59m")
    assert not any(run.state.value == "succeeded" for run in bench.runs("poll"))
    bench.advance("1m")
    assert any(run.state.value == "succeeded" for run in bench.runs("poll"))


def test_failures_double_the_interval_up_to_32_times_and_a_success_ends_it() -> None:
    bench = Bench()
    endpoint(bench, baseline_interval_ms=60_000)
    bench.target.script("poll", *[fail("down")] * 7, succeed())
    bench.advance("6h")
    starts = [one.started_at for one in bench.attempts("poll") if one.started_at]
    gaps = [(after - before) // MINUTE for before, after in pairwise(starts)]
    assert gaps[:9] == [2, 4, 8, 16, 32, 32, 32, 1, 1]


def test_cron_is_not_stretched_by_failures() -> None:
    bench = Bench()
    endpoint(bench, baseline_cron="*/5 * * * *")
    bench.target.script("poll", *[fail("down")] * 4)
    bench.advance("20m")
    assert len(bench.attempts("poll")) == 4


def test_every_run_says_why_it_ran_when_it_did() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint once", schedule="poll", at="2026-03-10T12:01:00Z")
    bench.advance("10m")
    assert [run.source.value for run in bench.runs("poll")][:2] == ["ai-oneshot", "baseline-interval"]


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(InvalidInput):
        endpoint(Bench(), min_interval_ms=2000, max_interval_ms=1000)


def test_cleared_hints_leave_the_baseline() -> None:
    bench = Bench()
    endpoint(bench)
    bench.call("hint interval", schedule="poll", interval="30s")
    bench.call("hint clear", schedule="poll")
    assert source(bench) == "baseline-interval"
