"""Schedules: validation, initial progress, and what is refused at creation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.schedule_simulation import NOON, TICK, first_progress, schedule
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.limits import named_limit_key
from timewright.core.policies.policies import (
    Clamp,
    Floor,
    FloorAction,
    JitterSide,
    LeaseTerms,
    Offset,
    QueuePolicy,
    sleep_until,
)
from timewright.core.recurrence.triggers import Every, Manual, Once
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.likely_mistakes import check_new_schedule
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleProgress,
    apply_decision,
    initial_progress,
    queue_limit_key,
)
from timewright.errors import InvalidDuration, InvalidInput, InvalidInstant


def test_nothing_after_its_creation_is_decided_for_a_new_schedule() -> None:
    assert initial_progress(schedule()) == ScheduleProgress(cursor=NOON)
    assert initial_progress(schedule(start_at=NOON + HOUR)).cursor == NOON + HOUR - TICK
    assert initial_progress(schedule(start_at=NOON - HOUR)).cursor == NOON
    assert initial_progress(schedule(Once(NOON - HOUR))).cursor == NOON - HOUR - TICK


def test_a_decision_says_when_to_look_again() -> None:
    decision = Decision(NOON + HOUR, Source.BASELINE_CRON, (Candidate(NOON, Source.MANUAL, "no"),))
    progress = apply_decision(schedule(), ScheduleProgress(cursor=NOON), decision)
    assert (progress.next_at, progress.wake_at, progress.source) == (
        NOON + HOUR,
        NOON + HOUR,
        Source.BASELINE_CRON,
    )
    assert progress.trail == decision.trail
    early = schedule(jitter=MINUTE, jitter_side=JitterSide.BOTH)
    assert apply_decision(early, ScheduleProgress(cursor=NOON), decision).wake_at == NOON + HOUR - MINUTE


def test_a_second_admission_during_a_pause_skips_nothing() -> None:
    made = schedule()
    pause = Decision(NOON + HOUR, Source.PAUSED)
    once = apply_decision(made, first_progress(made), pause)
    assert once.cursor == NOON + MINUTE - TICK
    assert apply_decision(made, once, Decision(NOON + 2 * HOUR, Source.PAUSED)).cursor == once.cursor


def test_the_limit_keys_of_a_schedule_are_its_queue_and_its_limits_in_a_fixed_order() -> None:
    made = schedule(queue="mail", limits=("b", "a", "b"))
    assert made.limit_keys == (
        queue_limit_key("default", "mail"),
        named_limit_key("default", "a"),
        named_limit_key("default", "b"),
    )
    assert schedule().limit_keys == ()


@pytest.mark.parametrize(
    ("fields", "kind", "field"),
    [
        ({"start_at": NOON, "end_at": NOON - SECOND}, InvalidInput, "end_at"),
        ({"start_at": datetime(1999, 1, 1)}, InvalidInstant, "start_at"),
        ({"end_at": datetime.fromisoformat("2200-01-01T00:00:00+00:00")}, InvalidInstant, "end_at"),
        ({"created_at": datetime.fromisoformat("1999-12-31T00:00:00+00:00")}, InvalidInstant, "created_at"),
        ({"jitter": -SECOND}, InvalidDuration, "jitter"),
        ({"grace": timedelta(days=40_000)}, InvalidDuration, "grace"),
        ({"catch_up_window": -SECOND}, InvalidDuration, "catch_up_window"),
        ({"deadline": -SECOND}, InvalidDuration, "deadline"),
        ({"offset": Offset.STABLE}, InvalidInput, "offset"),
    ],
)
def test_a_contradictory_schedule_is_refused(
    fields: dict[str, Any], kind: type[InvalidInput], field: str
) -> None:
    with pytest.raises(kind) as refusal:
        schedule(**fields)
    assert refusal.value.field == field
    assert refusal.value.rule
    assert refusal.value.fix


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (schedule(Once(NOON)), "trigger.at"),
        (schedule(Once(NOON - HOUR)), "trigger.at"),
        (schedule(Once(NOON + HOUR), end_at=NOON + MINUTE), "trigger.at"),
        (schedule(Once(NOON + HOUR), start_at=NOON + DAY), "trigger.at"),
        (schedule(end_at=NOON - HOUR), "end_at"),
        (schedule(deadline=timedelta(0)), "deadline"),
    ],
)
def test_a_schedule_that_could_never_run_is_refused_at_creation(made: Schedule, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_new_schedule(made, now=NOON, catch_up_given=False)
    assert refusal.value.field == field
    assert refusal.value.rule
    assert refusal.value.fix


def test_a_past_instant_is_accepted_if_the_request_sets_catch_up() -> None:
    check_new_schedule(schedule(Once(NOON - HOUR)), now=NOON, catch_up_given=True)
    check_new_schedule(schedule(end_at=NOON - HOUR), now=NOON, catch_up_given=True)
    check_new_schedule(schedule(Manual(), end_at=NOON - HOUR), now=NOON, catch_up_given=False)


def test_both_ends_of_a_window_are_inclusive() -> None:
    window = schedule(start_at=NOON, end_at=NOON + HOUR).window
    assert window.contains(NOON)
    assert window.contains(NOON + HOUR)
    assert not window.contains(NOON - TICK)
    assert not window.contains(NOON + HOUR + TICK)
    assert schedule(start_at=NOON, end_at=NOON).window.contains(NOON)


def test_a_floor_refuses_or_raises_as_set() -> None:
    assert Floor().apply(SECOND) == SECOND
    with pytest.raises(InvalidInput) as refusal:
        Floor().apply(SECOND / 2)
    assert refusal.value.fix == "every: 1s, or lower the setting interval_floor"
    raising = Floor(interval=10 * SECOND, action=FloorAction.RAISE)
    assert raising.apply(SECOND) == 10 * SECOND
    assert raising.apply(MINUTE) == MINUTE
    with pytest.raises(InvalidInput):
        raising.apply(timedelta(0))


def test_bounds_that_contradict_are_refused_and_zero_is_no_bound() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Clamp(min=HOUR, max=MINUTE)
    assert refusal.value.field == "clamp.min"
    assert Clamp(min=HOUR, max=timedelta(0)).min == HOUR


def test_a_lease_is_renewed_at_a_third_of_its_length() -> None:
    assert LeaseTerms(length=30 * SECOND).renew_every == 10 * SECOND
    with pytest.raises(InvalidInput) as refusal:
        LeaseTerms(length=timedelta(0))
    assert refusal.value.field == "lease.length"


def test_a_queue_has_safe_defaults_and_the_same_numbers_as_its_retry() -> None:
    policy = QueuePolicy()
    assert (policy.max_running, policy.max_attempts, policy.lease) == (1, 3, 300 * SECOND)
    assert (policy.retry.max_attempts, policy.retry.backoff) == (3, policy.backoff)
    with pytest.raises(InvalidInput):
        QueuePolicy(ageing=timedelta(0))
    with pytest.raises(InvalidInput):
        QueuePolicy(lease=timedelta(0))


def test_the_maximum_sleep_is_one_minute() -> None:
    assert sleep_until(None, now=NOON) == MINUTE
    assert sleep_until(NOON + DAY, now=NOON) == MINUTE
    assert sleep_until(NOON + SECOND, now=NOON) == SECOND
    assert sleep_until(NOON - DAY, now=NOON) == timedelta(0)


def test_an_edit_gives_a_new_value_and_leaves_the_old_one() -> None:
    made = schedule()
    edited = replace(made, trigger=Every(HOUR, NOON), revision=2)
    assert (made.revision, edited.revision) == (1, 2)
    assert made.trigger != edited.trigger
