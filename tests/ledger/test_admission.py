"""An occurrence is admitted once: its row and the progress are one transaction, also under races."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.support.concurrency import all_at_once
from tests.ledger.ledger_kit import ADA, TICK, LedgerHarness, at, kinds
from timewright.core.calendars import Calendar, CalendarRule, Roll, Span
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.policies import CatchUp, Overlap
from timewright.core.recurrence.triggers import After, Cron, Every, Once
from timewright.core.run.run import RunState
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import Handoff
from timewright.ledger import admission_batch as admitting
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.admit import admit_due
from timewright.ledger.queues.policies import put_calendar
from timewright.ports import ProgressUpdate, StoredObject
from timewright.stores.transaction import SqlTransaction


def test_nothing_is_admitted_before_its_instant(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.clock.advance(MINUTE - TICK)
    assert bench.admit().schedules_read == 0
    bench.clock.advance(TICK)
    assert kinds(bench.admit().facts) == ["RunAdmitted"]
    assert bench.outcomes_of(job) == [(1, "ready")]
    assert bench.progress(job).cursor == at(1)
    assert bench.progress(job).next_at == at(2)


def test_a_run_remembers_where_it_came_from(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Cron("*/5 * * * *"), priority=7, target=Handoff())
    bench.move_to(5)
    bench.admit()
    (run,) = bench.runs(job)
    assert (run.source, run.revision, run.priority, run.handoff) == ("baseline-cron", 1, 7, True)
    assert (run.planned_at, run.fire_at, run.created_at) == (at(5), at(5), at(5))


def test_two_instances_on_one_database_admit_each_occurrence_once(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    jobs = [bench.schedule(f"job-{i}", overlap=Overlap.ALLOW) for i in range(20)]
    benches = [another("left"), another("right")]
    for minute in (1, 2, 3):
        bench.move_to(minute)
        answers = all_at_once([partial(one.admit) for one in benches * 2])
        assert [a for a in answers if isinstance(a, Exception)] == []
        assert sum(kinds(a.facts).count("RunAdmitted") for a in answers) == 20
    for job in jobs:
        assert bench.outcomes_of(job) == [(1, "ready"), (2, "ready"), (3, "ready")]


def test_a_run_that_starts_at_admission_is_dated_after_the_wait_for_the_store(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule()
    bench.move_to(1)
    bench.admit(local_capacity=LocalCapacity(holder="b", free_slots=5))
    (first,) = bench.runs(job)
    bench.move_to(2)
    stale = bench.now
    bench.advance(10)
    bench.settle(first)
    bench.advance(1)
    admit_due(
        bench.store,
        ids=bench.ids,
        now=stale,
        limit=10,
        local_capacity=LocalCapacity(holder="a", free_slots=5),
    )
    assert bench.runs(job)[-1].leased_at == bench.now


def test_an_occurrence_that_is_there_already_is_an_ordinary_no_op(bench: LedgerHarness) -> None:
    """Like after a restored cursor: the existing row wins, the links skip it, nothing is reported twice."""
    job = bench.schedule(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    opened = bench.progress(job)
    bench.move_to(2)
    bench.admit()
    bench.store.write(lambda tx: tx.save_progress([ProgressUpdate(job.id, opened)]))
    bench.move_to(4)
    told = bench.admit().facts
    assert [fact.planned_at for fact in told if hasattr(fact, "planned_at")] == [at(3), at(4)]
    assert [planned for planned, _ in bench.outcomes_of(job)] == [1, 2, 3, 4]
    assert bench.progress(job).cursor == at(4)


class Crash(Exception):
    """A simulated crash."""


@pytest.mark.parametrize("verb", ["add_runs", "save_progress"])
def test_a_crash_between_the_row_and_the_cursor_leaves_neither(
    bench: LedgerHarness, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    job = bench.schedule()
    before = bench.progress(job)
    bench.move_to(1)

    def dying(self: Any, rows: Any) -> Any:
        plain(self, rows)
        raise Crash

    plain = getattr(SqlTransaction, verb)
    with monkeypatch.context() as patch:
        patch.setattr(SqlTransaction, verb, dying)
        with pytest.raises(Crash):
            bench.admit()
    assert bench.runs(job) == []
    assert bench.progress(job) == before
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready")]


def test_an_admission_is_limited_and_reports_that_more_are_due(bench: LedgerHarness) -> None:
    for i in range(5):
        bench.schedule(f"job-{i}")
    bench.move_to(1)
    first = bench.admit(limit=3)
    assert (first.schedules_read, first.admit_again) == (3, True)
    assert (second := bench.admit(limit=3)).schedules_read == 2
    assert not second.admit_again


def test_more_than_a_thousand_skips_are_one_row_that_counts(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(SECOND), catch_up=CatchUp.NONE)
    bench.clock.advance(minutes=30)
    told = bench.admit().facts
    assert kinds(told) == ["OccurrencesDropped", "RunAdmitted"]
    assert bench.outcomes_of(job) == [(1 / 60, "missedx1799"), (30, "ready")]


def test_a_run_that_starts_here_and_now_is_inserted_leased(bench: LedgerHarness) -> None:
    plain = bench.schedule("plain")
    bench.schedule("limited", limits=("api",))
    bench.schedule("outside", target=Handoff())
    bench.schedule("jittered", jitter=30 * SECOND)
    bench.move_to(1)
    admitted = bench.admit(local_capacity=LocalCapacity(holder="here", free_slots=10))
    ((run, schedule),) = admitted.leased
    assert schedule == plain
    assert (run.state, run.fence, run.holder) == (RunState.LEASED, 1, "here")
    assert bench.run(run) == run
    assert kinds(admitted.facts).count("RunLeased") == 1
    bench.settle(run)
    assert bench.outcomes_of(plain) == [(1, "succeeded")]


def test_no_more_are_leased_at_once_than_were_offered(bench: LedgerHarness) -> None:
    for i in range(5):
        bench.schedule(f"job-{i}")
    bench.move_to(1)
    assert len(bench.admit(local_capacity=LocalCapacity(holder="here", free_slots=3)).leased) == 3
    assert len(bench.lease()) == 2


def test_without_capacity_for_all_urgent_runs_go_first(bench: LedgerHarness) -> None:
    for name, priority in (("first", 200), ("urgent", 10)):
        bench.schedule(name, priority=priority)
    bench.move_to(1)
    assert bench.admit(local_capacity=LocalCapacity(holder="here", free_slots=1)).leased == ()
    urgent, first = bench.lease()
    assert (urgent.priority, first.priority) == (10, 200)


def test_a_schedule_whose_decision_fails_is_parked_alone(
    bench: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = bench.schedule("good"), bench.schedule("bad")

    def failing(decide: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(schedule: Any, progress: Any, **named: Any) -> Any:
            if schedule.name == "bad":
                raise ZeroDivisionError("an unexpected error")
            return decide(schedule, progress, **named)

        return wrapper

    bench.move_to(1)
    with monkeypatch.context() as patch:
        for name in ("next_if_on_time", "admit_general"):
            patch.setattr(admitting, name, failing(getattr(admitting, name)))
        told = bench.admit().facts
    assert sorted(kinds(told)) == ["RunAdmitted", "ScheduleParked"]
    assert bench.outcomes_of(good) == [(1, "ready")]
    assert bench.outcomes_of(bad) == []
    progress = bench.progress(bad)
    assert (progress.state, progress.wake_at) == (ScheduleState.PARKED, None)
    assert progress.reason == "an unexpected error"
    bench.move_to(3)
    bench.resume(bad)
    assert bench.progress(bad).state is ScheduleState.ACTIVE


def test_an_unreadable_calendar_parks_only_the_schedules_that_name_it(bench: LedgerHarness) -> None:
    closed = Calendar(name="closed", spans=(Span(start=at(0), end=at(1.5)),))
    put_calendar(bench.store, closed, by=ADA, now=bench.now)
    bound = bench.schedule("bound", calendar=CalendarRule(except_=("closed",)))
    free = bench.schedule("free")
    bench.move_to(1)
    bench.admit()
    assert bench.outcomes_of(bound) == [(1, "excluded")]
    torn = StoredObject(
        kind="calendar", namespace="default", name="closed", revision=2, body=b'{"x": 1}', at=at(1)
    )
    bench.store.write(lambda tx: tx.put_objects([torn]))
    bench.move_to(2)
    bench.work()
    bench.admit()
    assert bench.progress(bound).state is ScheduleState.PARKED
    assert "calendar closed cannot be read" in bench.progress(bound).reason
    assert bench.outcomes_of(free)[-1] == (2, "ready")


def test_a_calendar_belongs_to_its_namespace(bench: LedgerHarness) -> None:
    for namespace, end in (("default", 1.5), ("other", 5)):
        closed = Calendar(name="closed", namespace=namespace, spans=(Span(start=at(0), end=at(end)),))
        put_calendar(bench.store, closed, by=ADA, now=bench.now)
    rule = CalendarRule(except_=("closed",))
    ours = bench.schedule("job", calendar=rule)
    theirs = bench.schedule("job", calendar=rule, namespace="other")
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(ours) == [(1, "excluded"), (2, "ready")]
    assert bench.outcomes_of(theirs) == [(1, "excluded"), (2, "excluded")]


def test_once_is_finished_when_its_run_is_over_whatever_the_outcome(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Once(at(1)))
    bench.move_to(1)
    bench.admit()
    assert bench.progress(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.progress(job).state is ScheduleState.FINISHED
    assert bench.outcomes_of(job) == [(1, "succeeded")]


def test_a_past_instant_that_was_asked_for_runs_at_once(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Once(at(-60)), catch_up=CatchUp.LAST)
    bench.admit()
    assert bench.outcomes_of(job) == [(-60, "ready")]


def test_a_schedule_has_its_runs_and_then_is_finished(bench: LedgerHarness) -> None:
    job = bench.schedule(max_runs=2)
    for minute in (1, 2, 3):
        bench.move_to(minute)
        bench.admit()
        bench.work()
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "succeeded")]
    assert bench.progress(job).state is ScheduleState.FINISHED


def test_the_end_of_its_life_is_inside_and_then_it_is_finished(bench: LedgerHarness) -> None:
    job = bench.schedule(end_at=at(2))
    bench.move_to(2)
    bench.admit()
    assert bench.progress(job).state is ScheduleState.ACTIVE
    assert "ScheduleFinished" in kinds(bench.settle(*bench.lease()).facts)
    bench.move_to(9)
    assert bench.admit().schedules_read == 0
    assert bench.progress(job).state is ScheduleState.FINISHED


def test_a_schedule_whose_last_run_a_calendar_leaves_is_finished_after_it(bench: LedgerHarness) -> None:
    hours = Calendar(name="hours", spans=(Span(start=at(0), end=at(15)),))
    put_calendar(bench.store, hours, by=ADA, now=bench.now)
    rule = CalendarRule(only=("hours",), roll=Roll.NEXT)
    job = bench.schedule(trigger=Every(10 * MINUTE), calendar=rule)
    bench.move_to(10)
    bench.admit()
    assert bench.progress(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.progress(job).state is ScheduleState.FINISHED


def test_a_delay_counts_from_the_end_of_the_last_run(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=After(5 * MINUTE))
    bench.move_to(5)
    bench.admit()
    assert bench.progress(job).next_at is None
    (run,) = bench.lease()
    bench.move_to(8)
    assert bench.admit().schedules_read == 0
    bench.settle(run)
    assert bench.progress(job).next_at == at(13)
    bench.move_to(13)
    bench.admit()
    assert bench.outcomes_of(job) == [(5, "succeeded"), (13, "ready")]


def test_the_first_run_after_an_outage_knows_how_many_were_missed(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    bench.clock.advance(hours=5, minutes=30)
    bench.admit()
    assert bench.runs(job)[-1].missed == 4


def test_a_history_reads_from_the_newest_row_back_without_a_gap(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (2, 3, 7, 8):
        bench.move_to(minute)
        bench.admit()
    rows = bench.runs(job)
    assert [run.previous for run in rows] == ["", *(run.id for run in rows[:-1])]
    assert bench.due(job).last_run == rows[-1].id


def test_a_row_never_changes_its_planned_instant(bench: LedgerHarness) -> None:
    job = bench.schedule(jitter=20 * SECOND)
    bench.move_to(1)
    bench.admit()
    (run,) = bench.runs(job)
    assert at(1) < run.fire_at < at(1) + 20 * SECOND
    assert bench.lease() == []
    bench.clock.step(run.fire_at)
    (leased,) = bench.lease()
    assert replace(leased, fire_at=run.fire_at).planned_at == at(1)
