"""Admission: every occurrence is decided once, also if late, missed, overlapping, paused or excluded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.schedule_simulation import (
    CALENDARS,
    NOON,
    ScheduleSimulation,
    expanded_instants,
    first_progress,
    instants,
    is_run,
    schedule,
    steady_schedules,
    triggers,
)
from timewright.core.calendars import CalendarRule
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import Align, CatchUp, Clamp, JitterSide, Offset, Overlap
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Cron, Every, Manual, Once
from timewright.core.run.admission import (
    Admission,
    Drop,
    Fire,
    Hold,
    InFlightCounts,
    Replace,
    Skip,
    Verdict,
    admit,
    admit_general,
    admit_on_time,
)
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.run.schedule_end import settle_schedule
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.hints import Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.pauses import resume_progress
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState, apply_decision

IDLE, BUSY = InFlightCounts(), InFlightCounts(live=1)


def at(minutes: float) -> datetime:
    return NOON + minutes * MINUTE


def pass_at(
    made: Schedule,
    minutes: float,
    *,
    in_flight: InFlightCounts = IDLE,
    progress: ScheduleProgress | None = None,
) -> Admission:
    return admit(
        made, progress or first_progress(made), in_flight=in_flight, now=at(minutes), calendars=CALENDARS
    )


def verdict_rows(admission: Admission) -> list[tuple[str, float]]:
    """Each verdict as its kind or its reason, with the minute it was planned for."""
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
    assert early.progress == first_progress(schedule())
    assert verdict_rows(pass_at(schedule(), 1)) == [("fire", 1)]


def test_a_run_carries_its_source_and_the_schedule_its_next_time() -> None:
    admission = pass_at(schedule(Cron("*/5 * * * *")), 5)
    (fire,) = admission.verdicts
    assert fire == Fire(planned_at=at(5), fire_at=at(5), source=Source.BASELINE_CRON)
    assert (admission.progress.cursor, admission.progress.next_at, admission.progress.runs) == (
        at(5),
        at(10),
        1,
    )
    assert admission.decision.at == admission.progress.wake_at == at(10)


def test_a_late_occurrence_runs_under_every_policy() -> None:
    for catch_up in CatchUp:
        assert verdict_rows(pass_at(schedule(Every(5 * MINUTE, NOON), catch_up=catch_up), 5.9)) == [
            ("fire", 5)
        ]


def test_beyond_its_grace_the_newest_occurrence_is_missed() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.NONE)
    assert verdict_rows(pass_at(made, 6)) == [("fire", 5)]
    assert verdict_rows(pass_at(made, 6.01)) == [("missed", 5)]


def test_a_run_says_which_of_several_triggers_fired_it() -> None:
    made = schedule(AnyOf((Cron("*/5 * * * *"), Every(2 * MINUTE, NOON), Every(10 * MINUTE, NOON))))
    (fire,) = pass_at(made, 2).verdicts
    assert isinstance(fire, Fire)
    assert fire.fired_by == (1,)
    last = pass_at(made, 10).verdicts[-1]
    assert isinstance(last, Fire)
    assert (last.planned_at, last.fired_by) == (at(10), (0, 1, 2))


# Missed occurrences


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (CatchUp.NONE, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.LAST, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.ALL, [("fire", 1), ("hold", 2), ("hold", 3)]),
    ],
)
def test_after_an_outage_the_newest_occurrence_within_its_grace_runs(
    catch_up: CatchUp, expected: list[tuple[str, float]]
) -> None:
    assert verdict_rows(pass_at(schedule(catch_up=catch_up), 3.5)) == expected


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (CatchUp.NONE, [("missed", 1), ("missed", 2), ("missed", 3)]),
        (CatchUp.LAST, [("missed", 1), ("missed", 2), ("fire", 3)]),
        (CatchUp.ALL, [("fire", 1), ("hold", 2), ("hold", 3)]),
    ],
)
def test_after_an_outage_beyond_the_grace_the_catch_up_policy_decides(
    catch_up: CatchUp, expected: list[tuple[str, float]]
) -> None:
    assert verdict_rows(pass_at(schedule(catch_up=catch_up, grace=SECOND), 3.5)) == expected


def test_the_first_run_after_an_outage_records_how_many_were_missed() -> None:
    runs = [v for v in pass_at(schedule(), 4).verdicts if isinstance(v, Fire)]
    assert [run.missed for run in runs] == [3]


def test_the_missed_count_is_kept_for_the_next_run() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.NONE)
    first = pass_at(made, 12)
    assert verdict_rows(first) == [("missed", 5), ("missed", 10)]
    (fire,) = admit(made, first.progress, in_flight=IDLE, now=at(15)).verdicts
    assert isinstance(fire, Fire)
    assert fire.missed == 2


def test_spread_distributes_missed_occurrences_evenly_over_the_window() -> None:
    made = schedule(catch_up=CatchUp.SPREAD, grace=SECOND, spread_over=4 * MINUTE, overlap=Overlap.ALLOW)
    runs = [v for v in pass_at(made, 3.5).verdicts if isinstance(v, Fire)]
    assert [run.fire_at for run in runs] == [at(4.5), at(5.5), at(6.5)]
    assert [run.planned_at for run in runs] == [at(1), at(2), at(3)]


def test_nothing_older_than_the_catch_up_window_runs() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_window=2 * MINUTE, overlap=Overlap.ALLOW)
    assert verdict_rows(pass_at(made, 4)) == [("missed", 1), ("fire", 2), ("fire", 3), ("fire", 4)]


def test_catch_up_all_runs_a_limited_number_per_pass_and_carries_the_rest() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_limit=2, overlap=Overlap.ALLOW)
    first = pass_at(made, 5.5)
    assert verdict_rows(first) == [("fire", 1), ("fire", 2)]
    assert first.more
    assert first.progress.wake_at == at(5.5)
    second = admit(made, first.progress, in_flight=IDLE, now=at(5.5))
    assert verdict_rows(second) == [("fire", 3), ("fire", 4), ("fire", 5)]
    assert not second.more


def test_a_full_backlog_is_retried_after_one_second() -> None:
    made = schedule(catch_up=CatchUp.ALL, catch_up_limit=2, grace=SECOND)
    first = pass_at(made, 5.5)
    assert verdict_rows(first) == [("fire", 1), ("hold", 2)]
    full = admit(made, first.progress, in_flight=InFlightCounts(live=1, held=2), now=at(5.6))
    assert full.verdicts == ()
    assert full.progress.wake_at == at(5.6) + SECOND
    freed = admit(made, full.progress, in_flight=InFlightCounts(live=1, held=1), now=at(5.7))
    assert verdict_rows(freed) == [("hold", 3)]


def test_hours_of_missed_seconds_become_counted_rows() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.LAST)
    progress, seen = first_progress(made), list[Verdict]()
    for _ in range(3):
        admission = admit(made, progress, in_flight=IDLE, now=NOON + 3 * HOUR)
        progress, seen = admission.progress, [*seen, *admission.verdicts]
    assert isinstance(seen[0], Drop)
    assert len(expanded_instants(seen, made)) == 3 * 3600
    assert sum(isinstance(v, Drop) for v in seen) == 1
    assert seen[-1].planned_at == NOON + 3 * HOUR
    assert isinstance(seen[-1], Fire)
    assert seen[-1].missed == 3 * 3600 - 1


def test_beyond_a_thousand_skips_are_counted_in_one_row() -> None:
    made = schedule(Every(SECOND, NOON), catch_up=CatchUp.NONE, grace=0 * SECOND)
    rows = admit(made, first_progress(made), in_flight=IDLE, now=NOON + 1000.5 * SECOND).verdicts
    assert len(rows) == 1000
    (drop,) = admit(made, first_progress(made), in_flight=IDLE, now=NOON + 1001.5 * SECOND).verdicts
    first, last = NOON + SECOND, NOON + 1001 * SECOND
    source = Source.BASELINE_INTERVAL
    assert drop == Drop(planned_at=first, last_of=last, count=1001, reason=Reason.MISSED, source=source)


def test_a_drop_never_spans_an_instant_that_has_a_row_of_its_own() -> None:
    made = schedule(
        Every(SECOND, NOON),
        catch_up=CatchUp.LAST,
        overlap=Overlap.REPLACE,
        grace=0 * SECOND,
    )
    verdicts = admit(made, first_progress(made), in_flight=BUSY, now=NOON + 1500.5 * SECOND).verdicts
    assert [type(v) for v in verdicts] == [Drop, Replace]
    made = replace(
        made, overlap=Overlap.SKIP, calendar=CalendarRule(except_=("closed",)), catch_up=CatchUp.NONE
    )
    rows = admit(
        made, first_progress(made), in_flight=IDLE, now=NOON + 1500.5 * SECOND, calendars=CALENDARS
    ).verdicts
    assert [(type(v), v.reason) for v in rows if isinstance(v, Skip | Drop)] == [
        (Drop, Reason.MISSED),
        (Drop, Reason.EXCLUDED),
        (Drop, Reason.MISSED),
    ]
    assert expanded_instants(list(rows), made) == instants(made, NOON, NOON + 1500 * SECOND)


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
def test_the_overlap_policy_decides_about_an_occurrence_beside_a_live_run(
    overlap: Overlap, expected: str
) -> None:
    assert verdict_rows(pass_at(schedule(overlap=overlap), 1, in_flight=BUSY)) == [(expected, 1)]


def test_an_occurrence_is_skipped_if_the_queue_is_full() -> None:
    made = schedule(overlap=Overlap.QUEUE, queue_limit=2)
    assert verdict_rows(pass_at(made, 1, in_flight=InFlightCounts(live=1, held=1))) == [("hold", 1)]
    assert verdict_rows(pass_at(made, 1, in_flight=InFlightCounts(live=1, held=2))) == [("queue_full", 1)]


def test_caught_up_occurrences_are_carried_over_if_the_queue_is_full() -> None:
    made = schedule(overlap=Overlap.QUEUE, queue_limit=2, catch_up=CatchUp.ALL, grace=SECOND)
    first = pass_at(made, 5.5)
    assert verdict_rows(first) == [("fire", 1), ("hold", 2)]
    assert first.more
    assert first.progress.next_at == at(3)


def test_under_replace_missed_occurrences_run_in_sequence_and_a_live_one_replaces() -> None:
    made = schedule(overlap=Overlap.REPLACE, catch_up=CatchUp.ALL)
    assert verdict_rows(pass_at(made, 3, in_flight=BUSY)) == [("hold", 1), ("hold", 2), ("hold", 3)]
    assert verdict_rows(pass_at(made, 3)) == [("fire", 1), ("hold", 2), ("hold", 3)]
    assert verdict_rows(pass_at(made, 1, in_flight=BUSY)) == [("replace", 1)]


def test_with_catch_up_all_a_single_missed_occurrence_is_held_behind_a_live_run() -> None:
    made = schedule(Every(5 * MINUTE, NOON), catch_up=CatchUp.ALL)
    assert verdict_rows(pass_at(made, 7, in_flight=BUSY)) == [("hold", 5)]
    assert verdict_rows(pass_at(made, 5, in_flight=BUSY)) == [("overlap", 5)]


# Pauses


def paused(
    made: Schedule, start: float, end: float | None, *, state: ScheduleState = ScheduleState.PAUSED
) -> ScheduleProgress:
    progress = first_progress(made)
    until = None if end is None else at(end)
    progress = replace(progress, paused_at=at(start), paused_until=until, state=state)
    decision = plan_next(made, progress, now=at(start)) if end is not None else Decision(None, Source.PAUSED)
    return apply_decision(made, progress, decision)


@pytest.mark.parametrize("state", [ScheduleState.PAUSED, ScheduleState.ACTIVE])
def test_the_instants_of_a_pause_are_skipped_and_its_end_is_not_inside(state: ScheduleState) -> None:
    made = schedule(catch_up=CatchUp.ALL)
    progress = paused(made, 0.5, 3, state=state)
    during = pass_at(made, 2, progress=progress)
    assert during.verdicts == ()
    after = pass_at(made, 3, progress=during.progress)
    assert verdict_rows(after) == [("paused", 1), ("paused", 2), ("fire", 3)]
    assert after.progress.state is ScheduleState.ACTIVE
    assert after.progress.paused_until is after.progress.paused_at is None


@pytest.mark.parametrize("state", [ScheduleState.PARKED, ScheduleState.PENDING_APPROVAL])
def test_a_schedule_resumed_after_parking_continues_from_now_without_catch_up(state: ScheduleState) -> None:
    made = schedule(catch_up=CatchUp.ALL)
    stopped = replace(first_progress(made), state=state, reason="why", next_at=None, wake_at=None, failures=5)
    again = pass_at(made, 60.5, progress=resume_progress(stopped, now=at(60.5)))
    assert again.verdicts == ()
    assert (again.progress.state, again.progress.reason) == (ScheduleState.ACTIVE, "")
    assert (again.progress.failures, again.progress.next_at) == (0, at(61))
    assert verdict_rows(pass_at(made, 61, progress=again.progress)) == [("fire", 61)]


def test_a_pause_without_an_end_admits_nothing_until_it_is_resumed() -> None:
    made = schedule()
    still = pass_at(made, 500, progress=paused(made, 0.5, None))
    assert (still.verdicts, still.progress.wake_at) == ((), None)
    again = pass_at(made, 3.5, progress=resume_progress(still.progress, now=at(2.5)))
    assert verdict_rows(again) == [("paused", 1), ("paused", 2), ("fire", 3)]


def test_resuming_early_continues_at_the_next_instant_and_resets_failures() -> None:
    made = schedule()
    progress = replace(paused(made, 0.5, 60), failures=4)
    progress = resume_progress(progress, now=at(2.5))
    assert (progress.failures, progress.wake_at) == (0, at(2.5))
    quiet = pass_at(made, 2.5, progress=progress)
    assert verdict_rows(quiet) == [("paused", 1), ("paused", 2)]
    assert quiet.progress.next_at == at(3)


def test_resuming_before_anything_was_suppressed_continues_as_planned() -> None:
    made = schedule()
    progress = resume_progress(paused(made, 0.2, 60), now=at(0.5))
    quiet = pass_at(made, 0.5, progress=progress)
    assert (quiet.verdicts, quiet.progress.next_at, quiet.progress.wake_at) == ((), at(1), at(1))


def test_occurrences_due_before_the_pause_are_caught_up_after_it() -> None:
    made = schedule(Every(10 * MINUTE, NOON), catch_up=CatchUp.LAST)
    progress = paused(made, 15, 28)
    assert verdict_rows(pass_at(made, 29, progress=progress)) == [("fire", 10), ("paused", 20)]


def test_a_pause_by_hint_suppresses_like_a_manual_pause() -> None:
    made = schedule(adaptive=True)
    hint = PauseHint(until=at(3), created_at=at(0.5), actor="agent", reason="quiet")
    progress = replace(first_progress(made), hints=Hints(pause=hint))
    during = pass_at(made, 1, progress=progress)
    assert during.verdicts == ()
    assert during.progress.wake_at == at(3)
    after = pass_at(made, 3, progress=during.progress)
    assert verdict_rows(after) == [("paused", 1), ("paused", 2), ("fire", 3)]
    assert after.progress.hints.pause is None


def test_a_pause_by_hint_begins_when_it_was_asked_for() -> None:
    made = schedule(Every(10 * MINUTE, NOON), adaptive=True)
    progress = replace(first_progress(made), hints=Hints(pause=PauseHint(until=at(28))), paused_at=at(15))
    progress = apply_decision(made, progress, plan_next(made, progress, now=at(15)))
    after = pass_at(made, 29, progress=progress)
    assert verdict_rows(after) == [("fire", 10), ("paused", 20)]
    assert after.progress.paused_at is None


def test_a_parked_schedule_stays_parked_whatever_its_pause() -> None:
    progress = replace(
        first_progress(schedule()), state=ScheduleState.PARKED, paused_at=at(0), paused_until=at(1)
    )
    after = pass_at(schedule(), 5, progress=progress)
    assert (after.verdicts, after.progress.state, after.progress.wake_at) == ((), ScheduleState.PARKED, None)


def test_with_align_now_a_schedule_runs_at_the_end_of_its_pause() -> None:
    made = schedule(Every(10 * MINUTE, NOON), align=Align.NOW)
    after = pass_at(made, 7, progress=paused(made, 1, 7))
    assert verdict_rows(after) == [("fire", 7)]
    assert after.verdicts[0].source is Source.PAUSED
    assert after.progress.next_at == at(17)


def test_under_a_clamp_the_instants_of_a_pause_are_skipped() -> None:
    made = schedule(Cron("*/5 * * * *"), clamp=Clamp(min=2 * MINUTE))
    after = pass_at(made, 7, progress=paused(made, 1, 7))
    assert verdict_rows(after) == [("paused", 5)]
    assert after.progress.next_at == at(10)


# Calendars, deadlines, limits, ends


def test_an_excluded_instant_is_recorded_and_does_not_run() -> None:
    made = schedule(calendar=CalendarRule(except_=("closed",)), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 4)
    assert verdict_rows(admission) == [("fire", 1), ("fire", 2), ("excluded", 3), ("excluded", 4)]


def test_an_excluded_instant_behind_a_carried_one_is_decided_once() -> None:
    rule = CalendarRule(except_=("closed",))
    made = schedule(
        calendar=rule, catch_up=CatchUp.ALL, catch_up_limit=1, grace=SECOND, overlap=Overlap.ALLOW
    )
    first = pass_at(made, 4.5)
    assert verdict_rows(first) == [("fire", 1)]
    second = pass_at(made, 4.5, progress=first.progress)
    assert verdict_rows(second) == [("fire", 2), ("excluded", 3), ("excluded", 4)]


def test_with_align_now_an_excluded_instant_does_not_run() -> None:
    made = schedule(Every(4 * MINUTE, NOON), align=Align.NOW, calendar=CalendarRule(except_=("closed",)))
    first = pass_at(made, 4)
    assert verdict_rows(first) == [("excluded", 4)]
    assert first.progress.next_at == at(8)


def test_an_occurrence_past_its_deadline_is_skipped() -> None:
    made = schedule(deadline=90 * SECOND, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    assert verdict_rows(pass_at(made, 3)) == [("deadline", 1), ("fire", 2), ("fire", 3)]


def test_a_schedule_has_at_most_max_runs_runs() -> None:
    made = schedule(max_runs=2, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 5)
    assert verdict_rows(admission) == [("fire", 1), ("fire", 2)]
    assert admission.progress.next_at is None
    assert pass_at(made, 50, progress=admission.progress).verdicts == ()


def test_skipped_occurrences_do_not_count_towards_max_runs() -> None:
    made = schedule(max_runs=1)
    first = pass_at(made, 1, in_flight=BUSY)
    assert verdict_rows(first) == [("overlap", 1)]
    assert verdict_rows(pass_at(made, 2, progress=first.progress)) == [("fire", 2)]


def test_start_at_and_end_at_are_inclusive() -> None:
    made = schedule(start_at=at(2), end_at=at(4), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    admission = pass_at(made, 10)
    assert verdict_rows(admission) == [("fire", 2), ("fire", 3), ("fire", 4)]
    assert admission.progress.next_at is None


def test_a_schedule_whose_last_occurrence_was_skipped_is_finished() -> None:
    made = schedule(Once(at(5)), catch_up=CatchUp.NONE)
    admission = pass_at(made, 60)
    assert verdict_rows(admission) == [("missed", 5)]
    assert (admission.progress.state, admission.progress.reason) == (
        ScheduleState.FINISHED,
        "no further occurrences",
    )


def test_a_schedule_with_a_live_run_is_not_finished() -> None:
    made = schedule(Once(at(5)))
    assert pass_at(made, 5).progress.state is ScheduleState.ACTIVE
    assert pass_at(made, 5, in_flight=BUSY).progress.state is ScheduleState.ACTIVE


def test_a_manual_schedule_is_never_finished() -> None:
    admission = pass_at(schedule(Manual()), 500)
    assert (admission.verdicts, admission.progress.state) == ((), ScheduleState.ACTIVE)


# After the last run


def test_a_delay_after_the_last_run_waits_for_that_run_to_end() -> None:
    made = schedule(After(5 * MINUTE))
    first = pass_at(made, 5)
    assert verdict_rows(first) == [("fire", 5)]
    assert first.progress.next_at is None
    done = Run(id="r", planned_at=at(5), fire_at=at(5), state=RunState.SUCCEEDED, created_at=at(5))
    progress, decision = settle_schedule(made, first.progress, done, now=at(8))
    assert decision is not None
    assert progress.next_at == decision.at == at(13)


def test_a_delay_whose_occurrence_was_skipped_starts_again_from_now() -> None:
    made = schedule(After(5 * MINUTE), catch_up=CatchUp.NONE)
    missed = pass_at(made, 30)
    assert verdict_rows(missed) == [("missed", 5)]
    assert missed.progress.next_at == at(35)
    assert plan_next(made, missed.progress, now=at(31)).at == at(35)


def test_a_delay_that_fell_into_a_pause_starts_again_from_its_end() -> None:
    made = schedule(After(5 * MINUTE))
    after = pass_at(made, 20, progress=paused(made, 1, 20))
    assert verdict_rows(after) == [("paused", 5)]
    assert after.progress.next_at == at(25)


# Hints, clamps and cadence


def test_an_early_admission_does_not_change_the_decision() -> None:
    made = schedule(Every(5 * MINUTE, NOON), align=Align.NOW)
    progress = first_progress(made)
    for minute in (1, 2, 3, 4.9):
        progress = pass_at(made, minute, progress=progress).progress
    assert progress.next_at == at(5)


def test_a_one_shot_hint_is_consumed_by_the_occurrence_that_used_it() -> None:
    made = schedule(Every(HOUR, NOON), adaptive=True)
    hint = OneShotHint(at=at(10), expires_at=at(30))
    progress = replace(first_progress(made), hints=Hints(one_shot=hint))
    progress = apply_decision(made, progress, plan_next(made, progress, now=NOON))
    for in_flight, verdict in ((IDLE, "fire"), (BUSY, "overlap")):
        admission = pass_at(made, 10, progress=progress, in_flight=in_flight)
        assert verdict_rows(admission) == [(verdict, 10)]
        assert admission.progress.hints.one_shot is None
        assert admission.progress.next_at == at(60)
    (fire,) = pass_at(made, 10, progress=progress).verdicts
    assert isinstance(fire, Fire)
    assert fire.source is Source.AI_ONESHOT
    assert [lost.source for lost in fire.trail] == [Source.BASELINE_INTERVAL]


def test_occurrences_displaced_by_a_hint_are_not_missed_after_it_expires() -> None:
    made = schedule(adaptive=True, catch_up=CatchUp.ALL)
    hint = IntervalHint(interval=HOUR, expires_at=at(120))
    progress = replace(first_progress(made), hints=Hints(interval=hint))
    progress = apply_decision(made, progress, plan_next(made, progress, now=NOON))
    assert progress.next_at == at(60)
    cleared = replace(progress, hints=Hints())
    cleared = apply_decision(made, cleared, plan_next(made, cleared, now=at(20)))
    assert verdict_rows(pass_at(made, 21, progress=cleared)) == [("fire", 21)]
    paused_then = replace(cleared, paused_at=at(20.5), paused_until=at(22))
    paused_then = apply_decision(made, paused_then, plan_next(made, paused_then, now=at(20.5)))
    assert verdict_rows(pass_at(made, 22, progress=paused_then)) == [("paused", 21), ("fire", 22)]


def test_occurrences_during_the_run_that_ends_a_streak_are_caught_up_and_none_before_it() -> None:
    made = schedule(cadence=Ladder(steps=(5 * MINUTE,)), catch_up=CatchUp.ALL)
    failed = Run(id="r", planned_at=at(1), fire_at=at(1), state=RunState.FAILED, created_at=at(1))
    first = pass_at(made, 1)
    progress, _ = settle_schedule(made, first.progress, failed, now=at(1.5))
    assert progress.next_at == at(6.5)
    second = pass_at(made, 6.5, progress=progress)
    assert verdict_rows(second) == [("fire", 6.5)]
    done = replace(failed, planned_at=at(6.5), state=RunState.SUCCEEDED)
    progress, _ = settle_schedule(made, second.progress, done, now=at(9.5))
    assert progress.next_at == at(7)
    assert verdict_rows(pass_at(made, 9.5, progress=progress)) == [("fire", 7), ("hold", 8), ("hold", 9)]


def test_an_expired_hint_does_not_hide_missed_occurrences() -> None:
    made = schedule(adaptive=True)
    old = Hints(interval=IntervalHint(interval=HOUR, expires_at=NOON))
    progress = replace(first_progress(made), hints=old)
    assert verdict_rows(pass_at(made, 3, progress=progress)) == [("missed", 1), ("missed", 2), ("fire", 3)]


def hinted(made: Schedule, **hints: Any) -> ScheduleProgress:
    """The progress of a schedule whose hints were given at noon."""
    progress = replace(first_progress(made), hints=Hints(**hints))
    return apply_decision(made, progress, plan_next(made, progress, now=NOON))


def test_a_schedule_wakes_when_its_hint_expires_and_follows_its_trigger_again() -> None:
    made = schedule(Every(5 * MINUTE, NOON), adaptive=True)
    progress = hinted(made, interval=IntervalHint(interval=DAY, expires_at=at(10)))
    assert (progress.next_at, progress.wake_at) == (NOON + DAY, at(10))
    on_time = pass_at(made, 10, progress=progress)
    assert verdict_rows(on_time) == [("fire", 10)]
    early = replace(progress, hints=Hints(interval=IntervalHint(interval=DAY, expires_at=at(8))))
    quiet = pass_at(made, 8, progress=early)
    assert (quiet.verdicts, quiet.progress.next_at, quiet.progress.wake_at) == ((), at(10), at(10))


def test_after_an_outage_the_trigger_decides_from_the_expiry_of_a_hint_on() -> None:
    made = schedule(adaptive=True, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    progress = hinted(made, interval=IntervalHint(interval=150 * SECOND, expires_at=at(5)))
    late = pass_at(made, 7.5, progress=progress)
    assert verdict_rows(late) == [("fire", 2.5), ("fire", 5), ("fire", 6), ("fire", 7)]
    assert [v.source for v in late.verdicts][:2] == [Source.AI_INTERVAL, Source.BASELINE_INTERVAL]
    assert late.progress.hints == Hints()


def test_an_instant_due_before_a_hint_is_an_occurrence_also_while_the_hint_is_in_force() -> None:
    made = schedule(adaptive=True, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    hint = IntervalHint(interval=HOUR, created_at=at(3.5), expires_at=at(90))
    progress = replace(first_progress(made), hints=Hints(interval=hint))
    after = pass_at(made, 6.5, progress=progress)
    assert verdict_rows(after) == [("fire", 1), ("fire", 2), ("fire", 3)]
    assert after.progress.next_at == at(66.5)


def test_an_expired_hint_is_kept_while_its_occurrence_is_carried_over() -> None:
    made = schedule(adaptive=True, catch_up=CatchUp.ALL, catch_up_limit=1)
    progress = hinted(made, interval=IntervalHint(interval=150 * SECOND, expires_at=at(5)))
    full = pass_at(made, 7.5, progress=progress, in_flight=InFlightCounts(live=1, held=1))
    assert (full.verdicts, full.progress.next_at) == ((), at(2.5))
    first = pass_at(made, 7.5, progress=full.progress)
    second = pass_at(made, 7.5, progress=first.progress)
    assert verdict_rows(first) + verdict_rows(second)[:1] == [("fire", 2.5), ("fire", 5)]


def test_a_one_shot_hint_hides_no_instant_of_the_trigger_and_runs_after_an_outage() -> None:
    made = schedule(Every(5 * MINUTE, NOON), adaptive=True, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    progress = hinted(made, one_shot=OneShotHint(at=at(8), expires_at=at(30)))
    assert (progress.next_at, progress.wake_at) == (at(5), at(5))
    before = pass_at(made, 6, progress=progress)
    assert (verdict_rows(before), before.progress.next_at) == ([("fire", 5)], at(8))
    late = pass_at(made, 16, progress=progress)
    assert verdict_rows(late) == [("fire", 5), ("fire", 8), ("fire", 10), ("fire", 15)]
    assert late.progress.hints.one_shot is None


def test_the_instants_that_a_minimum_displaces_are_one_row() -> None:
    made = schedule(clamp=Clamp(min=150 * SECOND), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    assert pass_at(made, 2, progress=first_progress(made)).verdicts == ()
    after = pass_at(made, 5.5)
    assert verdict_rows(after) == [("clamped", 1), ("fire", 2.5), ("clamped", 3), ("fire", 5)]
    counts = [(v.count, v.last_of) for v in after.verdicts if isinstance(v, Drop)]
    assert counts == [(2, at(2)), (2, at(4))]
    assert (after.progress.cursor, after.progress.next_at) == (at(5), at(7.5))


def test_a_maximum_adds_occurrences_and_displaces_none() -> None:
    made = schedule(Every(5 * MINUTE, NOON), clamp=Clamp(max=2 * MINUTE), catch_up=CatchUp.ALL)
    after = pass_at(made, 7.5)
    assert [planned for _, planned in verdict_rows(after)] == [2, 4, 5, 7]
    assert [v.source for v in after.verdicts][2:] == [Source.BASELINE_INTERVAL, Source.CLAMPED_MAX]


def test_the_clamp_counts_from_a_one_shot_hint() -> None:
    made = schedule(Every(5 * MINUTE, NOON), adaptive=True, clamp=Clamp(min=2 * MINUTE))
    after = pass_at(made, 4, progress=hinted(made, one_shot=OneShotHint(at=at(4), expires_at=at(30))))
    assert (verdict_rows(after), after.progress.next_at) == ([("fire", 4)], at(6))
    assert verdict_rows(pass_at(made, 6, progress=after.progress)) == [("clamped", 5), ("fire", 6)]


def test_before_an_edit_displaced_instants_are_recorded_up_to_now() -> None:
    made = schedule(clamp=Clamp(min=5 * MINUTE))
    edited = admit_general(made, first_progress(made), in_flight=IDLE, now=at(3.5), before_edit=True)
    (drop,) = edited.verdicts
    assert isinstance(drop, Drop)
    assert (drop.planned_at, drop.last_of, drop.count) == (at(1), at(3), 3)
    assert (edited.progress.cursor, edited.progress.next_at) == (at(3), at(5))


@given(
    trigger=triggers,
    low=st.none() | st.integers(1, 600).map(lambda n: n * SECOND),
    high=st.none() | st.integers(601, 1200).map(lambda n: n * SECOND),
    steps=st.lists(st.integers(1, 900), min_size=1, max_size=12),
)
def test_under_a_clamp_every_instant_is_accounted_for_however_late_the_engine_is(
    trigger: AnyTrigger, low: timedelta | None, high: timedelta | None, steps: list[int]
) -> None:
    made = schedule(trigger, clamp=Clamp(min=low, max=high), catch_up=CatchUp.NONE, overlap=Overlap.ALLOW)
    progress, now, rows = first_progress(made), NOON, list[Verdict]()
    for step in steps:
        now += step * SECOND
        admission = admit(made, progress, in_flight=IDLE, now=now)
        progress, rows = admission.progress, [*rows, *admission.verdicts]
    prompt = admit(made, first_progress(made), in_flight=IDLE, now=now).verdicts
    assert [v.planned_at for v in rows] == [v.planned_at for v in prompt]
    counted = sum(v.count for v in rows if isinstance(v, Drop))
    planned = set(instants(made, NOON, progress.cursor))
    own_rows = {v.planned_at for v in rows if not isinstance(v, Drop)}
    assert counted + len(own_rows & planned) == len(planned)


def test_occurrences_due_before_a_failure_are_decided_before_its_cadence() -> None:
    made = schedule(cadence=Ladder(steps=(5 * MINUTE,)), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    failed = Run(id="r", planned_at=at(1), fire_at=at(1), state=RunState.FAILED, created_at=at(1))
    progress, decision = settle_schedule(made, pass_at(made, 1).progress, failed, now=at(3.5))
    assert (decision, progress.next_at) == (None, at(2))
    after = pass_at(made, 4.5, progress=progress)
    assert verdict_rows(after) == [("fire", 2), ("fire", 3)]
    assert after.progress.next_at == at(8.5)


def test_a_pass_dated_before_a_streak_leaves_the_trigger_what_comes_before_the_streak() -> None:
    """Dense seed 150000136: a process was suspended between the clock and its transaction for an hour."""
    made = schedule(cadence=Ladder(steps=(5 * MINUTE,)), catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    progress = replace(first_progress(made), failures=1, failing_since=at(4.5), last_finished_at=at(4.5))
    late = pass_at(made, 1, progress=progress)
    assert (verdict_rows(late), late.progress.next_at) == ([("fire", 1)], at(2))
    after = pass_at(made, 6, progress=late.progress)
    assert (verdict_rows(after), after.progress.next_at) == ([("fire", i) for i in (2, 3, 4)], at(9.5))


# Jitter


def test_early_jitter_admits_future_occurrences_and_none_is_missed() -> None:
    made = schedule(
        jitter=150 * SECOND, jitter_side=JitterSide.BOTH, overlap=Overlap.ALLOW, catch_up=CatchUp.NONE
    )
    progress = first_progress(made)
    assert progress.wake_at == at(1) - 150 * SECOND
    admission = pass_at(made, 1, progress=progress)
    assert verdict_rows(admission) == [("fire", 1), ("fire", 2), ("fire", 3)]


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


# Properties of all schedules


@given(
    trigger=triggers,
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    steps=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    busy=st.booleans(),
    clamp=st.sampled_from([Clamp(), Clamp(min=2 * MINUTE), Clamp(max=10 * MINUTE)]),
    hint=st.sampled_from([None, 90 * SECOND, HOUR]),
)
def test_the_fast_path_agrees_with_general_admission(
    *,
    trigger: AnyTrigger,
    overlap: Overlap,
    catch_up: CatchUp,
    steps: list[int],
    busy: bool,
    clamp: Clamp,
    hint: timedelta | None,
) -> None:
    made = schedule(trigger, overlap=overlap, catch_up=catch_up, clamp=clamp, adaptive=hint is not None)
    progress, now, in_flight = first_progress(made), NOON, InFlightCounts(live=int(busy))
    if hint is not None:
        progress = hinted(made, interval=IntervalHint(interval=hint, expires_at=at(10)))
    for step in steps:
        now += step * SECOND
        short = admit_on_time(made, progress, in_flight=in_flight, now=now)
        full = admit_general(made, progress, in_flight=in_flight, now=now)
        assert short is None or short == full
        progress = full.progress


def test_a_plain_schedule_takes_the_fast_path() -> None:
    made = schedule(Every(MINUTE, NOON))
    assert admit_on_time(made, first_progress(made), in_flight=InFlightCounts(), now=at(1)) is not None
    assert admit_on_time(made, first_progress(made), in_flight=InFlightCounts(live=1), now=at(1)) is None
    assert admit_on_time(made, first_progress(made), in_flight=InFlightCounts(), now=at(2)) is None


@settings(max_examples=300)
@given(made=steady_schedules(), max_runs=st.none() | st.integers(1, 5), data=st.data())
def test_every_due_occurrence_is_accounted_for_exactly_once(
    made: Schedule, max_runs: int | None, data: st.DataObject
) -> None:
    world = ScheduleSimulation(replace(made, max_runs=max_runs))
    for _ in range(data.draw(st.integers(1, 8))):
        world.now += data.draw(st.sampled_from([SECOND, 20 * SECOND, 3 * MINUTE, 25 * MINUTE]))
        event = data.draw(st.sampled_from(["look", "look", "settle", "pause", "resume"]))
        if event == "settle":
            world.settle()
        elif event == "pause" and not world.is_paused() and world.progress.paused_until is None:
            state = data.draw(st.sampled_from([ScheduleState.ACTIVE, ScheduleState.PAUSED]))
            world.pause(data.draw(st.sampled_from([30 * SECOND, 7 * MINUTE])), state=state)
        elif event == "resume" and world.is_paused():
            world.resume()
        if world.progress.state in (ScheduleState.ACTIVE, ScheduleState.PAUSED):
            world.admit()
    _finish(world)
    _check_accounts(world)


def _finish(world: ScheduleSimulation) -> None:
    """Finish all runs and admit until nothing is carried over."""
    world.now += 8 * MINUTE
    for _ in range(500):
        world.settle()
        if world.progress.state is ScheduleState.FINISHED or not world.admit().more:
            return
    raise AssertionError("the backlog never drained")


def _check_accounts(world: ScheduleSimulation) -> None:
    made = world.schedule
    found = expanded_instants(world.verdicts, made)
    due = instants(made, NOON, world.now)
    runs = [verdict for verdict in world.verdicts if is_run(verdict)]
    assert found == sorted(set(found))
    assert len(runs) == world.progress.runs
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
def test_catch_up_none_never_runs_missed_occurrences(made: Schedule, minutes: int) -> None:
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
    admission = admit(made, first_progress(made), in_flight=IDLE, now=NOON + days * DAY)
    assert len(admission.verdicts) <= 1001
    assert admission.more == (days * 1440 > 10_000)
