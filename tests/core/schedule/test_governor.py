"""The governor: pause beats clamp, clamp beats hint, hint beats baseline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.schedule_simulation import NOON, TICK, first_progress, schedule
from timewright.core.moments import DAY, HOUR, MAX_DURATION, MINUTE, SECOND
from timewright.core.policies.backoff import Ladder, Stretch
from timewright.core.policies.policies import Align, Clamp
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Cron, Every, Manual, Once
from timewright.core.schedule.decision import MAX_TRAIL, Decision, Source
from timewright.core.schedule.governor import (
    baseline_source,
    counts_from_last_start,
    is_trigger_only,
    pause_end,
    plan_next,
    pull_forward,
)
from timewright.core.schedule.hints import Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule, ScheduleProgress

HOURLY = Every(HOUR, NOON)


def adaptive(trigger: AnyTrigger = HOURLY, **fields: Any) -> Schedule:
    return schedule(trigger, adaptive=True, **fields)


def hinted(
    interval: timedelta | None = None, at: datetime | None = None, *, lasts: timedelta = HOUR
) -> Hints:
    return Hints(
        interval=None if interval is None else IntervalHint(interval=interval, expires_at=NOON + lasts),
        one_shot=None if at is None else OneShotHint(at=at, expires_at=NOON + lasts),
    )


def progress(**fields: Any) -> ScheduleProgress:
    return ScheduleProgress(**{"cursor": NOON, **fields})


def test_a_pause_outlasts_every_other_reason() -> None:
    made = adaptive(clamp=Clamp(min=10 * MINUTE))
    hints = hinted(MINUTE, NOON + 30 * SECOND)
    decision = plan_next(made, progress(hints=hints, paused_until=NOON + 2 * HOUR), now=NOON)
    assert decision.at == NOON + 2 * HOUR
    assert decision.source is Source.PAUSED
    assert [lost.source for lost in decision.trail] == [
        Source.BASELINE_INTERVAL,
        Source.AI_INTERVAL,
        Source.AI_ONESHOT,
        Source.CLAMPED_MIN,
    ]


def test_the_later_of_two_pauses_counts() -> None:
    by_hint = Hints(pause=PauseHint(until=NOON + HOUR))
    both = progress(hints=by_hint, paused_until=NOON + MINUTE)
    assert pause_end(both, now=NOON) == NOON + HOUR
    assert pause_end(both, now=NOON + HOUR) is None
    assert pause_end(progress(), now=NOON) is None


def test_every_rejected_candidate_has_a_reason() -> None:
    decision = plan_next(adaptive(), progress(hints=hinted(20 * MINUTE, NOON + 30 * MINUTE)), now=NOON)
    assert decision.explain().splitlines() == [
        "2026-03-10T12:20:00Z  (ai-interval)",
        "  over 2026-03-10T13:00:00Z  (baseline-interval): an interval hint is active",
        "  over 2026-03-10T12:30:00Z  (ai-oneshot): not earlier",
    ]


def test_a_trail_is_never_longer_than_its_limit() -> None:
    decision = Decision(NOON, Source.MANUAL)
    for n in range(100):
        decision = decision.override(NOON + n * SECOND, Source.MANUAL, why="again").with_rejected(
            NOON, Source.MANUAL, why="no"
        )
    assert len(decision.trail) == MAX_TRAIL
    assert Decision(None, Source.MANUAL).explain() == "nothing further  (manual)"


def test_a_schedule_that_is_not_adaptive_ignores_hints() -> None:
    made = replace(adaptive(), adaptive=False)
    assert plan_next(made, progress(hints=hinted(MINUTE)), now=NOON).source is Source.BASELINE_INTERVAL


def test_a_hint_cannot_run_a_schedule_past_its_end_or_its_runs() -> None:
    wishes = progress(hints=hinted(20 * MINUTE), runs=3)
    assert plan_next(adaptive(end_at=NOON + 10 * MINUTE), wishes, now=NOON).at is None
    assert plan_next(adaptive(max_runs=3), wishes, now=NOON).at is None
    assert plan_next(adaptive(max_runs=4), wishes, now=NOON).at == NOON + 20 * MINUTE


def test_no_decision_is_before_start_at() -> None:
    start = NOON + 3 * HOUR
    for made in (
        adaptive(start_at=start),
        adaptive(start_at=start, align=Align.NOW),
        adaptive(start_at=start, clamp=Clamp(max=MINUTE)),
        adaptive(After(MINUTE), start_at=start),
    ):
        decision = plan_next(made, progress(hints=hinted(20 * MINUTE, NOON + MINUTE)), now=NOON)
        assert decision.at == start
        assert decision.trail


def test_a_grid_that_is_stretched_leaves_out_points_and_stays_on_its_grid() -> None:
    made = schedule(HOURLY, cadence=Stretch())
    for failures, hours in ((0, 1), (1, 2), (2, 4), (5, 32), (9, 32)):
        assert plan_next(made, progress(failures=failures), now=NOON).at == NOON + hours * HOUR


def test_cron_does_not_stretch() -> None:
    made = schedule(Cron("0 * * * *"), cadence=Stretch())
    assert plan_next(made, progress(failures=4), now=NOON).at == NOON + HOUR


def test_a_stretched_interval_is_never_longer_than_a_century() -> None:
    assert Stretch(doublings=20).stretch(MAX_DURATION, 20) == MAX_DURATION
    made = schedule(Every(365 * DAY, NOON), cadence=Stretch(doublings=20), align=Align.NOW)
    assert plan_next(made, progress(failures=20), now=NOON).at == NOON + MAX_DURATION


def test_a_ladder_only_delays() -> None:
    made = schedule(Every(MINUTE, NOON), cadence=Ladder(steps=(30 * SECOND, 5 * MINUTE)))
    finished = progress(failures=1, last_finished_at=NOON)
    assert plan_next(made, finished, now=NOON).at == NOON + MINUTE
    assert plan_next(made, replace(finished, failures=2), now=NOON).at == NOON + 5 * MINUTE
    assert plan_next(made, replace(finished, failures=2, last_finished_at=None), now=NOON).at == NOON + MINUTE


def test_counted_from_its_start_a_run_that_took_too_long_counts_from_its_end() -> None:
    made = schedule(Every(15 * SECOND, NOON), align=Align.NOW)
    assert plan_next(made, progress(), now=NOON + SECOND, base=NOON).at == NOON + 15 * SECOND
    assert plan_next(made, progress(), now=NOON + 30 * SECOND, base=NOON).at == NOON + 45 * SECOND
    clamped = replace(made, clamp=Clamp(max=10 * SECOND))
    assert plan_next(clamped, progress(), now=NOON + 30 * SECOND, base=NOON).at == NOON + 40 * SECOND


def test_only_intervals_can_count_from_the_last_start() -> None:
    assert counts_from_last_start(schedule(HOURLY, align=Align.NOW))
    assert not counts_from_last_start(schedule(Cron("0 * * * *"), align=Align.NOW))
    assert is_trigger_only(schedule(Cron("0 * * * *"), align=Align.NOW), progress())


def test_once_is_planned_until_it_is_decided_and_only_inside_its_window() -> None:
    made = schedule(Once(NOON + HOUR))
    assert plan_next(made, progress(), now=NOON).at == NOON + HOUR
    assert plan_next(made, progress(cursor=NOON + HOUR), now=NOON).at is None
    assert plan_next(replace(made, end_at=NOON + MINUTE), progress(), now=NOON).at is None


def test_each_kind_of_trigger_has_its_baseline_source() -> None:
    names: dict[AnyTrigger, Source] = {
        Manual(): Source.MANUAL,
        Once(NOON): Source.BASELINE_ONCE,
        HOURLY: Source.BASELINE_INTERVAL,
        After(MINUTE): Source.BASELINE_INTERVAL,
        Cron("* * * * *"): Source.BASELINE_CRON,
        AnyOf((HOURLY, Every(MINUTE))): Source.BASELINE_INTERVAL,
        AnyOf((HOURLY, Cron("* * * * *"))): Source.BASELINE_CRON,
    }
    assert {trigger: baseline_source(trigger) for trigger in names} == names


def test_a_proposal_only_moves_the_next_instant_earlier() -> None:
    current = Decision(NOON + HOUR, Source.BASELINE_INTERVAL)
    nearer, later = Decision(NOON + MINUTE, Source.AI_ONESHOT), Decision(NOON + DAY, Source.AI_INTERVAL)
    assert pull_forward(current, nearer).at == NOON + MINUTE
    assert pull_forward(current, nearer).trail[-1].at == NOON + HOUR
    assert pull_forward(current, later) is pull_forward(current, Decision(None, Source.PAUSED)) is current
    assert pull_forward(Decision(None, Source.MANUAL), nearer).at == NOON + MINUTE


seconds = st.integers(1, 7200).map(lambda n: n * SECOND)
offsets = st.integers(-7200, 7200).map(lambda n: NOON + n * SECOND)
some_triggers: st.SearchStrategy[AnyTrigger] = st.one_of(
    st.builds(Every, seconds, offsets),
    st.sampled_from([Cron("*/5 * * * *"), Cron("0 3 * * *", "Europe/Berlin"), Once(NOON + HOUR), Manual()]),
    st.builds(After, seconds),
)


@st.composite
def governed(draw: st.DrawFn) -> tuple[Schedule, ScheduleProgress]:
    low, high = sorted([draw(seconds), draw(seconds)])
    made = schedule(
        draw(some_triggers),
        adaptive=draw(st.booleans()),
        align=draw(st.sampled_from(Align)),
        clamp=Clamp(min=draw(st.none() | st.just(low)), max=draw(st.none() | st.just(high))),
        cadence=draw(st.sampled_from([Stretch(), Ladder()])),
    )
    hints = Hints(
        interval=draw(st.none() | st.builds(IntervalHint, interval=seconds, expires_at=offsets)),
        one_shot=draw(st.none() | st.builds(OneShotHint, at=offsets, expires_at=offsets)),
        pause=draw(st.none() | st.builds(PauseHint, until=offsets)),
    )
    stands = replace(
        first_progress(made),
        hints=hints,
        failures=draw(st.integers(0, 7)),
        last_finished_at=draw(st.none() | st.just(NOON)),
        paused_until=draw(st.none() | offsets),
    )
    return made, stands


@given(pair=governed(), after=st.integers(0, 7200))
def test_the_governor_stays_inside_its_clamps_and_a_pause_always_wins(
    pair: tuple[Schedule, ScheduleProgress], after: int
) -> None:
    made, stands = pair
    now = NOON + after * SECOND
    decision = plan_next(made, stands, now=now)
    assert decision == plan_next(made, stands, now=now)
    until = pause_end(stands, now=now)
    if until is not None:
        assert (decision.at, decision.source) == (until, Source.PAUSED)
        return
    assert decision.source is not Source.PAUSED
    if decision.at is None:
        return
    if made.clamp.min:
        assert decision.at >= now + made.clamp.min
    if made.clamp.max:
        assert decision.at <= now + made.clamp.max


@given(pair=governed(), run=st.integers(0, 600), after=st.integers(0, 600))
def test_a_decision_taken_at_the_end_of_a_run_is_inside_the_clamps_of_its_start_or_its_end(
    pair: tuple[Schedule, ScheduleProgress], run: int, after: int
) -> None:
    made, stands = pair
    started, now = NOON + after * SECOND, NOON + (after + run) * SECOND
    decision = plan_next(made, replace(stands, paused_until=None, hints=Hints()), now=now, base=started)
    clamp = made.clamp
    if decision.at is None or isinstance(made.trigger, After | Once):
        return
    bases = (started, now)
    assert any(base + (clamp.min or -DAY) <= decision.at <= base + (clamp.max or 999 * DAY) for base in bases)
    assert decision.at >= now


@given(pair=governed())
def test_an_expired_hint_changes_nothing(pair: tuple[Schedule, ScheduleProgress]) -> None:
    made, stands = pair
    now = NOON + 3 * HOUR
    forgotten = replace(stands, hints=Hints())
    stale = replace(stands, hints=replace(stands.hints, pause=None), paused_until=None)
    assert plan_next(made, stale, now=now) == plan_next(made, replace(forgotten, paused_until=None), now=now)


def test_a_hint_expires_exactly_at_its_end() -> None:
    stands = progress(hints=hinted(20 * MINUTE, lasts=HOUR))
    assert plan_next(adaptive(), stands, now=NOON + HOUR - TICK).source is Source.AI_INTERVAL
    assert plan_next(adaptive(), stands, now=NOON + HOUR).source is Source.BASELINE_INTERVAL
