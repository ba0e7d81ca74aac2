"""An edit: what was decided stays decided, the new words hold from the first instant that is still open."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.ledger.bench import ADA, Bench, at, kinds
from timewright.core.calendars import CalendarRule
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies import Align, CatchUp, Overlap
from timewright.core.schedule import ScheduleState
from timewright.core.target import Note
from timewright.core.triggers import Cron, Every, Manual, Once
from timewright.errors import Conflict, NotAllowed, NotFound
from timewright.ledger.replan import archive, create, restore, revise


def test_names_are_unique_in_their_namespace_and_a_batch_is_kept_whole_or_not_at_all(bench: Bench) -> None:
    bench.schedule("taken")
    with pytest.raises(Conflict):
        bench.create(bench.draft("fresh"), bench.draft("taken"))
    assert bench.store.read(lambda tx: tx.find_schedule("default", "fresh")) is None
    assert bench.schedule("taken", namespace="other").namespace == "other"
    assert len(bench.audit()) == 2


def test_a_new_schedule_has_its_first_decision_at_once(bench: Bench) -> None:
    (changed,) = bench.create(bench.draft(trigger=Cron("30 14 * * *")))
    assert (changed.standing.next_at, changed.standing.source) == (at(150), "baseline-cron")
    assert kinds(changed.facts) == ["ScheduleChanged"]


def test_an_instant_that_passed_while_a_schedule_was_being_kept_is_not_lost(bench: Bench) -> None:
    draft = bench.draft(trigger=Every(MINUTE, at(0)))
    bench.go(3)
    (changed,) = bench.create(draft)
    assert changed.standing.next_at == at(1)
    bench.admit()
    rows = bench.runs(changed.schedule)
    assert {run.planned_at for run in rows if run.last_of is None} == {at(1), at(2), at(3)}


def test_an_edit_that_changes_no_time_changes_no_time(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    bench.go(30)
    changed = bench.revise(replace(job, target=Note(text="other words")))
    assert (changed.schedule.revision, changed.standing.next_at) == (2, at(60))
    assert kinds(changed.facts) == ["ScheduleChanged"]
    bench.go(60)
    bench.admit()
    (run,) = bench.runs(job)
    assert run.revision == 2


def test_a_denser_plan_holds_from_now_and_invents_no_past(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR), catch_up=CatchUp.ALL)
    bench.go(60)
    bench.admit()
    bench.work()
    bench.go(95.5)
    bench.revise(replace(job, trigger=Every(MINUTE, at(0))))
    assert bench.standing(job).next_at == at(96)
    bench.go(96)
    bench.admit()
    assert bench.fates(job) == [(60, "succeeded"), (96, "ready")]


def test_no_instant_is_decided_twice_when_a_plan_goes_back_and_forth(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2, 3):
        bench.go(minute)
        bench.admit()
        bench.revise(replace(job, trigger=Every(MINUTE, at(-minute))))
        bench.admit()
    assert bench.fates(job) == [(1, "ready"), (2, "ready"), (3, "ready")]


def test_what_was_missed_before_the_edit_is_decided_under_the_new_words(bench: Bench) -> None:
    """The engine was away; someone mends the target before it comes back."""
    job = bench.schedule(trigger=Every(10 * MINUTE), catch_up=CatchUp.LAST)
    bench.go(35)
    bench.revise(replace(job, target=Note(text="mended")))
    bench.admit()
    assert bench.fates(job) == [(10, "missed"), (20, "missed"), (30, "ready")]
    assert bench.runs(job)[-1].revision == 2


def test_counted_from_now_what_has_come_due_stays_due_through_an_edit(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.go(11)
    bench.revise(replace(job, trigger=Every(30 * MINUTE, at(0))))
    bench.admit()
    assert bench.fates(job) == [(10, "ready")]
    assert bench.standing(job).next_at == at(41)


def test_the_cursor_never_goes_back(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(5)
    bench.admit()
    cursors = [bench.standing(job).cursor]
    for trigger in (Every(HOUR, at(0)), Cron("*/7 * * * *"), Manual(), Every(MINUTE, at(0))):
        bench.revise(replace(bench.due(job).schedule, trigger=trigger))
        cursors.append(bench.standing(job).cursor)
    assert cursors == sorted(cursors)


def test_a_stale_edit_is_refused_and_changes_nothing(bench: Bench) -> None:
    job = bench.schedule()
    bench.revise(replace(job, priority=5), replaces=1)
    with pytest.raises(Conflict, match="revision 2, not 1"):
        bench.revise(replace(job, priority=9), replaces=1)
    assert bench.due(job).schedule.priority == 5
    assert len(bench.audit()) == 2


def test_an_edit_never_ends_a_pause_or_a_park(bench: Bench) -> None:
    job = bench.schedule()
    bench.pause(job)
    bench.go(3)
    changed = bench.revise(replace(job, priority=5))
    assert (changed.standing.state, changed.standing.next_at) == (ScheduleState.PAUSED, None)
    bench.resume(job)
    assert bench.fates(job)[:2] == [(1, "paused"), (2, "paused")]


def test_an_edit_can_give_a_finished_schedule_something_to_do(bench: Bench) -> None:
    job = bench.schedule(trigger=Once(at(1)))
    bench.go(1)
    bench.admit()
    bench.work()
    still = bench.revise(replace(job, priority=5))
    assert still.standing.state is ScheduleState.FINISHED
    again = bench.revise(replace(job, trigger=Once(at(9))))
    assert (again.standing.state, again.standing.next_at) == (ScheduleState.ACTIVE, at(9))
    bench.go(9)
    bench.admit()
    assert bench.fates(job) == [(1, "succeeded"), (9, "ready")]


def test_an_edit_that_leaves_nothing_to_do_finishes_the_schedule(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(6)
    changed = bench.revise(replace(job, end_at=at(4.5), catch_up=CatchUp.NONE))
    assert changed.standing.state is ScheduleState.ACTIVE, "what was missed has still to be recorded"
    bench.admit()
    assert {word for _, word in bench.fates(job)} == {"missed"}
    assert bench.standing(job).state is ScheduleState.FINISHED
    other = bench.schedule("other")
    changed = bench.revise(replace(other, end_at=at(6.5)))
    assert changed.standing.state is ScheduleState.FINISHED
    assert "ScheduleFinished" in kinds(changed.facts)


def test_a_schedule_can_be_brought_back_to_what_it_said(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR), priority=7)
    bench.revise(replace(job, trigger=Every(MINUTE, at(0)), priority=1))
    changed = restore(bench.store, job.id, 1, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.schedule == replace(job, revision=3)
    assert changed.standing.next_at == at(60)
    with pytest.raises(NotFound, match="no revision 9"):
        restore(bench.store, job.id, 9, ids=bench.ids, by=ADA, now=bench.now)


def test_an_archived_schedule_never_runs_again_and_keeps_its_history(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2, 3):
        bench.go(minute)
        bench.admit()
        if minute == 1:
            (run,) = bench.lease()
    changed = archive(bench.store, job.id, by=ADA, now=bench.now)
    assert kinds(changed.facts) == ["ScheduleChanged", "RunCancelled", "RunCancelled"]
    bench.settle(run)
    bench.go(9)
    assert bench.admit().looked_at == 0
    assert bench.lease() == []
    assert bench.fates(job) == [(1, "succeeded"), (2, "cancelled"), (3, "cancelled")]
    with pytest.raises(NotAllowed):
        bench.resume(job)


def test_a_ready_run_of_an_archived_schedule_is_cancelled_also_where_overlap_is_allowed(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2):
        bench.go(minute)
        bench.admit()
    archive(bench.store, job.id, by=ADA, now=bench.now)
    assert bench.lease() == []
    assert bench.fates(job) == [(1, "cancelled"), (2, "cancelled")]


def test_a_rule_that_allows_nothing_is_refused(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.schedule(calendar=CalendarRule(only=("nobody",)))
    job = bench.schedule("plain")
    with pytest.raises(NotFound):
        bench.revise(replace(job, calendar=CalendarRule(only=("nobody",))))
    assert bench.due(job).schedule.revision == 1


def test_every_change_leaves_a_line_with_who_what_and_why(bench: Bench) -> None:
    job = bench.schedule()
    bench.revise(replace(job, priority=5))
    restore(bench.store, job.id, 1, ids=bench.ids, by=ADA, now=bench.now)
    archive(bench.store, job.id, by=ADA, now=bench.now)
    lines = bench.audit()
    assert [e.action for e in lines] == [
        "schedule.create",
        "schedule.update",
        "schedule.update",
        "schedule.archive",
    ]
    assert {(e.subject, e.actor, e.origin, e.reason, e.namespace) for e in lines} == {
        (job.id, "ada", "human", "because", "default")
    }
    first, second = lines[0], lines[1]
    assert first.after == second.before, "a line names the text it replaces"
    assert second.after.startswith("revision 2 sha256:")


def test_many_schedules_are_kept_in_one_breath_each_with_its_line(bench: Bench) -> None:
    drafts = [bench.draft(f"job-{i:04d}") for i in range(300)]
    create(bench.store, drafts, by=ADA, now=bench.now)
    assert len(bench.audit()) == 300
    bench.go(1)
    assert bench.admit(limit=1000).looked_at == 300


def test_an_unknown_schedule_is_refused(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.revise(bench.draft("never kept"))


def test_an_edit_that_waited_for_an_admission_leaves_decided_what_that_decided(bench: Bench) -> None:
    job = bench.schedule()
    bench.rest(59.9)
    stale = bench.now
    bench.rest(0.2)
    bench.admit()
    (run,) = bench.runs(job)
    other = replace(job, trigger=Every(7 * SECOND, at(0)))
    changed = revise(bench.store, other, ids=bench.ids, by=ADA, now=stale)
    assert changed.standing.cursor >= run.planned_at > stale
