"""Preview equals practice: what a forecast shows is what admission does when nothing changes meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.worlds import CALENDARS, NOON, opened, schedule, steady_schedules
from timewright.core.admission import Drop, Flight, Skip, Verdict, admit
from timewright.core.backoff import Stretch
from timewright.core.calendars import CalendarRule
from timewright.core.decision import Source
from timewright.core.forecast import MOST_PREVIEWS, Preview, forecast
from timewright.core.governor import plan_next
from timewright.core.hints import Hints, IntervalHint, OneShotHint
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies import Align, CatchUp, Clamp, JitterSide, Overlap
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided
from timewright.core.triggers import After, AnyOf, Cron, Every, Manual, Once
from timewright.errors import InvalidInput


def at(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def fates(seen: tuple[Preview, ...]) -> list[tuple[str, float]]:
    return [(one.reason or one.fate, (one.planned_at - NOON) / MINUTE) for one in seen]


def test_the_next_occurrences_with_their_local_times() -> None:
    made = schedule(
        Cron("30 2 * * *", "Europe/Berlin"), created_at=datetime.fromisoformat("2026-03-28T00:00:00+00:00")
    )
    seen = forecast(made, opened(made, now=made.created_at), now=made.created_at, count=3)
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
    seen = forecast(made, opened(made), now=NOON, count=99, calendars=CALENDARS)
    assert fates(seen) == [("fire", 2), ("excluded", 4), ("excluded", 6), ("fire", 8), ("fire", 10)]
    assert [one.excluded for one in seen] == [False, True, True, False, False]
    assert all(one.fire_at is None or at(0) <= one.planned_at <= one.fire_at for one in seen)
    assert seen[1].fire_at is None


def test_a_pause_is_seen_through_to_its_end() -> None:
    made = schedule()
    standing = replace(opened(made), paused_at=at(0.5), paused_until=at(3))
    standing = decided(made, standing, plan_next(made, standing, now=at(0.5)))
    seen = forecast(made, standing, now=at(0.5), count=4)
    assert fates(seen) == [("paused", 1), ("paused", 2), ("fire", 3), ("fire", 4)]


def test_what_is_overdue_comes_first() -> None:
    made = schedule()
    assert fates(forecast(made, opened(made), now=at(3.5), count=5)) == [
        ("missed", 1),
        ("missed", 2),
        ("fire", 3),
        ("fire", 4),
        ("fire", 5),
    ]


def test_many_missed_ones_are_one_line_that_counts() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.NONE)
    (drop, *_) = forecast(made, opened(made), now=at(30), count=2)
    assert (drop.fate, drop.count, drop.last_of, drop.reason) == ("drop", 1799, at(30) - SECOND, "missed")


def test_a_schedule_that_is_stopped_or_only_by_hand_has_nothing_ahead() -> None:
    parked = replace(opened(schedule()), state=ScheduleState.PARKED)
    assert forecast(schedule(), parked, now=NOON) == ()
    assert forecast(schedule(Manual()), opened(schedule(Manual())), now=NOON) == ()
    done = schedule(max_runs=2)
    assert fates(forecast(done, opened(done), now=NOON, count=9)) == [("fire", 1), ("fire", 2)]


def test_after_a_run_nobody_knows_more_than_one_time_ahead() -> None:
    made = schedule(After(5 * MINUTE))
    assert fates(forecast(made, opened(made), now=NOON, count=9)) == [("fire", 5)]


def test_the_forecast_ends_at_a_time_if_asked() -> None:
    made = schedule()
    assert fates(forecast(made, opened(made), now=NOON, count=99, until=at(2))) == [("fire", 1), ("fire", 2)]
    assert forecast(made, opened(made), now=NOON, until=at(0.5)) == ()


def test_of_several_triggers_the_one_that_fires_says_the_zone() -> None:
    made = schedule(AnyOf((Every(20 * MINUTE, NOON), Cron("30 * * * *", "Asia/Tokyo"))))
    seen = forecast(made, opened(made), now=NOON, count=3)
    assert [(one.fired_by, one.zone) for one in seen] == [((0,), "UTC"), ((1,), "Asia/Tokyo"), ((0,), "UTC")]


@pytest.mark.parametrize("count", [0, -1, MOST_PREVIEWS + 1])
def test_a_forecast_is_bounded(count: int) -> None:
    with pytest.raises(InvalidInput) as refusal:
        forecast(schedule(), opened(schedule()), now=NOON, count=count)
    assert refusal.value.field == "count"


def test_a_schedule_whose_calendar_leaves_nothing_is_not_searched_for_ever() -> None:
    made = schedule(Every(SECOND, NOON), calendar=CalendarRule(only=("closed",)))
    seen = forecast(made, opened(made), now=NOON + DAY, count=50, calendars=CALENDARS)
    assert 0 < len(seen) < 50
    assert {one.fate for one in seen} == {"drop"}
    assert {one.reason for one in seen} == {"excluded", "missed"}


@st.composite
def any_schedules(draw: st.DrawFn) -> tuple[Schedule, Standing]:
    """Every kind: steady ones, and those that hints, clamps and cadence move."""
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
    standing = replace(opened(made), failures=draw(st.integers(0, 2)), hints=hints)
    if draw(st.booleans()):
        standing = replace(standing, paused_at=NOON, paused_until=at(draw(st.integers(1, 20))))
    return made, decided(made, standing, plan_next(made, standing, now=NOON, calendars=CALENDARS))


def practised(made: Schedule, standing: Standing, *, now: datetime, extra: list[int]) -> list[Verdict]:
    """What admission does from wake to wake, with looks in between that must not change anything."""
    verdicts: list[Verdict] = []
    steps = iter(extra * 50)
    for _ in range(120):
        admission = admit(made, standing, flight=Flight(), now=now, calendars=CALENDARS)
        verdicts += admission.verdicts
        standing = admission.standing
        wake = standing.wake_at
        if wake is None or len(verdicts) >= 30:
            break
        early = now + timedelta(seconds=next(steps, 0))
        if now < early < wake:
            admission = admit(made, standing, flight=Flight(), now=early, calendars=CALENDARS)
            assert admission.verdicts == ()
            assert admission.standing.wake_at == wake
            standing = admission.standing
        now = max(now, wake)
    return verdicts


@settings(max_examples=150)
@given(
    pair=any_schedules(), late=st.integers(0, 90), extra=st.lists(st.integers(1, 300), min_size=1, max_size=5)
)
def test_preview_equals_practice(pair: tuple[Schedule, Standing], late: int, extra: list[int]) -> None:
    made, standing = pair
    now = NOON + late * SECOND
    seen = forecast(made, standing, now=now, count=25, calendars=CALENDARS)
    done = practised(made, standing, now=now, extra=extra)[:25]
    assert [(one.planned_at, one.fate, one.source) for one in seen] == [
        (verdict.planned_at, type(verdict).__name__.lower(), verdict.source) for verdict in done
    ]
    for one, verdict in zip(seen, done, strict=True):
        if isinstance(verdict, Skip | Drop):
            assert (one.fire_at, one.reason) == (None, verdict.reason.value)
        else:
            assert (one.fire_at, one.reason, one.fired_by) == (verdict.fire_at, "", verdict.fired_by)


@given(made=steady_schedules())
def test_without_anything_special_a_forecast_is_what_the_trigger_says(made: Schedule) -> None:
    plain = replace(made, calendar=None, deadline=None, jitter=timedelta(0), overlap=Overlap.ALLOW)
    seen = forecast(plain, opened(plain), now=NOON, count=20)
    expected: list[datetime] = []
    moment = plain.trigger.next_after(NOON)
    while moment is not None and moment <= (plain.end_at or NOON + DAY) and len(expected) < 20:
        expected += [moment] if plain.window.contains(moment) else []
        moment = plain.trigger.next_after(moment)
    if plain.end_at is not None or len(expected) == 20:
        assert [one.planned_at for one in seen] == expected
    else:
        assert [one.planned_at for one in seen][: len(expected)] == expected
    assert all(one.fate == "fire" and one.fire_at == one.planned_at for one in seen)


def test_an_hourly_schedule_is_seen_a_month_ahead() -> None:
    made = schedule(Every(HOUR, NOON))
    seen = forecast(made, opened(made), now=NOON, count=720)
    assert [one.planned_at for one in seen] == [NOON + n * HOUR for n in range(1, 721)]
