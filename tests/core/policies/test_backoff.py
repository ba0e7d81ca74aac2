"""Backoff and jitter: bounded and deterministic."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewright.core.moments import DAY, HOUR, MAX_DURATION, MINUTE, SECOND, from_micros
from timewright.core.policies.backoff import (
    Backoff,
    Constant,
    Exponential,
    Ladder,
    Stretch,
    apply_jitter,
    hash_fraction,
    occurrence_seed,
)
from timewright.errors import InvalidDuration, InvalidInput

waits = st.integers(0, 10**10).map(lambda n: timedelta(milliseconds=n))
jitters = st.floats(0, 1)
backoffs = st.one_of(
    st.builds(Exponential, base=waits, factor=st.floats(1, 1000), cap=waits, jitter=jitters),
    st.builds(Ladder, steps=st.lists(waits, min_size=1, max_size=9).map(tuple), jitter=jitters),
    st.builds(Constant, wait=waits, jitter=jitters),
)


def longest(backoff: Backoff) -> timedelta:
    if isinstance(backoff, Exponential):
        return backoff.cap
    return max(backoff.steps) if isinstance(backoff, Ladder) else backoff.wait


@given(backoff=backoffs, failures=st.integers(-3, 10**6), seed=st.text(max_size=8))
def test_a_backoff_stays_within_its_bounds_and_replays(backoff: Backoff, failures: int, seed: str) -> None:
    wait = backoff.delay(failures, seed=seed)
    assert timedelta(0) <= wait <= longest(backoff) * (1 + backoff.jitter) + timedelta(milliseconds=1)
    assert wait == backoff.delay(failures, seed=seed)


@given(backoff=backoffs, failures=st.integers(1, 50), seed=st.text(max_size=8))
def test_jitter_only_ever_adds(backoff: Backoff, failures: int, seed: str) -> None:
    plain = type(backoff)(
        **{name: getattr(backoff, name) for name in backoff.__struct_fields__ if name != "jitter"}
    )
    assert plain.delay(failures) <= backoff.delay(failures, seed=seed)


@given(base=waits, factor=st.floats(1, 10), failures=st.integers(1, 40))
def test_an_exponential_backoff_never_shrinks(base: timedelta, factor: float, failures: int) -> None:
    backoff = Exponential(base=base, factor=factor, cap=DAY)
    assert backoff.delay(failures) <= backoff.delay(failures + 1)


def test_doubling_is_capped() -> None:
    waits = [Exponential().delay(n) / SECOND for n in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_last_step_of_a_ladder_repeats() -> None:
    ladder = Ladder()
    assert [ladder.delay(n) for n in (0, 1, 2, 3, 4, 5, 6, 99)] == [
        30 * SECOND,
        30 * SECOND,
        MINUTE,
        5 * MINUTE,
        15 * MINUTE,
        HOUR,
        HOUR,
        HOUR,
    ]


def test_a_constant_wait_is_constant() -> None:
    assert {Constant(wait=7 * SECOND).delay(n) for n in range(9)} == {7 * SECOND}


@given(interval=st.timedeltas(timedelta(microseconds=1), MAX_DURATION), failures=st.integers(0, 10**6))
def test_a_stretched_interval_doubles_up_to_its_limit(interval: timedelta, failures: int) -> None:
    stretched = Stretch().stretch(interval, failures)
    assert stretched == min(interval * 2 ** min(failures, 5), MAX_DURATION) or stretched == MAX_DURATION
    assert interval <= stretched <= interval * 32


def test_waits_out_of_range_are_refused() -> None:
    for made in (
        lambda: Exponential(base=-SECOND),
        lambda: Exponential(cap=-SECOND),
        lambda: Constant(wait=-SECOND),
    ):
        with pytest.raises(InvalidDuration):
            made()
    with pytest.raises(InvalidDuration):
        Ladder(steps=(SECOND, -SECOND))
    for steps in ((), (SECOND,) * 101):
        with pytest.raises(InvalidInput) as refusal:
            Ladder(steps=steps)
        assert refusal.value.field == "steps"


@given(parts=st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_a_hash_fraction_is_below_one_and_deterministic(parts: list[str]) -> None:
    assert 0 <= hash_fraction(*parts) < 1
    assert hash_fraction(*parts) == hash_fraction(*parts)


@given(
    planned=st.integers(0, 2**52).map(from_micros),
    within=waits,
    gap=st.integers(1, 10**12).map(lambda n: timedelta(microseconds=n)),
    both=st.booleans(),
    key=st.text(max_size=10),
)
def test_jitter_never_reaches_the_next_occurrence(
    planned: datetime, within: timedelta, gap: timedelta, both: bool, key: str
) -> None:
    seed = occurrence_seed(key, planned)
    moved = apply_jitter(planned, within=within, both_sides=both, seed=seed, next_at=planned + gap)
    assert moved < planned + gap
    assert abs(moved - planned) <= within
    assert both or moved >= planned
    assert moved == apply_jitter(planned, within=within, both_sides=both, seed=seed, next_at=planned + gap)


def test_jitter_spreads_a_thousand_schedules_over_its_width() -> None:
    planned = from_micros(1_773_144_000_000_000)
    late = [
        (
            apply_jitter(
                planned, within=100 * SECOND, both_sides=False, seed=occurrence_seed(f"sch_{i}", planned)
            )
            - planned
        )
        / SECOND
        for i in range(1000)
    ]
    buckets = [sum(low <= amount < low + 10 for amount in late) for low in range(0, 100, 10)]
    assert min(buckets) > 60
    assert max(buckets) < 140
