"""After an edit decisions stay, and the new definition holds from the first open instant."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.calendars import CalendarRule
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.policies import Align, CatchUp, Overlap
from timewright.core.recurrence.triggers import Cron, Every, Manual, Once
from timewright.core.schedule.hints import OneShotHint
from timewright.core.schedule.schedule import ScheduleState
from timewright.core.target import Note
from timewright.errors import Conflict, NotAllowed, NotFound
from timewright.ledger.manual_runs import skip_next
from timewright.ledger.replan import archive, create, restore, revise
from timewright.ports.schedules import SchedulesNamed


def test_names_are_unique_in_a_namespace_and_a_batch_is_all_or_nothing(bench: LedgerHarness) -> None:
    bench.schedule("taken")
    with pytest.raises(Conflict):
        bench.create(bench.draft("fresh"), bench.draft("taken"))
    assert bench.store.read(lambda tx: tx.select(SchedulesNamed("default", ["fresh"]))) == []
    assert bench.schedule("taken", namespace="other").namespace == "other"
    assert len(bench.audit()) == 2


def test_a_new_schedule_has_its_first_decision_at_once(bench: LedgerHarness) -> None:
    (changed,) = bench.create(bench.draft(trigger=Cron("30 14 * * *")))
    assert (changed.progress.next_at, changed.progress.source) == (at(150), "baseline-cron")
    assert kinds(changed.facts) == ["ScheduleChanged"]


def test_an_instant_that_passed_while_a_schedule_was_being_kept_is_not_lost(bench: LedgerHarness) -> None:
    draft = bench.draft(trigger=Every(MINUTE, at(0)))
    bench.move_to(3)
    (changed,) = bench.create(draft)
    assert changed.progress.next_at == at(1)
    bench.admit()
    rows = bench.runs(changed.schedule)
    assert {run.planned_at for run in rows if run.last_of is None} == {at(1), at(2), at(3)}


def test_an_edit_that_changes_no_time_changes_no_time(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    bench.move_to(30)
    changed = bench.revise(replace(job, target=Note(text="other words")))
    assert (changed.schedule.revision, changed.progress.next_at) == (2, at(60))
    assert kinds(changed.facts) == ["ScheduleChanged"]
    bench.move_to(60)
    bench.admit()
    (run,) = bench.runs(job)
    assert run.revision == 2


def test_a_denser_plan_holds_from_now_and_invents_no_past(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR), catch_up=CatchUp.ALL)
    bench.move_to(60)
    bench.admit()
    bench.work()
    bench.move_to(95.5)
    bench.revise(replace(job, trigger=Every(MINUTE, at(0))))
    assert bench.progress(job).next_at == at(96)
    bench.move_to(96)
    bench.admit()
    assert bench.outcomes_of(job) == [(60, "succeeded"), (96, "ready")]


def test_no_instant_is_decided_twice_when_a_plan_goes_back_and_forth(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2, 3):
        bench.move_to(minute)
        bench.admit()
        bench.revise(replace(job, trigger=Every(MINUTE, at(-minute))))
        bench.admit()
    assert bench.outcomes_of(job) == [(1, "ready"), (2, "ready"), (3, "ready")]


def test_occurrences_missed_before_an_edit_are_decided_by_the_new_definition(bench: LedgerHarness) -> None:
    """The target is corrected during an outage of the engine."""
    job = bench.schedule(trigger=Every(10 * MINUTE), catch_up=CatchUp.LAST)
    bench.move_to(35)
    bench.revise(replace(job, target=Note(text="mended")))
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "missed"), (20, "missed"), (30, "ready")]
    assert bench.runs(job)[-1].revision == 2


def test_with_alignment_to_now_a_due_instant_stays_due_through_an_edit(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.move_to(11)
    bench.revise(replace(job, trigger=Every(30 * MINUTE, at(0))))
    bench.admit()
    assert bench.outcomes_of(job) == [(10, "ready")]
    assert bench.progress(job).next_at == at(41)


def test_with_alignment_to_now_an_edit_does_not_put_off_what_follows_a_skip_by_hand(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(trigger=Every(5 * MINUTE), align=Align.NOW, adaptive=True)
    for _ in range(2):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.hint(job, OneShotHint(at=at(1), expires_at=at(30)))
    bench.move_to(1)
    bench.admit()
    bench.work()
    assert bench.progress(job).next_at == at(15)
    bench.move_to(12)
    assert bench.revise(replace(job, description="edited")).progress.next_at == at(15)


def test_the_cursor_never_goes_back(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(5)
    bench.admit()
    cursors = [bench.progress(job).cursor]
    for trigger in (Every(HOUR, at(0)), Cron("*/7 * * * *"), Manual(), Every(MINUTE, at(0))):
        bench.revise(replace(bench.due(job).schedule, trigger=trigger))
        cursors.append(bench.progress(job).cursor)
    assert cursors == sorted(cursors)


def test_a_stale_edit_is_refused_and_changes_nothing(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.revise(replace(job, priority=5), replaces=1)
    with pytest.raises(Conflict, match="revision 2, not 1"):
        bench.revise(replace(job, priority=9), replaces=1)
    assert bench.due(job).schedule.priority == 5
    assert len(bench.audit()) == 2


def test_an_edit_never_ends_a_pause_or_a_park(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.pause(job)
    bench.move_to(3)
    changed = bench.revise(replace(job, priority=5))
    assert (changed.progress.state, changed.progress.next_at) == (ScheduleState.PAUSED, None)
    bench.resume(job)
    assert bench.outcomes_of(job)[:2] == [(1, "paused"), (2, "paused")]


def test_an_edit_can_give_a_finished_schedule_something_to_do(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Once(at(1)))
    bench.move_to(1)
    bench.admit()
    bench.work()
    still = bench.revise(replace(job, priority=5))
    assert still.progress.state is ScheduleState.FINISHED
    again = bench.revise(replace(job, trigger=Once(at(9))))
    assert (again.progress.state, again.progress.next_at) == (ScheduleState.ACTIVE, at(9))
    bench.move_to(9)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "succeeded"), (9, "ready")]


def test_an_edit_that_leaves_nothing_to_do_finishes_the_schedule(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(6)
    changed = bench.revise(replace(job, end_at=at(4.5), catch_up=CatchUp.NONE))
    assert changed.progress.state is ScheduleState.ACTIVE, "what was missed has still to be recorded"
    bench.admit()
    assert {word for _, word in bench.outcomes_of(job)} == {"missed"}
    assert bench.progress(job).state is ScheduleState.FINISHED
    other = bench.schedule("other")
    changed = bench.revise(replace(other, end_at=at(6.5)))
    assert changed.progress.state is ScheduleState.FINISHED
    assert "ScheduleFinished" in kinds(changed.facts)


def test_a_schedule_can_be_restored_to_an_earlier_revision(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR), priority=7)
    bench.revise(replace(job, trigger=Every(MINUTE, at(0)), priority=1))
    changed = restore(bench.store, job.id, 1, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.schedule == replace(job, revision=3)
    assert changed.progress.next_at == at(60)
    with pytest.raises(NotFound, match="no revision 9"):
        restore(bench.store, job.id, 9, ids=bench.ids, by=ADA, now=bench.now)


def test_an_archived_schedule_never_runs_again_and_keeps_its_history(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.QUEUE)
    for minute in (1, 2, 3):
        bench.move_to(minute)
        bench.admit()
        if minute == 1:
            (run,) = bench.lease()
    changed = archive(bench.store, job.id, by=ADA, now=bench.now)
    assert kinds(changed.facts) == ["ScheduleChanged", "RunCancelled", "RunCancelled"]
    bench.settle(run)
    bench.move_to(9)
    assert bench.admit().schedules_read == 0
    assert bench.lease() == []
    assert bench.outcomes_of(job) == [(1, "succeeded"), (2, "cancelled"), (3, "cancelled")]
    with pytest.raises(NotAllowed):
        bench.resume(job)


def test_a_ready_run_of_an_archived_schedule_is_cancelled_also_where_overlap_is_allowed(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    for minute in (1, 2):
        bench.move_to(minute)
        bench.admit()
    archive(bench.store, job.id, by=ADA, now=bench.now)
    assert bench.lease() == []
    assert bench.outcomes_of(job) == [(1, "cancelled"), (2, "cancelled")]


def test_a_rule_that_allows_nothing_is_refused(bench: LedgerHarness) -> None:
    with pytest.raises(NotFound):
        bench.schedule(calendar=CalendarRule(only=("nobody",)))
    job = bench.schedule("plain")
    with pytest.raises(NotFound):
        bench.revise(replace(job, calendar=CalendarRule(only=("nobody",))))
    assert bench.due(job).schedule.revision == 1


def test_every_change_has_an_audit_entry_with_actor_action_and_reason(bench: LedgerHarness) -> None:
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


def test_many_schedules_are_created_in_one_transaction_with_an_audit_entry_each(bench: LedgerHarness) -> None:
    drafts = [bench.draft(f"job-{i:04d}") for i in range(300)]
    create(bench.store, drafts, by=ADA, now=bench.now)
    assert len(bench.audit()) == 300
    bench.move_to(1)
    assert bench.admit(limit=1000).schedules_read == 300


def test_an_unknown_schedule_is_refused(bench: LedgerHarness) -> None:
    with pytest.raises(NotFound):
        bench.revise(bench.draft("never kept"))


def test_an_edit_that_waited_for_an_admission_keeps_its_decisions(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.advance(59.9)
    stale = bench.now
    bench.advance(0.2)
    bench.admit()
    (run,) = bench.runs(job)
    other = replace(job, trigger=Every(7 * SECOND, at(0)))
    changed = revise(bench.store, other, ids=bench.ids, by=ADA, now=stale)
    assert changed.progress.cursor >= run.planned_at > stale
