"""An occurrence is admitted once: its row and the cursor are one transaction, whoever races."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.together import all_at_once
from tests.ledger.bench import ADA, TICK, Bench, at, kinds
from timewright.core import ordinary
from timewright.core.calendars import Calendar, CalendarRule, Roll, Span
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies import CatchUp, Overlap
from timewright.core.run import RunState
from timewright.core.schedule import ScheduleState
from timewright.core.target import Handoff
from timewright.core.triggers import After, Cron, Every, Once
from timewright.ledger import admission_pass as admitting
from timewright.ledger.admission_pass import Offer
from timewright.ledger.admit import admit_due
from timewright.ledger.policy import put_calendar
from timewright.ports import Stood, Stored
from timewright.stores.sqlstore import SqlTransaction


def test_nothing_is_admitted_before_its_instant(bench: Bench) -> None:
    job = bench.schedule()
    bench.clock.advance(MINUTE - TICK)
    assert bench.admit().looked_at == 0
    bench.clock.advance(TICK)
    assert kinds(bench.admit().facts) == ["RunAdmitted"]
    assert bench.fates(job) == [(1, "ready")]
    assert bench.standing(job).cursor == at(1)
    assert bench.standing(job).next_at == at(2)


def test_a_run_remembers_where_it_came_from(bench: Bench) -> None:
    job = bench.schedule(trigger=Cron("*/5 * * * *"), priority=7, target=Handoff())
    bench.go(5)
    bench.admit()
    (run,) = bench.runs(job)
    assert (run.source, run.revision, run.priority, run.handoff) == ("baseline-cron", 1, 7, True)
    assert (run.planned_at, run.fire_at, run.created_at) == (at(5), at(5), at(5))


def test_two_instances_on_one_database_admit_each_occurrence_once(
    bench: Bench, another: Callable[[str], Bench]
) -> None:
    jobs = [bench.schedule(f"job-{i}", overlap=Overlap.ALLOW) for i in range(20)]
    benches = [another("left"), another("right")]
    for minute in (1, 2, 3):
        bench.go(minute)
        answers = all_at_once([partial(one.admit) for one in benches * 2])
        assert [a for a in answers if isinstance(a, Exception)] == []
        assert sum(kinds(a.facts).count("RunAdmitted") for a in answers) == 20
    for job in jobs:
        assert bench.fates(job) == [(1, "ready"), (2, "ready"), (3, "ready")]


def test_what_starts_at_once_is_dated_when_its_place_was_free_however_long_its_instance_stood_still(
    bench: Bench,
) -> None:
    job = bench.schedule()
    bench.go(1)
    bench.admit(offer=Offer(holder="b", capacity=5))
    (first,) = bench.runs(job)
    bench.go(2)
    stale = bench.now
    bench.rest(10)
    bench.settle(first)
    bench.rest(1)
    admit_due(bench.store, ids=bench.ids, now=stale, limit=10, offer=Offer(holder="a", capacity=5))
    assert bench.runs(job)[-1].leased_at == bench.now


def test_an_occurrence_that_is_there_already_is_an_ordinary_no_op(bench: Bench) -> None:
    """As after a restored cursor: the row decides, the chain closes around it, nothing is told twice."""
    job = bench.schedule(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    opened = bench.standing(job)
    bench.go(2)
    bench.admit()
    bench.store.write(lambda tx: tx.stand([Stood(job.id, opened)]))
    bench.go(4)
    told = bench.admit().facts
    assert [fact.planned_at for fact in told if hasattr(fact, "planned_at")] == [at(3), at(4)]
    assert [planned for planned, _ in bench.fates(job)] == [1, 2, 3, 4]
    assert bench.standing(job).cursor == at(4)


class Crash(Exception):
    """The instance dies here."""


@pytest.mark.parametrize("verb", ["add_runs", "stand"])
def test_a_crash_between_the_row_and_the_cursor_leaves_neither(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    job = bench.schedule()
    before = bench.standing(job)
    bench.go(1)

    def dying(self: Any, rows: Any) -> Any:
        plain(self, rows)
        raise Crash

    plain = getattr(SqlTransaction, verb)
    with monkeypatch.context() as patch:
        patch.setattr(SqlTransaction, verb, dying)
        with pytest.raises(Crash):
            bench.admit()
    assert bench.runs(job) == []
    assert bench.standing(job) == before
    bench.admit()
    assert bench.fates(job) == [(1, "ready")]


def test_a_pass_takes_so_many_schedules_and_says_that_there_are_more(bench: Bench) -> None:
    for i in range(5):
        bench.schedule(f"job-{i}")
    bench.go(1)
    first = bench.admit(limit=3)
    assert (first.looked_at, first.full) == (3, True)
    assert (second := bench.admit(limit=3)).looked_at == 2
    assert not second.full
    assert first.latest == at(1)


def test_more_than_a_thousand_skips_are_one_row_that_counts(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(SECOND), catch_up=CatchUp.NONE)
    bench.clock.advance(minutes=30)
    told = bench.admit().facts
    assert kinds(told) == ["OccurrencesDropped", "RunAdmitted"]
    assert bench.fates(job) == [(1 / 60, "missedx1799"), (30, "ready")]


def test_a_run_that_starts_here_and_now_is_inserted_leased(bench: Bench) -> None:
    plain = bench.schedule("plain")
    bench.schedule("limited", limits=("api",))
    bench.schedule("outside", target=Handoff())
    bench.schedule("jittered", jitter=30 * SECOND)
    bench.go(1)
    admitted = bench.admit(offer=Offer(holder="here", capacity=10))
    ((run, schedule),) = admitted.leased
    assert schedule == plain
    assert (run.state, run.fence, run.holder) == (RunState.LEASED, 1, "here")
    assert bench.run(run) == run
    assert kinds(admitted.facts).count("RunLeased") == 1
    bench.settle(run)
    assert bench.fates(plain) == [(1, "succeeded")]


def test_no_more_are_leased_at_once_than_were_offered(bench: Bench) -> None:
    for i in range(5):
        bench.schedule(f"job-{i}")
    bench.go(1)
    assert len(bench.admit(offer=Offer(holder="here", capacity=3)).leased) == 3
    assert len(bench.lease()) == 2


def test_where_not_all_have_room_the_urgent_do_not_wait_for_those_who_came_first(bench: Bench) -> None:
    for name, priority in (("first", 200), ("urgent", 10)):
        bench.schedule(name, priority=priority)
    bench.go(1)
    assert bench.admit(offer=Offer(holder="here", capacity=1)).leased == ()
    urgent, first = bench.lease()
    assert (urgent.priority, first.priority) == (10, 200)


def test_a_schedule_whose_decision_fails_is_parked_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = bench.schedule("good"), bench.schedule("bad")

    def failing(schedule: Any, standing: Any, **rest: Any) -> Any:
        if schedule.name == "bad":
            raise ZeroDivisionError("a fault nobody thought of")
        return ordinary.next_on_time(schedule, standing, **rest)

    bench.go(1)
    with monkeypatch.context() as patch:
        patch.setattr(admitting, "next_on_time", failing)
        told = bench.admit().facts
    assert sorted(kinds(told)) == ["RunAdmitted", "ScheduleParked"]
    assert bench.fates(good) == [(1, "ready")]
    assert bench.fates(bad) == []
    standing = bench.standing(bad)
    assert (standing.state, standing.wake_at) == (ScheduleState.PARKED, None)
    assert standing.reason == "a fault nobody thought of"
    bench.go(3)
    bench.resume(bad)
    assert bench.standing(bad).state is ScheduleState.ACTIVE


def test_a_calendar_that_cannot_be_read_parks_only_those_who_name_it(bench: Bench) -> None:
    closed = Calendar(name="closed", spans=(Span(start=at(0), end=at(1.5)),))
    put_calendar(bench.store, closed, by=ADA, now=bench.now)
    bound = bench.schedule("bound", calendar=CalendarRule(except_=("closed",)))
    free = bench.schedule("free")
    bench.go(1)
    bench.admit()
    assert bench.fates(bound) == [(1, "excluded")]
    torn = Stored(kind="calendar", namespace="default", name="closed", revision=2, body=b'{"x": 1}', at=at(1))
    bench.store.write(lambda tx: tx.put_objects([torn]))
    bench.go(2)
    bench.work()
    bench.admit()
    assert bench.standing(bound).state is ScheduleState.PARKED
    assert "calendar closed cannot be read" in bench.standing(bound).reason
    assert bench.fates(free)[-1] == (2, "ready")


def test_a_calendar_belongs_to_its_namespace(bench: Bench) -> None:
    for namespace, end in (("default", 1.5), ("other", 5)):
        closed = Calendar(name="closed", namespace=namespace, spans=(Span(start=at(0), end=at(end)),))
        put_calendar(bench.store, closed, by=ADA, now=bench.now)
    rule = CalendarRule(except_=("closed",))
    ours = bench.schedule("job", calendar=rule)
    theirs = bench.schedule("job", calendar=rule, namespace="other")
    bench.go(2)
    bench.admit()
    assert bench.fates(ours) == [(1, "excluded"), (2, "ready")]
    assert bench.fates(theirs) == [(1, "excluded"), (2, "excluded")]


def test_once_is_finished_when_its_run_is_over_whatever_the_outcome(bench: Bench) -> None:
    job = bench.schedule(trigger=Once(at(1)))
    bench.go(1)
    bench.admit()
    assert bench.standing(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.standing(job).state is ScheduleState.FINISHED
    assert bench.fates(job) == [(1, "succeeded")]


def test_a_past_instant_that_was_asked_for_runs_at_once(bench: Bench) -> None:
    job = bench.schedule(trigger=Once(at(-60)), catch_up=CatchUp.LAST)
    bench.admit()
    assert bench.fates(job) == [(-60, "ready")]


def test_a_schedule_has_its_runs_and_then_is_finished(bench: Bench) -> None:
    job = bench.schedule(max_runs=2)
    for minute in (1, 2, 3):
        bench.go(minute)
        bench.admit()
        bench.work()
    assert bench.fates(job) == [(1, "succeeded"), (2, "succeeded")]
    assert bench.standing(job).state is ScheduleState.FINISHED


def test_the_end_of_its_life_is_inside_and_then_it_is_finished(bench: Bench) -> None:
    job = bench.schedule(end_at=at(2))
    bench.go(2)
    bench.admit()
    assert bench.standing(job).state is ScheduleState.ACTIVE
    assert "ScheduleFinished" in kinds(bench.settle(*bench.lease()).facts)
    bench.go(9)
    assert bench.admit().looked_at == 0
    assert bench.standing(job).state is ScheduleState.FINISHED


def test_a_schedule_whose_last_run_a_calendar_leaves_is_finished_after_it(bench: Bench) -> None:
    hours = Calendar(name="hours", spans=(Span(start=at(0), end=at(15)),))
    put_calendar(bench.store, hours, by=ADA, now=bench.now)
    rule = CalendarRule(only=("hours",), roll=Roll.NEXT)
    job = bench.schedule(trigger=Every(10 * MINUTE), calendar=rule)
    bench.go(10)
    bench.admit()
    assert bench.standing(job).state is ScheduleState.ACTIVE
    bench.work()
    assert bench.standing(job).state is ScheduleState.FINISHED


def test_a_delay_counts_from_the_end_of_the_last_run(bench: Bench) -> None:
    job = bench.schedule(trigger=After(5 * MINUTE))
    bench.go(5)
    bench.admit()
    assert bench.standing(job).next_at is None
    (run,) = bench.lease()
    bench.go(8)
    assert bench.admit().looked_at == 0
    bench.settle(run)
    assert bench.standing(job).next_at == at(13)
    bench.go(13)
    bench.admit()
    assert bench.fates(job) == [(5, "succeeded"), (13, "ready")]


def test_the_first_run_after_an_outage_is_told_how_many_it_missed(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    bench.clock.advance(hours=5, minutes=30)
    bench.admit()
    assert bench.runs(job)[-1].missed == 4


def test_a_history_reads_from_the_newest_row_back_without_a_gap(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (2, 3, 7, 8):
        bench.go(minute)
        bench.admit()
    rows = bench.runs(job)
    assert [run.previous for run in rows] == ["", *(run.id for run in rows[:-1])]
    assert bench.due(job).last_run == rows[-1].id


def test_a_row_never_changes_its_planned_instant(bench: Bench) -> None:
    job = bench.schedule(jitter=20 * SECOND)
    bench.go(1)
    bench.admit()
    (run,) = bench.runs(job)
    assert at(1) < run.fire_at < at(1) + 20 * SECOND
    assert bench.lease() == []
    bench.clock.step(run.fire_at)
    (leased,) = bench.lease()
    assert replace(leased, fire_at=run.fire_at).planned_at == at(1)
