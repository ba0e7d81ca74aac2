"""Forecasts agree with admission if nothing changes meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.schedule_simulation import CALENDARS, NOON, first_progress, schedule, steady_schedules
from timewright.core.calendars import CalendarRule
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Stretch
from timewright.core.policies.policies import Align, CatchUp, Clamp, JitterSide, Overlap
from timewright.core.recurrence.triggers import After, AnyOf, Cron, Every, Manual, Once
from timewright.core.run.admission import Drop, InFlightCounts, Skip, Verdict, admit
from timewright.core.schedule.decision import Source
from timewright.core.schedule.forecast import MAX_PREVIEWS, Preview, forecast
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.hints import Hints, IntervalHint, OneShotHint
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision
from timewright.errors import InvalidInput


def at(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def verdict_rows(seen: tuple[Preview, ...]) -> list[tuple[str, float]]:
    return [(one.reason or one.verdict, (one.planned_at - NOON) / MINUTE) for one in seen]


def test_the_next_occurrences_with_their_local_times() -> None:
    made = schedule(
        Cron("30 2 * * *", "Europe/Berlin"), created_at=datetime.fromisoformat("2026-03-28T00:00:00+00:00")
    )
    seen = forecast(made, first_progress(made, now=made.created_at), now=made.created_at, count=3)
    assert [one.local for one in seen] == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert {one.zone for one in seen} == {"Europe/Berlin"}
    assert {one.source for one in seen} == {Source.BASELINE_CRON}


def test_jitter_calendars_and_the_end_are_seen_ahead() -> None:
    made = schedule(
        Every(2 * MINUTE, NOON),
        jitter=30 * SECOND,
        calendar=CalendarRule(except_=("closed",)),
        end_at=at(10),
    )
    seen = forecast(made, first_progress(made), now=NOON, count=99, calendars=CALENDARS)
    assert verdict_rows(seen) == [("fire", 2), ("excluded", 4), ("excluded", 6), ("fire", 8), ("fire", 10)]
    assert [one.excluded for one in seen] == [False, True, True, False, False]
    assert all(one.fire_at is None or at(0) <= one.planned_at <= one.fire_at for one in seen)
    assert seen[1].fire_at is None


def test_a_pause_is_seen_through_to_its_end() -> None:
    made = schedule()
    progress = replace(first_progress(made), paused_at=at(0.5), paused_until=at(3))
    progress = apply_decision(made, progress, plan_next(made, progress, now=at(0.5)))
    seen = forecast(made, progress, now=at(0.5), count=4)
    assert verdict_rows(seen) == [("paused", 1), ("paused", 2), ("fire", 3), ("fire", 4)]


def test_overdue_occurrences_come_first() -> None:
    made = schedule()
    assert verdict_rows(forecast(made, first_progress(made), now=at(3.5), count=5)) == [
        ("missed", 1),
        ("missed", 2),
        ("fire", 3),
        ("fire", 4),
        ("fire", 5),
    ]


def test_many_missed_occurrences_are_one_counted_preview() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.NONE)
    (drop, *_) = forecast(made, first_progress(made), now=at(30), count=2)
    assert (drop.verdict, drop.count, drop.last_of, drop.reason) == ("drop", 1799, at(30) - SECOND, "missed")


def test_a_stopped_or_manual_schedule_has_no_forecast() -> None:
    parked = replace(first_progress(schedule()), state=ScheduleState.PARKED)
    assert forecast(schedule(), parked, now=NOON) == ()
    assert forecast(schedule(Manual()), first_progress(schedule(Manual())), now=NOON) == ()
    done = schedule(max_runs=2)
    assert verdict_rows(forecast(done, first_progress(done), now=NOON, count=9)) == [("fire", 1), ("fire", 2)]


def test_a_delay_after_a_run_has_at_most_one_future_instant() -> None:
    made = schedule(After(5 * MINUTE))
    assert verdict_rows(forecast(made, first_progress(made), now=NOON, count=9)) == [("fire", 5)]


def test_the_forecast_ends_at_a_time_if_asked() -> None:
    made = schedule()
    assert verdict_rows(forecast(made, first_progress(made), now=NOON, count=99, until=at(2))) == [
        ("fire", 1),
        ("fire", 2),
    ]
    assert forecast(made, first_progress(made), now=NOON, until=at(0.5)) == ()


def test_of_several_triggers_the_one_that_fires_decides_the_zone() -> None:
    made = schedule(AnyOf((Every(20 * MINUTE, NOON), Cron("30 * * * *", "Asia/Tokyo"))))
    seen = forecast(made, first_progress(made), now=NOON, count=3)
    assert [(one.fired_by, one.zone) for one in seen] == [((0,), "UTC"), ((1,), "Asia/Tokyo"), ((0,), "UTC")]


@pytest.mark.parametrize("count", [0, -1, MAX_PREVIEWS + 1])
def test_a_forecast_is_bounded(count: int) -> None:
    with pytest.raises(InvalidInput) as refusal:
        forecast(schedule(), first_progress(schedule()), now=NOON, count=count)
    assert refusal.value.field == "count"


def test_a_schedule_whose_calendar_excludes_everything_does_not_loop() -> None:
    made = schedule(Every(SECOND, NOON), calendar=CalendarRule(only=("closed",)))
    seen = forecast(made, first_progress(made), now=NOON + DAY, count=50, calendars=CALENDARS)
    assert 0 < len(seen) < 50
    assert {one.verdict for one in seen} == {"drop"}
    assert {one.reason for one in seen} == {"excluded", "missed"}


@st.composite
def any_schedules(draw: st.DrawFn) -> tuple[Schedule, ScheduleProgress]:
    """Schedules of every kind, also with hints, clamps and cadence."""
    made = draw(steady_schedules())
    if draw(st.booleans()):
        made = replace(
            made,
            trigger=draw(st.sampled_from([Every(4 * MINUTE, NOON), Cron("*/3 * * * *"), Once(at(30))])),
            align=draw(st.sampled_from(Align)),
            adaptive=True,
            clamp=draw(st.sampled_from([Clamp(), Clamp(min=2 * MINUTE), Clamp(min=MINUTE, max=10 * MINUTE)])),
            cadence=Stretch(),
        )
    made = replace(
        made,
        jitter_side=draw(st.sampled_from(JitterSide)),
        max_runs=draw(st.none() | st.integers(1, 6)),
    )
    hints = Hints(
        interval=draw(st.none() | st.just(IntervalHint(interval=7 * MINUTE, expires_at=at(20)))),
        one_shot=draw(st.none() | st.just(OneShotHint(at=at(2.5), expires_at=at(20)))),
    )
    progress = replace(first_progress(made), failures=draw(st.integers(0, 2)), hints=hints)
    if draw(st.booleans()):
        progress = replace(progress, paused_at=NOON, paused_until=at(draw(st.integers(1, 20))))
    return made, apply_decision(made, progress, plan_next(made, progress, now=NOON, calendars=CALENDARS))


def admitted_over_time(
    made: Schedule, progress: ScheduleProgress, *, now: datetime, extra: list[int]
) -> list[Verdict]:
    """Run admission from wake to wake, with early passes in between that must not change anything."""
    verdicts: list[Verdict] = []
    steps = iter(extra * 50)
    for _ in range(120):
        admission = admit(made, progress, in_flight=InFlightCounts(), now=now, calendars=CALENDARS)
        verdicts += admission.verdicts
        progress = admission.progress
        wake = progress.wake_at
        if wake is None or len(verdicts) >= 30:
            break
        early = now + timedelta(seconds=next(steps, 0))
        if now < early < wake:
            admission = admit(made, progress, in_flight=InFlightCounts(), now=early, calendars=CALENDARS)
            assert admission.verdicts == ()
            assert admission.progress.wake_at == wake
            progress = admission.progress
        now = max(now, wake)
    return verdicts


@settings(max_examples=150)
@given(
    pair=any_schedules(), late=st.integers(0, 90), extra=st.lists(st.integers(1, 300), min_size=1, max_size=5)
)
def test_the_forecast_equals_admission(
    pair: tuple[Schedule, ScheduleProgress], late: int, extra: list[int]
) -> None:
    made, progress = pair
    now = NOON + late * SECOND
    seen = forecast(made, progress, now=now, count=25, calendars=CALENDARS)
    done = admitted_over_time(made, progress, now=now, extra=extra)[:25]
    assert [(one.planned_at, one.verdict, one.source) for one in seen] == [
        (verdict.planned_at, type(verdict).__name__.lower(), verdict.source) for verdict in done
    ]
    for one, verdict in zip(seen, done, strict=True):
        if isinstance(verdict, Skip | Drop):
            assert (one.fire_at, one.reason) == (None, verdict.reason.value)
        else:
            assert (one.fire_at, one.reason, one.fired_by) == (verdict.fire_at, "", verdict.fired_by)


@given(made=steady_schedules())
def test_the_forecast_of_a_plain_schedule_is_that_of_its_trigger(made: Schedule) -> None:
    plain = replace(made, calendar=None, deadline=None, jitter=timedelta(0), overlap=Overlap.ALLOW)
    seen = forecast(plain, first_progress(plain), now=NOON, count=20)
    expected: list[datetime] = []
    moment = plain.trigger.next_after(NOON)
    while moment is not None and moment <= (plain.end_at or NOON + DAY) and len(expected) < 20:
        expected += [moment] if plain.window.contains(moment) else []
        moment = plain.trigger.next_after(moment)
    if plain.end_at is not None or len(expected) == 20:
        assert [one.planned_at for one in seen] == expected
    else:
        assert [one.planned_at for one in seen][: len(expected)] == expected
    assert all(one.verdict == "fire" and one.fire_at == one.planned_at for one in seen)


def test_an_hourly_schedule_is_seen_a_month_ahead() -> None:
    made = schedule(Every(HOUR, NOON))
    seen = forecast(made, first_progress(made), now=NOON, count=720)
    assert [one.planned_at for one in seen] == [NOON + n * HOUR for n in range(1, 721)]
