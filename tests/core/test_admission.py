"""Every occurrence is decided once: late, missed, caught up, overlapping, paused, excluded, dropped."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.worlds import (
    CALENDARS,
    NOON,
    World,
    decided_instants,
    instants,
    is_run,
    opened,
    schedule,
    steady_schedules,
    triggers,
)
from timewright.core.admission import (
    Admission,
    Drop,
    Fire,
    Flight,
    Hold,
    Replace,
    Skip,
    Verdict,
    admit,
    judge,
    on_time,
    resumed,
)
from timewright.core.backoff import Ladder
from timewright.core.calendars import CalendarRule
from timewright.core.decision import Decision, Source
from timewright.core.governor import plan_next
from timewright.core.hints import Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.lifecycle import settle_schedule
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies import Align, CatchUp, Clamp, JitterSide, Offset, Overlap
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided
from timewright.core.triggers import After, AnyOf, AnyTrigger, Cron, Every, Manual, Once

IDLE, BUSY = Flight(), Flight(live=1)


def at(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def pass_at(
    made: Schedule, minutes: float, *, flight: Flight = IDLE, standing: Standing | None = None
) -> Admission:
    return admit(made, standing or opened(made), flight=flight, now=at(minutes), calendars=CALENDARS)


def fates(admission: Admission) -> list[tuple[str, float]]:
    """Each verdict as its kind, or its reason, and the minute it was planned for."""
    return [
        (
            v.reason.value if isinstance(v, Skip | Drop) else type(v).__name__.lower(),
            (v.planned_at - NOON) / MINUTE,
        )
        for v in admission.verdicts
    ]


# One occurrence


def test_nothing_is_admitted_before_its_planned_instant() -> None:
    early = pass_at(schedule(), 1 - 1e-6)
    assert early.verdicts == ()
    assert early.standing == opened(schedule())
    assert fates(pass_at(schedule(), 1)) == [("fire", 1)]


def test_a_run_carries_its_source_and_the_schedule_its_next_time() -> None:
    admission = pass_at(schedule(Cron("*/5 * * * *")), 5)
    (fire,) = admission.verdicts
    assert fire == Fire(planned_at=at(5), fire_at=at(5), source=Source.BASELINE_CRON)
    assert (admission.standing.cursor, admission.standing.next_at, admission.standing.runs) == (
        at(5),
        at(10),
        1,
    )
    assert admission.decision.at == admission.standing.wake_at == at(10)


def test_a_late_one_runs_under_every_policy() -> None:
    for catch_up in CatchUp:
        assert fates(pass_at(schedule(Every(5 * MINUTE, NOON), catch_up=catch_up), 5.9)) == [("fire", 5)]


def test_beyond_its_grace_the_newest_is_missed_too() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.NONE)
    assert fates(pass_at(made, 6)) == [("fire", 5)]
    assert fates(pass_at(made, 6.01)) == [("missed", 5)]


def test_a_run_says_which_of_several_triggers_fired_it() -> None:
    made = schedule(AnyOf((Cron("*/5 * * * *"), Every(2 * MINUTE, NOON), Every(10 * MINUTE, NOON))))
    (fire,) = pass_at(made, 2).verdicts
    assert isinstance(fire, Fire)
    assert fire.fired_by == (1,)
    last = pass_at(made, 10).verdicts[-1]
    assert isinstance(last, Fire)
    assert (last.planned_at, last.fired_by) == (at(10), (0, 1, 2))


# Missed ones


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (CatchUp.NONE, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.LAST, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.ALL, [("fire", 1), ("hold", 2), ("hold", 3)]),
    ],
)
def test_an_outage_with_the_newest_still_in_time(
    catch_up: CatchUp, expected: list[tuple[str, float]]
) -> None:
    assert fates(pass_at(schedule(catch_up=catch_up), 3.5)) == expected


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (CatchUp.NONE, [("missed", 1), ("missed", 2), ("missed", 3)]),
        (CatchUp.LAST, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.ALL, [("fire", 1), ("hold", 2), ("hold", 3)]),
    ],
)
def test_an_outage_beyond_the_grace(catch_up: CatchUp, expected: list[tuple[str, float]]) -> None:
    assert fates(pass_at(schedule(catch_up=catch_up, grace=SECOND), 3.5)) == expected


def test_the_first_run_after_an_outage_is_told_how_many_it_missed() -> None:
    runs = [v for v in pass_at(schedule(), 4).verdicts if isinstance(v, Fire)]
    assert [run.missed for run in runs] == [3]


def test_the_number_of_missed_ones_waits_for_the_next_run() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.NONE)
    first = pass_at(made, 12)
    assert fates(first) == [("missed", 5), ("missed", 10)]
    (fire,) = admit(made, first.standing, flight=IDLE, now=at(15)).verdicts
    assert isinstance(fire, Fire)
    assert fire.missed == 2


def test_spread_gives_the_missed_ones_fire_times_evenly_over_the_window() -> None:
    made = schedule(catch_up=CatchUp.SPREAD, grace=SECOND, spread_over=4 * MINUTE, overlap=Overlap.ALLOW)
    runs = [v for v in pass_at(made, 3.5).verdicts if isinstance(v, Fire)]
    assert [run.fire_at for run in runs] == [at(4.5), at(5.5), at(6.5)]
    assert [run.planned_at for run in runs] == [at(1), at(2), at(3)]


def test_nothing_older_than_the_catch_up_window_runs() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_window=2 * MINUTE, overlap=Overlap.ALLOW)
    assert fates(pass_at(made, 4)) == [("missed", 1), ("fire", 2), ("fire", 3), ("fire", 4)]


def test_all_runs_so_many_in_one_pass_and_carries_the_rest_to_the_next() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_limit=2, overlap=Overlap.ALLOW)
    first = pass_at(made, 5.5)
    assert fates(first) == [("fire", 1), ("fire", 2)]
    assert first.more
    assert first.standing.wake_at == at(5.5)
    second = admit(made, first.standing, flight=IDLE, now=at(5.5))
    assert fates(second) == [("fire", 3), ("fire", 4), ("fire", 5)]
    assert not second.more


def test_a_backlog_that_has_no_room_waits_and_looks_again_in_a_second() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_limit=2, grace=SECOND)
    first = pass_at(made, 5.5)
    assert fates(first) == [("fire", 1), ("hold", 2)]
    full = admit(made, first.standing, flight=Flight(live=1, held=2), now=at(5.6))
    assert full.verdicts == ()
    assert full.standing.wake_at == at(5.6) + SECOND
    freed = admit(made, full.standing, flight=Flight(live=1, held=1), now=at(5.7))
    assert fates(freed) == [("hold", 3)]


def test_a_second_that_was_missed_for_hours_becomes_rows_that_count() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.LAST)
    standing, seen = opened(made), list[Verdict]()
    for _ in range(3):
        admission = admit(made, standing, flight=IDLE, now=NOON + 3 * HOUR)
        standing, seen = admission.standing, [*seen, *admission.verdicts]
    assert isinstance(seen[0], Drop)
    assert len(decided_instants(seen, made)) == 3 * 3600
    assert sum(isinstance(v, Drop) for v in seen) == 1
    assert seen[-1].planned_at == NOON + 3 * HOUR
    assert isinstance(seen[-1], Fire)
    assert seen[-1].missed == 3 * 3600 - 1


def test_a_thousand_skips_are_rows_and_one_more_is_counted() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.NONE, grace=0 * SECOND)
    rows = admit(made, opened(made), flight=IDLE, now=NOON + 1000.5 * SECOND).verdicts
    assert len(rows) == 1000
    (drop,) = admit(made, opened(made), flight=IDLE, now=NOON + 1001.5 * SECOND).verdicts
    first, last = NOON + SECOND, NOON + 1001 * SECOND
    source = Source.BASELINE_INTERVAL
    assert drop == Drop(planned_at=first, last_of=last, count=1001, reason=Reason.MISSED, source=source)


def test_a_drop_never_spans_an_instant_that_has_a_row_of_its_own() -> None:
    made = schedule(
        Every(SECOND, NOON),
        catch_up=CatchUp.ALL,
        catch_up_limit=10_000,
        overlap=Overlap.REPLACE,
        grace=0 * SECOND,
    )
    verdicts = admit(made, opened(made), flight=BUSY, now=NOON + 1500.5 * SECOND).verdicts
    assert [type(v) for v in verdicts] == [Drop, Replace]
    made = replace(
        made, overlap=Overlap.SKIP, calendar=CalendarRule(except_=("closed",)), catch_up=CatchUp.NONE
    )
    rows = admit(made, opened(made), flight=IDLE, now=NOON + 1500.5 * SECOND, calendars=CALENDARS).verdicts
    assert [(type(v), v.reason) for v in rows if isinstance(v, Skip | Drop)] == [
        (Drop, Reason.MISSED),
        (Drop, Reason.EXCLUDED),
        (Drop, Reason.MISSED),
    ]
    assert decided_instants(list(rows), made) == instants(made, NOON, NOON + 1500 * SECOND)


# Overlap


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (Overlap.SKIP, "overlap"),
        (Overlap.QUEUE, "hold"),
        (Overlap.REPLACE, "replace"),
        (Overlap.ALLOW, "fire"),
    ],
)
def test_a_new_occurrence_beside_a_live_run(overlap: Overlap, expected: str) -> None:
    assert fates(pass_at(schedule(overlap=overlap), 1, flight=BUSY)) == [(expected, 1)]


def test_a_full_queue_turns_the_next_one_away() -> None:
    made = schedule(overlap=Overlap.QUEUE, queue_limit=2)
    assert fates(pass_at(made, 1, flight=Flight(live=1, held=1))) == [("hold", 1)]
    assert fates(pass_at(made, 1, flight=Flight(live=1, held=2))) == [("queue_full", 1)]


def test_what_is_caught_up_into_a_queue_is_carried_when_the_queue_is_full() -> None:
    made = schedule(overlap=Overlap.QUEUE, queue_limit=2, catch_up=CatchUp.ALL, grace=SECOND)
    first = pass_at(made, 5.5)
    assert fates(first) == [("fire", 1), ("hold", 2)]
    assert first.more
    assert first.standing.next_at == at(3)


def test_replace_keeps_only_the_newest_of_several() -> None:
    made = schedule(overlap=Overlap.REPLACE, catch_up=CatchUp.ALL)
    assert fates(pass_at(made, 3, flight=BUSY)) == [("superseded", 1), ("superseded", 2), ("replace", 3)]
    assert fates(pass_at(made, 3)) == [("superseded", 1), ("superseded", 2), ("fire", 3)]


def test_a_single_missed_one_is_held_behind_a_live_run_when_all_are_caught_up() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.ALL)
    assert fates(pass_at(made, 7, flight=BUSY)) == [("hold", 5)]
    assert fates(pass_at(made, 5, flight=BUSY)) == [("overlap", 5)]


# Pauses


def paused(
    made: Schedule, start: float, end: float | None, *, state: ScheduleState = ScheduleState.PAUSED
) -> Standing:
    standing = opened(made)
    until = None if end is None else at(end)
    standing = replace(standing, paused_at=at(start), paused_until=until, state=state)
    decision = plan_next(made, standing, now=at(start)) if end is not None else Decision(None, Source.PAUSED)
    return decided(made, standing, decision)


@pytest.mark.parametrize("state", [ScheduleState.PAUSED, ScheduleState.ACTIVE])
def test_the_instants_of_a_pause_are_skipped_and_its_end_is_not_inside(state: ScheduleState) -> None:
    made = schedule(catch_up=CatchUp.ALL)
    standing = paused(made, 0.5, 3, state=state)
    during = pass_at(made, 2, standing=standing)
    assert during.verdicts == ()
    after = pass_at(made, 3, standing=during.standing)
    assert fates(after) == [("paused", 1), ("paused", 2), ("fire", 3)]
    assert after.standing.state is ScheduleState.ACTIVE
    assert after.standing.paused_until is after.standing.paused_at is None


@pytest.mark.parametrize("state", [ScheduleState.PARKED, ScheduleState.PENDING_APPROVAL])
def test_a_schedule_that_was_stopped_goes_on_from_now_and_catches_up_nothing(state: ScheduleState) -> None:
    made = schedule(catch_up=CatchUp.ALL)
    stopped = replace(opened(made), state=state, reason="why", next_at=None, wake_at=None, failures=5)
    again = pass_at(made, 60.5, standing=resumed(stopped, now=at(60.5)))
    assert again.verdicts == ()
    assert (again.standing.state, again.standing.reason) == (ScheduleState.ACTIVE, "")
    assert (again.standing.failures, again.standing.next_at) == (0, at(61))
    assert fates(pass_at(made, 61, standing=again.standing)) == [("fire", 61)]


def test_a_pause_without_an_end_admits_nothing_until_someone_resumes() -> None:
    made = schedule()
    still = pass_at(made, 500, standing=paused(made, 0.5, None))
    assert (still.verdicts, still.standing.wake_at) == ((), None)
    again = pass_at(made, 3.5, standing=resumed(still.standing, now=at(2.5)))
    assert fates(again) == [("paused", 1), ("paused", 2), ("fire", 3)]


def test_resuming_early_goes_on_at_the_next_instant_and_forgives() -> None:
    made = schedule()
    standing = replace(paused(made, 0.5, 60), failures=4)
    standing = resumed(standing, now=at(2.5))
    assert (standing.failures, standing.wake_at) == (0, at(2.5))
    quiet = pass_at(made, 2.5, standing=standing)
    assert fates(quiet) == [("paused", 1), ("paused", 2)]
    assert quiet.standing.next_at == at(3)


def test_resuming_before_anything_was_held_back_goes_on_as_planned() -> None:
    made = schedule()
    standing = resumed(paused(made, 0.2, 60), now=at(0.5))
    quiet = pass_at(made, 0.5, standing=standing)
    assert (quiet.verdicts, quiet.standing.next_at, quiet.standing.wake_at) == ((), at(1), at(1))


def test_what_was_open_before_the_pause_is_caught_up_after_it() -> None:
    made = schedule(Every(10 * MINUTE, NOON), catch_up=CatchUp.LAST)
    standing = paused(made, 15, 28)
    assert fates(pass_at(made, 29, standing=standing)) == [("fire", 10), ("paused", 20)]


def test_a_pause_by_hint_holds_back_like_one_by_hand() -> None:
    made = schedule(adaptive=True)
    hint = PauseHint(until=at(3), created_at=at(0.5), actor="agent", reason="quiet")
    standing = replace(opened(made), hints=Hints(pause=hint))
    during = pass_at(made, 1, standing=standing)
    assert during.verdicts == ()
    assert during.standing.wake_at == at(3)
    after = pass_at(made, 3, standing=during.standing)
    assert fates(after) == [("paused", 1), ("paused", 2), ("fire", 3)]
    assert after.standing.hints.pause is None


def test_a_pause_by_hint_begins_when_it_was_asked_for() -> None:
    made = schedule(Every(10 * MINUTE, NOON), adaptive=True)
    standing = replace(opened(made), hints=Hints(pause=PauseHint(until=at(28))), paused_at=at(15))
    standing = decided(made, standing, plan_next(made, standing, now=at(15)))
    after = pass_at(made, 29, standing=standing)
    assert fates(after) == [("fire", 10), ("paused", 20)]
    assert after.standing.paused_at is None


def test_a_parked_schedule_stays_parked_whatever_its_pause() -> None:
    standing = replace(opened(schedule()), state=ScheduleState.PARKED, paused_at=at(0), paused_until=at(1))
    after = pass_at(schedule(), 5, standing=standing)
    assert (after.verdicts, after.standing.state, after.standing.wake_at) == ((), ScheduleState.PARKED, None)


def test_counted_from_now_a_schedule_runs_at_the_very_end_of_its_pause() -> None:
    made = schedule(Every(10 * MINUTE, NOON), align=Align.NOW)
    after = pass_at(made, 7, standing=paused(made, 1, 7))
    assert fates(after) == [("fire", 7)]
    assert after.verdicts[0].source is Source.PAUSED
    assert after.standing.next_at == at(17)


def test_a_clamped_schedule_decides_again_at_the_end_of_its_pause() -> None:
    made = schedule(Cron("*/5 * * * *"), clamp=Clamp(min=2 * MINUTE))
    after = pass_at(made, 7, standing=paused(made, 1, 7))
    assert after.verdicts == ()
    assert after.standing.next_at == at(10)


# Calendars, deadlines, limits, ends


def test_an_excluded_instant_is_recorded_and_does_not_run() -> None:
    made = schedule(calendar=CalendarRule(except_=("closed",)), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 4)
    assert fates(admission) == [("fire", 1), ("fire", 2), ("excluded", 3), ("excluded", 4)]


def test_an_excluded_instant_behind_a_carried_one_is_decided_once() -> None:
    rule = CalendarRule(except_=("closed",))
    made = schedule(
        calendar=rule, catch_up=CatchUp.ALL, catch_up_limit=1, grace=SECOND, overlap=Overlap.ALLOW
    )
    first = pass_at(made, 4.5)
    assert fates(first) == [("fire", 1)]
    second = pass_at(made, 4.5, standing=first.standing)
    assert fates(second) == [("fire", 2), ("excluded", 3), ("excluded", 4)]


def test_counted_from_now_an_excluded_instant_does_not_run_either() -> None:
    made = schedule(Every(4 * MINUTE, NOON), align=Align.NOW, calendar=CalendarRule(except_=("closed",)))
    first = pass_at(made, 4)
    assert fates(first) == [("excluded", 4)]
    assert first.standing.next_at == at(8)


def test_past_its_deadline_an_occurrence_is_skipped() -> None:
    made = schedule(deadline=90 * SECOND, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    assert fates(pass_at(made, 3)) == [("deadline", 1), ("fire", 2), ("fire", 3)]


def test_a_schedule_has_no_more_runs_than_it_may_have() -> None:
    made = schedule(max_runs=2, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 5)
    assert fates(admission) == [("fire", 1), ("fire", 2)]
    assert admission.standing.next_at is None
    assert pass_at(made, 50, standing=admission.standing).verdicts == ()


def test_what_is_skipped_does_not_count_towards_the_runs_a_schedule_may_have() -> None:
    made = schedule(max_runs=1)
    first = pass_at(made, 1, flight=BUSY)
    assert fates(first) == [("overlap", 1)]
    assert fates(pass_at(made, 2, standing=first.standing)) == [("fire", 2)]


def test_both_ends_of_its_life_are_inside() -> None:
    made = schedule(start_at=at(2), end_at=at(4), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 10)
    assert fates(admission) == [("fire", 2), ("fire", 3), ("fire", 4)]
    assert admission.standing.next_at is None


def test_a_schedule_whose_last_occurrence_was_skipped_is_finished() -> None:
    made = schedule(Once(at(5)), catch_up=CatchUp.NONE)
    admission = pass_at(made, 60)
    assert fates(admission) == [("missed", 5)]
    assert (admission.standing.state, admission.standing.reason) == (
        ScheduleState.FINISHED,
        "nothing further is planned",
    )


def test_a_schedule_with_a_run_under_way_is_not_finished_yet() -> None:
    made = schedule(Once(at(5)))
    assert pass_at(made, 5).standing.state is ScheduleState.ACTIVE
    assert pass_at(made, 5, flight=BUSY).standing.state is ScheduleState.ACTIVE


def test_a_manual_schedule_waits_for_ever() -> None:
    admission = pass_at(schedule(Manual()), 500)
    assert (admission.verdicts, admission.standing.state) == ((), ScheduleState.ACTIVE)


# After the last run


def test_a_delay_after_the_last_run_waits_for_that_run_to_end() -> None:
    made = schedule(After(5 * MINUTE))
    first = pass_at(made, 5)
    assert fates(first) == [("fire", 5)]
    assert first.standing.next_at is None
    done = Run(id="r", planned_at=at(5), fire_at=at(5), state=RunState.SUCCEEDED, created_at=at(5))
    standing, decision = settle_schedule(made, first.standing, done, now=at(8))
    assert decision is not None
    assert standing.next_at == decision.at == at(13)


def test_a_delay_whose_occurrence_was_skipped_starts_again_from_now() -> None:
    made = schedule(After(5 * MINUTE), catch_up=CatchUp.NONE)
    missed = pass_at(made, 30)
    assert fates(missed) == [("missed", 5)]
    assert missed.standing.next_at == at(35)
    assert plan_next(made, missed.standing, now=at(31)).at == at(35)


def test_a_delay_that_fell_into_a_pause_starts_again_from_its_end() -> None:
    made = schedule(After(5 * MINUTE))
    after = pass_at(made, 20, standing=paused(made, 1, 20))
    assert fates(after) == [("paused", 5)]
    assert after.standing.next_at == at(25)


# Decisions that are not the trigger's


def test_looking_too_early_never_moves_what_was_decided() -> None:
    made = schedule(Every(5 * MINUTE, NOON), align=Align.NOW)
    standing = opened(made)
    for minute in (1, 2, 3, 4.9):
        standing = pass_at(made, minute, standing=standing).standing
    assert standing.next_at == at(5)


def test_a_one_shot_hint_is_consumed_by_the_occurrence_that_used_it() -> None:
    made = schedule(Every(HOUR, NOON), adaptive=True)
    hint = OneShotHint(at=at(10), expires_at=at(30))
    standing = replace(opened(made), hints=Hints(one_shot=hint))
    standing = decided(made, standing, plan_next(made, standing, now=NOON))
    for flight, fate in ((IDLE, "fire"), (BUSY, "overlap")):
        admission = pass_at(made, 10, standing=standing, flight=flight)
        assert fates(admission) == [(fate, 10)]
        assert admission.standing.hints.one_shot is None
        assert admission.standing.next_at == at(60)
    (fire,) = pass_at(made, 10, standing=standing).verdicts
    assert isinstance(fire, Fire)
    assert fire.source is Source.AI_ONESHOT
    assert [lost.source for lost in fire.trail] == [Source.BASELINE_INTERVAL]


def test_what_a_hint_displaced_is_not_missed_when_the_hint_is_gone() -> None:
    made = schedule(adaptive=True, catch_up=CatchUp.ALL)
    hint = IntervalHint(interval=HOUR, expires_at=at(120))
    standing = replace(opened(made), hints=Hints(interval=hint))
    standing = decided(made, standing, plan_next(made, standing, now=NOON))
    assert standing.next_at == at(60)
    cleared = replace(standing, hints=Hints())
    cleared = decided(made, cleared, plan_next(made, cleared, now=at(20)))
    assert fates(pass_at(made, 21, standing=cleared)) == [("fire", 21)]
    paused_then = replace(cleared, paused_at=at(20.5), paused_until=at(22))
    paused_then = decided(made, paused_then, plan_next(made, paused_then, now=at(20.5)))
    assert fates(pass_at(made, 22, standing=paused_then)) == [("paused", 21), ("fire", 22)]


def test_what_a_ladder_displaced_is_not_missed_after_a_success() -> None:
    made = schedule(cadence=Ladder(steps=(5 * MINUTE,)), catch_up=CatchUp.ALL)
    failed = Run(id="r", planned_at=at(1), fire_at=at(1), state=RunState.FAILED, created_at=at(1))
    first = pass_at(made, 1)
    standing, _ = settle_schedule(made, first.standing, failed, now=at(1.5))
    assert standing.next_at == at(6.5)
    second = pass_at(made, 6.5, standing=standing)
    assert fates(second) == [("fire", 6.5)]
    done = replace(failed, state=RunState.SUCCEEDED)
    standing, _ = settle_schedule(made, second.standing, done, now=at(9.5))
    assert standing.next_at == at(10)
    assert fates(pass_at(made, 10, standing=standing)) == [("fire", 10)]


def test_an_expired_hint_does_not_hide_what_was_missed() -> None:
    made = schedule(adaptive=True)
    old = Hints(interval=IntervalHint(interval=HOUR, expires_at=NOON))
    standing = replace(opened(made), hints=old)
    assert fates(pass_at(made, 3, standing=standing)) == [("missed", 1), ("missed", 2), ("fire", 3)]


# Jitter


def test_early_jitter_looks_ahead_and_nothing_ahead_is_missed() -> None:
    made = schedule(
        jitter=150 * SECOND, jitter_side=JitterSide.BOTH, overlap=Overlap.ALLOW, catch_up=CatchUp.NONE
    )
    standing = opened(made)
    assert standing.wake_at == at(1) - 150 * SECOND
    admission = pass_at(made, 1, standing=standing)
    assert fates(admission) == [("fire", 1), ("fire", 2), ("fire", 3)]


def test_a_stable_offset_moves_the_whole_schedule_by_one_amount() -> None:
    made = schedule(jitter=30 * SECOND, offset=Offset.STABLE, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    runs = [v for v in pass_at(made, 5).verdicts if isinstance(v, Fire)]
    assert len({run.fire_at - run.planned_at for run in runs}) == 1


@given(made=steady_schedules(), both=st.booleans(), minutes=st.integers(1, 60))
def test_jitter_stays_in_its_bounds_and_below_the_next_occurrence(
    made: Schedule, both: bool, minutes: int
) -> None:
    made = replace(made, jitter_side=JitterSide.BOTH if both else JitterSide.LATE, catch_up=CatchUp.ALL)
    for verdict in pass_at(made, minutes).verdicts:
        if not is_run(verdict):
            continue
        assert isinstance(verdict, Fire | Hold | Replace)
        moved = verdict.fire_at - verdict.planned_at
        assert (-made.jitter if both else timedelta(0)) <= moved <= made.jitter
        following = made.trigger.next_after(verdict.planned_at)
        assert following is None or verdict.fire_at < following
        assert verdict.planned_at <= at(minutes) + (made.jitter if both else timedelta(0))


# The whole


@given(
    trigger=triggers,
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    steps=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    busy=st.booleans(),
)
def test_the_shortest_way_gives_what_the_long_one_would(
    trigger: AnyTrigger, overlap: Overlap, catch_up: CatchUp, steps: list[int], busy: bool
) -> None:
    made = schedule(trigger, overlap=overlap, catch_up=catch_up)
    standing, now, flight = opened(made), NOON, Flight(live=int(busy))
    for step in steps:
        now += step * SECOND
        short = on_time(made, standing, flight=flight, now=now)
        full = judge(made, standing, flight=flight, now=now)
        assert short is None or short == full
        standing = full.standing


def test_the_shortest_way_is_taken_by_an_ordinary_schedule() -> None:
    made = schedule(Every(MINUTE, NOON))
    assert on_time(made, opened(made), flight=Flight(), now=at(1)) is not None
    assert on_time(made, opened(made), flight=Flight(live=1), now=at(1)) is None
    assert on_time(made, opened(made), flight=Flight(), now=at(2)) is None


@settings(max_examples=300)
@given(made=steady_schedules(), max_runs=st.none() | st.integers(1, 5), data=st.data())
def test_every_due_occurrence_is_accounted_for_exactly_once(
    made: Schedule, max_runs: int | None, data: st.DataObject
) -> None:
    world = World(replace(made, max_runs=max_runs))
    for _ in range(data.draw(st.integers(1, 8))):
        world.now += data.draw(st.sampled_from([SECOND, 20 * SECOND, 3 * MINUTE, 25 * MINUTE]))
        event = data.draw(st.sampled_from(["look", "look", "settle", "pause", "resume"]))
        if event == "settle":
            world.settle()
        elif event == "pause" and not world.is_paused() and world.standing.paused_until is None:
            state = data.draw(st.sampled_from([ScheduleState.ACTIVE, ScheduleState.PAUSED]))
            world.pause(data.draw(st.sampled_from([30 * SECOND, 7 * MINUTE])), state=state)
        elif event == "resume" and world.is_paused():
            world.resume()
        if world.standing.state in (ScheduleState.ACTIVE, ScheduleState.PAUSED):
            world.admit()
    _finish(world)
    _check_accounts(world)


def _finish(world: World) -> None:
    """Let everything end and look until nothing is carried."""
    world.now += 8 * MINUTE
    for _ in range(500):
        world.settle()
        if world.standing.state is ScheduleState.FINISHED or not world.admit().more:
            return
    raise AssertionError("the backlog never drained")


def _check_accounts(world: World) -> None:
    made = world.schedule
    found = decided_instants(world.verdicts, made)
    due = instants(made, NOON, world.now)
    runs = [verdict for verdict in world.verdicts if is_run(verdict)]
    assert found == sorted(set(found))
    assert len(runs) == world.standing.runs
    if made.max_runs is not None and len(runs) == made.max_runs:
        assert found == due[: len(found)]
    else:
        assert found == due
    inside = [
        v
        for v in runs
        for pause in world.pauses
        if pause.start and pause.end and pause.start <= v.planned_at < pause.end
    ]
    assert inside == []
    excluded = [v for v in runs if made.calendar and CALENDARS["closed"].covers(v.planned_at)]
    assert excluded == []


@given(made=steady_schedules(), minutes=st.integers(0, 90))
def test_catch_up_none_never_runs_what_was_missed(made: Schedule, minutes: int) -> None:
    made = replace(made, catch_up=CatchUp.NONE)
    runs = [v for v in pass_at(made, minutes).verdicts if is_run(v)]
    assert len(runs) <= 1
    assert all(at(minutes) - run.planned_at <= made.grace for run in runs)


@given(made=steady_schedules(), minutes=st.integers(0, 90))
def test_catch_up_last_runs_at_most_the_newest(made: Schedule, minutes: int) -> None:
    made = replace(made, catch_up=CatchUp.LAST, deadline=None, calendar=None)
    verdicts = pass_at(made, minutes).verdicts
    runs = [v for v in verdicts if is_run(v)]
    assert [run.planned_at for run in runs] in ([], [max((v.planned_at for v in verdicts), default=NOON)])


@given(days=st.integers(1, 400))
def test_a_long_outage_takes_a_bounded_pass(days: int) -> None:
    made = schedule(catch_up=CatchUp.NONE)
    admission = admit(made, opened(made), flight=IDLE, now=NOON + days * DAY)
    assert len(admission.verdicts) <= 1001
    assert admission.more == (days * 1440 > 10_000)
