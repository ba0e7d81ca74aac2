"""Presets: each has the defaults of one kind of scheduler, and given fields override it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from timewright.core.input.decode import decode_schedule
from timewright.core.input.encoding import encode
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.policies.policies import (
    FLOORS,
    PRESETS,
    Align,
    CatchUp,
    Exhausted,
    FloorAction,
    Overlap,
    QueuePolicy,
)
from timewright.core.schedule.schedule import Preset, Schedule

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def made(preset: str | None, **fields: Any) -> Schedule:
    raw = {"name": "r", "every": "1h", "call": "work", **({"preset": preset} if preset else {}), **fields}
    return decode_schedule(raw, id="sch_1", now=NOON)


def test_there_are_five_and_they_set_only_fields_of_a_schedule() -> None:
    assert set(PRESETS) == set(get_args(Preset))
    for values in PRESETS.values():
        assert set(values) <= set(Schedule.__struct_fields__)


def test_without_a_preset_the_defaults_apply() -> None:
    schedule = made(None)
    assert (schedule.catch_up, schedule.overlap, schedule.align) == (CatchUp.LAST, Overlap.SKIP, Align.GRID)
    assert (schedule.catch_up_window, schedule.catch_up_limit, schedule.grace) == (DAY, 100, MINUTE)
    assert (schedule.retry.max_attempts, schedule.retry.exhausted) == (1, Exhausted.FAIL)
    assert (schedule.retry.max_losses, schedule.retry.losses_are_attempts) == (3, False)
    assert (schedule.lease.length, schedule.lease.time_limit) == (MINUTE, None)
    assert (schedule.cadence, schedule.disable_after, schedule.adaptive) == (Steady(), None, False)


def test_a_routine_is_tried_three_times_with_up_to_a_fifth_of_jitter() -> None:
    schedule = made("routine")
    assert (schedule.catch_up, schedule.overlap, schedule.align) == (CatchUp.NONE, Overlap.SKIP, Align.GRID)
    backoff = schedule.retry.backoff
    assert isinstance(backoff, Exponential)
    assert (backoff.base, backoff.factor, backoff.jitter) == (SECOND, 2, 0.2)
    assert backoff.delay(3, seed="x") >= 4 * SECOND
    assert (schedule.retry.max_attempts, schedule.retry.exhausted) == (3, Exhausted.FAIL)
    assert schedule.lease.time_limit == 300 * SECOND
    assert schedule.catch_up_window is None


def test_a_queue_entry_is_parked_after_exact_doubling() -> None:
    schedule = made("queue")
    assert schedule.retry == QueuePolicy().retry
    assert [schedule.retry.backoff.delay(n) / SECOND for n in (1, 2, 7)] == [1, 2, 60]
    assert schedule.retry.exhausted is Exhausted.PARK


def test_an_adaptive_schedule_counts_from_the_last_start_and_accepts_hints() -> None:
    schedule = made("adaptive")
    assert (schedule.align, schedule.adaptive, schedule.retry.max_attempts) == (Align.NOW, True, 1)
    assert schedule.cadence == Stretch(5)
    assert (schedule.lease.length, schedule.lease.renew_every) == (30 * SECOND, 10 * SECOND)
    assert (schedule.catch_up, schedule.overlap) == (CatchUp.LAST, Overlap.SKIP)


def test_a_desktop_job_climbs_a_ladder_and_is_disabled_at_five() -> None:
    schedule = made("desktop")
    assert schedule.cadence == Ladder(steps=(30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR))
    assert (schedule.disable_after, schedule.retry.max_attempts) == (5, 1)
    assert (FLOORS["desktop"].interval, FLOORS["desktop"].action) == (10 * SECOND, FloorAction.RAISE)
    assert (schedule.catch_up, schedule.overlap, schedule.align) == (CatchUp.LAST, Overlap.SKIP, Align.GRID)


def test_a_workflow_is_launched_three_times_a_second_apart() -> None:
    schedule = made("workflow")
    assert (schedule.retry.max_attempts, schedule.retry.backoff) == (3, Constant(wait=SECOND))
    assert (schedule.catch_up, schedule.catch_up_limit, schedule.catch_up_window) == (CatchUp.NONE, 100, None)
    assert (schedule.overlap, schedule.jitter / SECOND) == (Overlap.SKIP, 0)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_given_field_overrides_the_preset(preset: str) -> None:
    written = {
        "catch_up": "spread",
        "overlap": "queue",
        "maxAttempts": 9,
        "align": "grid",
        "catch_up_window": "2d",
    }
    schedule = made(preset, **written)
    assert (schedule.catch_up, schedule.overlap, schedule.align) == (
        CatchUp.SPREAD,
        Overlap.QUEUE,
        Align.GRID,
    )
    assert (schedule.retry.max_attempts, schedule.catch_up_window) == (9, 2 * DAY)
    assert schedule.retry.backoff == made(preset).retry.backoff


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_is_equivalent_to_its_values(preset: str) -> None:
    spelled_out = {key: encode(made(preset))[key] for key in PRESETS[preset]}
    plain = made(None, **spelled_out)
    named = made(preset)
    assert {name: getattr(plain, name) for name in PRESETS[preset]} == {
        name: getattr(named, name) for name in PRESETS[preset]
    }
    assert plain.preset is None
    assert named.preset == preset
