"""Statistics over finished runs: rates, durations, delays and trends."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from time import thread_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timewright.core.moments import HOUR, MINUTE, SECOND, ZERO
from timewright.core.run.history_stats import (
    FAILURES,
    DurationStats,
    HistoryStats,
    RunSample,
    compute_stats,
    duration_stats,
    trend,
)
from timewright.errors import InvalidInput

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY_BEFORE = NOON - 24 * HOUR


def ran(minutes_ago: float, outcome: str = "succeeded", *, took: float = 10, late: float = 0) -> RunSample:
    finished = NOON - minutes_ago * MINUTE
    started = finished - took * SECOND
    return RunSample(started - late * SECOND, started, finished, outcome)


def test_no_runs_give_empty_statistics() -> None:
    assert compute_stats([], since=DAY_BEFORE, until=NOON) == HistoryStats(since=DAY_BEFORE, until=NOON)
    assert compute_stats([], since=DAY_BEFORE, until=NOON).success_rate is None


def test_outcomes_are_counted_and_skips_do_not_affect_the_success_rate() -> None:
    samples = [ran(1), ran(2), ran(3), ran(4, "failed"), ran(5, "cancelled")]
    samples.append(RunSample(NOON - HOUR, None, None, "skipped"))
    found = compute_stats(samples, since=DAY_BEFORE, until=NOON)
    assert found.outcomes == {"cancelled": 1, "failed": 1, "skipped": 1, "succeeded": 3}
    assert found.total == 6
    assert found.success_rate == 0.75
    assert found.per_hour == 5 / 24


def test_a_window_holds_its_start_and_not_its_end_so_windows_add_up() -> None:
    samples = [ran(0), ran(60), ran(120)]
    first = compute_stats(samples, since=NOON - 2 * HOUR, until=NOON - HOUR)
    second = compute_stats(samples, since=NOON - HOUR, until=NOON)
    assert first.total + second.total == compute_stats(samples, since=NOON - 2 * HOUR, until=NOON).total == 2


def test_percentiles_are_durations_that_occurred() -> None:
    found = compute_stats([ran(n, took=n) for n in range(1, 101)], since=DAY_BEFORE, until=NOON)
    assert found.duration == DurationStats(
        median=50 * SECOND, p95=95 * SECOND, longest=100 * SECOND, average=50.5 * SECOND
    )


def test_lateness_is_measured_from_the_planned_instant() -> None:
    found = compute_stats([ran(n, late=n) for n in (1, 2, 30)], since=DAY_BEFORE, until=NOON)
    assert found.delay.median == 2 * SECOND
    assert found.delay.longest == 30 * SECOND


def test_an_early_start_is_shown_as_early() -> None:
    assert compute_stats([ran(1, late=-5)], since=DAY_BEFORE, until=NOON).delay.longest == -5 * SECOND


def test_durations_are_never_negative_even_if_the_clock_was_set_back() -> None:
    assert compute_stats([ran(1, took=-30)], since=DAY_BEFORE, until=NOON).duration.longest == ZERO


@pytest.mark.parametrize(
    ("outcomes", "streak"),
    [
        ("succeeded", 0),
        ("failed", 1),
        ("succeeded failed timed_out lost parked", 4),
        ("failed succeeded", 0),
        ("failed cancelled failed skipped", 2),
        ("failed failed succeeded failed", 1),
    ],
)
def test_the_streak_counts_failures_since_the_last_success(outcomes: str, streak: int) -> None:
    words = outcomes.split()
    samples = [ran(len(words) - n, word) for n, word in enumerate(words)]
    assert compute_stats(samples, since=DAY_BEFORE, until=NOON).streak == streak


def test_a_window_that_runs_backwards_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        compute_stats([], since=NOON, until=NOON)


outcomes = st.sampled_from(
    ["succeeded", "failed", "timed_out", "lost", "parked", "skipped", "cancelled", "odd"]
)
samples_of = st.lists(
    st.builds(ran, st.floats(0, 3000), outcomes, took=st.floats(0, 9000), late=st.floats(-100, 9000)),
    max_size=40,
)


@given(samples=samples_of, seed=st.integers(0, 99))
def test_the_order_of_the_samples_does_not_matter(samples: list[RunSample], seed: int) -> None:
    shuffled = samples[:]
    random.Random(seed).shuffle(shuffled)
    assert compute_stats(shuffled, since=DAY_BEFORE, until=NOON) == compute_stats(
        samples, since=DAY_BEFORE, until=NOON
    )


@given(samples=samples_of)
def test_the_parts_add_up_to_the_whole(samples: list[RunSample]) -> None:
    found = compute_stats(samples, since=DAY_BEFORE, until=NOON)
    assert sum(found.outcomes.values()) == found.total <= len(samples)
    assert found.streak <= sum(found.outcomes.get(word, 0) for word in FAILURES)
    assert found.success_rate is None or 0 <= found.success_rate <= 1
    if found.duration.median is not None:
        assert found.duration.p95 is not None
        assert found.duration.longest is not None
        assert ZERO <= found.duration.median <= found.duration.p95 <= found.duration.longest


@given(values=st.lists(st.integers(0, 10_000), min_size=1, max_size=60))
def test_the_given_percentage_of_values_does_not_exceed_the_percentile(values: list[int]) -> None:
    durations = [value * SECOND for value in values]
    found = duration_stats(durations)
    for percent, value in ((50, found.median), (95, found.p95)):
        assert value in durations
        assert sum(one <= value for one in durations) * 100 >= percent * len(durations)
        assert sum(one < value for one in durations) * 100 < percent * len(durations)


# ----------------------------------------------------------------------------------------------------- trend


@given(slope=st.integers(-1000, 1000), start=st.integers(-1000, 1000), count=st.integers(2, 60))
def test_a_straight_line_has_its_own_slope(slope: int, start: int, count: int) -> None:
    assert trend([start + slope * n for n in range(count)]) == slope


def test_outliers_do_not_move_the_trend() -> None:
    values = [2.0 * n for n in range(50)]
    for n in range(0, 50, 6):
        values[n] = 1e6
    assert trend(values) == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize("values", [[], [5.0], [math.nan, math.inf], [3.0, math.nan], [7.0, 7.0, 7.0]])
def test_without_a_trend_the_slope_is_zero(values: list[float]) -> None:
    assert trend(values) == 0.0


def test_non_finite_values_are_ignored_but_keep_their_position() -> None:
    assert trend([0.0, math.nan, 2.0, math.inf, 4.0]) == 1.0


def test_only_the_newest_two_hundred_count() -> None:
    assert trend([1e9 - n for n in range(1000)] + [float(n) for n in range(200)]) == 1.0


@given(values=st.lists(st.floats(), max_size=30))
@example(values=[0.0, 1.7e308, 0.0, 1.7e308])
@example(values=[-1.7e308, 1.7e308])
def test_the_trend_is_always_a_finite_number(values: list[float]) -> None:
    assert math.isfinite(trend(values))


def test_statistics_of_ten_thousand_runs_are_computed_quickly() -> None:
    samples = [ran(n / 10, took=n % 97, late=n % 13) for n in range(10_000)]
    begun = thread_time()
    found = compute_stats(samples, since=DAY_BEFORE, until=NOON + timedelta(seconds=1))
    trend([float(n) for n in range(10_000)])
    assert found.total == 10_000
    assert thread_time() - begun < 2
