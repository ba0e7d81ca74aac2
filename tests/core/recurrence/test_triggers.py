"""Triggers: the next instant is strictly later, aligned and never drifts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.schedule_simulation import NOON, TICK
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.recurrence import Trigger
from timewright.core.recurrence.triggers import (
    After,
    AnyOf,
    AnyTrigger,
    Cron,
    Every,
    Manual,
    Once,
    every,
    with_anchor,
)
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant

steps = st.integers(1, 10**12).map(lambda n: timedelta(microseconds=n))
moments = st.datetimes(datetime(1970, 1, 1), datetime(2300, 1, 1), timezones=st.just(UTC))


@given(step=steps, anchor=moments, moment=moments)
def test_the_grid_is_aligned_and_always_ahead(step: timedelta, anchor: datetime, moment: datetime) -> None:
    grid = Every(step, anchor)
    found = grid.next_after(moment)
    assert found is not None
    assert found > moment
    assert (found - anchor) % step == timedelta(0)
    assert found == anchor or found - step <= moment


@given(step=steps, anchor=moments, moment=moments)
def test_looking_back_finds_the_last_point_before(
    step: timedelta, anchor: datetime, moment: datetime
) -> None:
    grid = Every(step, anchor)
    found = grid.previous_before(moment)
    if found is None:
        assert moment <= anchor
    else:
        assert anchor <= found < moment
        assert grid.next_after(found) == found + step
        assert found + step >= moment


@given(step=st.integers(1, 50), after=st.integers(-200, 200), length=st.integers(0, 400))
def test_counting_by_division_is_counting_one_by_one(step: int, after: int, length: int) -> None:
    grid, start = Every(step * SECOND, NOON), NOON + after * SECOND
    until = start + length * SECOND
    assert grid.count(start, until) == len(grid.between(start, until, limit=10_000))


def test_a_future_anchor_is_the_first_instant() -> None:
    grid = Every(HOUR, NOON)
    assert grid.next_after(NOON - TICK) == NOON
    assert grid.next_after(NOON) == NOON + HOUR
    assert grid.previous_before(NOON) is None


def test_without_an_anchor_the_grid_starts_at_the_given_instant() -> None:
    assert Every(HOUR).next_after(NOON) == NOON + HOUR
    assert Every(HOUR).previous_before(NOON) == NOON - HOUR
    assert Every(HOUR).previous_before(datetime(1970, 1, 1, tzinfo=UTC)) is None
    assert Every(HOUR).with_anchor(NOON) == Every(HOUR, NOON)
    assert Every(HOUR, NOON).with_anchor(NOON + DAY) == Every(HOUR, NOON)


def test_a_schedule_keeps_an_anchor_for_each_of_its_intervals() -> None:
    several = AnyOf((Cron("* * * * *"), Every(HOUR), Every(HOUR, NOON)))
    assert with_anchor(several, NOON + DAY) == AnyOf(
        (Cron("* * * * *"), Every(HOUR, NOON + DAY), Every(HOUR, NOON))
    )
    assert with_anchor(Every(HOUR), NOON) == Every(HOUR, NOON)
    assert with_anchor(Manual(), NOON) == Manual()


def test_the_offset_an_instant_is_written_in_does_not_matter() -> None:
    berlin = timezone(HOUR)
    assert Every(HOUR, NOON.astimezone(berlin)).next_after(NOON + MINUTE) == NOON + HOUR
    assert Once(NOON.astimezone(berlin)).next_after(NOON - MINUTE) == NOON


def test_nothing_lies_past_the_year_9999() -> None:
    late = datetime(9999, 12, 31, 23, tzinfo=UTC)
    assert Every(DAY, NOON).next_after(late) is None
    assert After(DAY).next_after(late) is None


def test_an_interval_is_longer_than_zero_and_shorter_than_a_century() -> None:
    with pytest.raises(InvalidInput):
        Every(timedelta(0))
    with pytest.raises(InvalidDuration):
        Every(-MINUTE)
    with pytest.raises(InvalidDuration):
        Every(40_000 * DAY)


def test_an_instant_without_an_offset_is_refused() -> None:
    with pytest.raises(InvalidInstant):
        Every(HOUR, datetime(2026, 1, 1))
    with pytest.raises(InvalidInstant):
        Once(datetime(2026, 1, 1))


def test_once_is_one_instant() -> None:
    once = Once(NOON)
    assert (once.next_after(NOON - TICK), once.next_after(NOON)) == (NOON, None)
    assert (once.previous_before(NOON + TICK), once.previous_before(NOON)) == (NOON, None)
    assert once.between(NOON - DAY, NOON + DAY) == (NOON,)


def test_after_has_one_instant_at_a_time() -> None:
    after = After(5 * MINUTE)
    assert after.next_after(NOON) == NOON + 5 * MINUTE
    assert after.previous_before(NOON) is None
    assert after.between(NOON, NOON + DAY) == (NOON + 5 * MINUTE,)
    assert after.between(NOON, NOON + MINUTE) == after.between(NOON, NOON + DAY, limit=0) == ()


def test_of_several_triggers_the_nearest_counts_and_a_tie_is_one_instant() -> None:
    several = AnyOf((Cron("*/10 * * * *"), Every(15 * MINUTE, NOON), Once(NOON + 3 * MINUTE)))
    found = several.between(NOON, NOON + 30 * MINUTE)
    assert [(at - NOON) / MINUTE for at in found] == [3, 10, 15, 20, 30]
    assert [several.matching_positions(at) for at in found] == [(2,), (0,), (1,), (0,), (0, 1)]
    assert several.previous_before(NOON + 10 * MINUTE) == NOON + 3 * MINUTE


@pytest.mark.parametrize(
    ("triggers", "words"),
    [
        (
            (Cron("30 15 * * 1-5"), Cron("0 9,12 * * 1-5")),
            "at 09:00, 12:00 and 15:30 on Monday through Friday, UTC",
        ),
        (
            (Cron("0 9 * * 1", "Europe/Berlin"), Cron("0 8 * * 2", "Europe/Berlin")),
            "at 09:00 on Monday or at 08:00 on Tuesday, Europe/Berlin time",
        ),
        (
            (Cron("0 9 * * 1", "Europe/Berlin"), Cron("0 9 * * 1")),
            "at 09:00 on Monday, Europe/Berlin time or at 09:00 on Monday, UTC",
        ),
        ((Cron("0 9 * * *"), Every(HOUR)), "at 09:00 every day, UTC or every 1h"),
    ],
)
def test_several_triggers_are_described_with_the_times_of_the_same_days_together(
    triggers: tuple[Cron | Every, ...], words: str
) -> None:
    assert AnyOf(triggers).describe() == words


def test_a_list_of_triggers_is_neither_empty_nor_endless() -> None:
    for count in (0, 21):
        with pytest.raises(InvalidInput) as refusal:
            AnyOf((Every(HOUR),) * count)
        assert refusal.value.field == "triggers"


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (every("90s"), "every 1m30s"),
        (every(HOUR), "every 1h"),
        (After(MINUTE), "1m after the last run ended"),
        (Once(NOON), "once at 2026-03-10T12:00:00Z"),
        (Manual(), "only on request"),
        (AnyOf((every(5 * MINUTE), Once(NOON))), "every 5m or once at 2026-03-10T12:00:00Z"),
    ],
)
def test_every_trigger_has_a_description(trigger: AnyTrigger, words: str) -> None:
    assert trigger.describe() == words


def test_a_manual_trigger_has_no_instants() -> None:
    assert Manual().next_after(NOON) is Manual().previous_before(NOON) is None
    assert Manual().between(NOON, NOON + DAY) == ()


@given(
    trigger=st.sampled_from([Every(7 * MINUTE, NOON), Cron("*/13 * * * *"), Once(NOON + HOUR), Manual()]),
    start=st.integers(0, 300),
    limit=st.integers(0, 20),
)
def test_between_is_next_after_next_and_bounded(trigger: AnyTrigger, start: int, limit: int) -> None:
    first = NOON + start * MINUTE
    found = trigger.between(first, first + 2 * HOUR, limit)
    assert len(found) <= limit
    assert all(first < at <= first + 2 * HOUR for at in found)
    assert list(found) == sorted(set(found))
    for before, following in zip((first, *found), found, strict=False):
        assert trigger.next_after(before) == following


def test_the_base_class_raises_not_implemented() -> None:
    for ask in (Trigger().next_after, Trigger().previous_before):
        with pytest.raises(NotImplementedError):
            ask(NOON)
    with pytest.raises(NotImplementedError):
        Trigger().describe()
