"""Manual runs obey overlap unless forced, are created once per client key, and are no occurrences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.support.concurrency import all_at_once
from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.moments import HOUR, MINUTE
from timewright.core.policies.policies import Align, Clamp, Overlap
from timewright.core.recurrence.triggers import After, Every, Manual, Once
from timewright.core.run.run import RunState, run_idempotency_key
from timewright.core.schedule.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.manual_runs import move_next, skip_next
from timewright.ledger.replan import archive
from timewright.ports.rows import LeasedRuns


def test_a_manual_run_is_ready_at_once_and_names_its_creator(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Manual())
    made = bench.made_now(job, payload={"day": 3})
    (run,) = made.runs
    assert kinds(made.facts) == ["RunAdmitted"]
    assert (run.source, run.made_by, run.payload, run.planned_at) == ("manual", "ada", {"day": 3}, bench.now)
    (leased,) = bench.lease()
    assert (leased.id, leased.payload) == (run.id, {"day": 3})
    bench.settle(leased)
    assert bench.progress(job).state is ScheduleState.ACTIVE
    assert bench.audit()[-1].action == "schedule.run"


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (Overlap.SKIP, ["leased", "overlap"]),
        (Overlap.QUEUE, ["leased", "held"]),
        (Overlap.REPLACE, ["leased", "held"]),
        (Overlap.ALLOW, ["leased", "ready"]),
    ],
)
def test_a_run_now_obeys_overlap(bench: LedgerHarness, overlap: Overlap, expected: list[str]) -> None:
    job = bench.schedule(overlap=overlap)
    bench.move_to(1)
    bench.admit()
    (live,) = bench.lease()
    bench.move_to(1.5)
    bench.run_now(job)
    assert [word for _, word in bench.outcomes_of(job)] == expected
    assert (bench.run(live).cancel_at is not None) == (overlap is Overlap.REPLACE)
    bench.settle(live)
    assert len(bench.lease()) == (0 if overlap is Overlap.SKIP else 1)


def test_a_full_overlap_queue_skips_a_manual_run(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Manual(), overlap=Overlap.QUEUE, queue_limit=1)
    outcomes_of = [bench.run_now(job).state for _ in range(3)]
    assert outcomes_of == [RunState.READY, RunState.HELD, RunState.SKIPPED]


def test_a_forced_run_ignores_overlap_and_blocks_no_other_run(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.move_to(1)
    bench.admit()
    bench.lease()
    bench.run_now(job, force=True)
    (forced,) = bench.lease()
    assert forced.exclusive is False
    bench.settle(*bench.store.read(lambda tx: tx.select(LeasedRuns(holder="worker")))[:1])
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(job)[-1] == (2, "ready")


def test_the_same_client_key_gives_the_same_run(bench: LedgerHarness) -> None:
    job, other = bench.schedule("job", Manual()), bench.schedule("other", Manual())
    first = bench.run_now(job, client_key="invoice-7")
    bench.advance(30)
    again = bench.made_now(job, client_key="invoice-7")
    assert (again.runs[0].id, again.facts) == (first.id, ())
    assert bench.run_now(other, client_key="invoice-7").id != first.id
    bench.settle(*bench.lease())
    assert bench.run_now(job, client_key="invoice-7").state is RunState.SUCCEEDED
    assert bench.run_now(job, client_key="invoice-8").id != first.id


def test_a_client_key_that_races_makes_one_run(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    job = bench.schedule(trigger=Manual(), overlap=Overlap.ALLOW)
    makers = [another(f"maker-{i}") for i in range(3)]
    runs = all_at_once([partial(one.run_now, job, client_key="k") for one in makers])
    assert len({run.id for run in runs}) == 1
    assert len(bench.runs(job)) == 1


def test_a_run_now_that_races_the_clock_is_one_emitted_and_one_skipped(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(6)]
    bench.move_to(1)
    left, right = another("left"), another("right")
    answers = all_at_once([left.admit, *(partial(right.run_now, job) for job in jobs)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    bench.admit()
    for job in jobs:
        assert sorted(word for _, word in bench.outcomes_of(job)) == ["overlap", "ready"]


def test_a_run_by_hand_has_a_key_of_its_own(bench: LedgerHarness) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    bench.move_to(1)
    bench.admit()
    manual = bench.run_now(job)
    planned = next(run for run in bench.runs(job) if not run.dedupe_scope)
    assert manual.planned_at == planned.planned_at
    assert run_idempotency_key(manual) != run_idempotency_key(planned)


def test_a_paused_schedule_can_be_run_by_hand_and_an_archived_one_not(bench: LedgerHarness) -> None:
    job = bench.schedule()
    bench.pause(job)
    assert bench.run_now(job).state is RunState.READY
    archive(bench.store, job.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed, match="archived"):
        bench.run_now(job)


def test_the_next_occurrence_can_be_left_out(bench: LedgerHarness) -> None:
    job = bench.schedule()
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.progress.next_at == at(2)
    assert kinds(changed.facts) == ["RunSkipped", "ScheduleMoved"]
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(job) == [(1, "by_hand"), (2, "ready")]


@pytest.mark.parametrize(
    ("fields", "following"),
    [
        ({"trigger": After(5 * MINUTE)}, at(10)),
        ({"trigger": Every(5 * MINUTE), "align": Align.NOW}, at(10)),
        ({"trigger": Every(5 * MINUTE, at(0)), "end_at": at(7)}, None),
        ({"trigger": Once(at(5))}, None),
    ],
)
def test_the_next_time_after_a_skipped_occurrence(
    bench: LedgerHarness, fields: dict[str, object], following: object
) -> None:
    job = bench.schedule(**fields)  # type: ignore[arg-type]
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.progress.next_at == following
    assert (changed.progress.state is ScheduleState.FINISHED) == (following is None)
    assert bench.outcomes_of(job) == [(5, "by_hand")]


def test_a_hint_does_not_restore_a_skipped_occurrence(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR), adaptive=True)
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.hint(job, IntervalHint(interval=5 * MINUTE, expires_at=at(600)))
    assert bench.progress(job).next_at == at(5)
    assert bench.outcomes_of(job) == [(60, "by_hand")]
    bench.hint(job, PauseHint(until=at(10)))
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)


def test_with_alignment_to_now_the_next_time_lies_after_a_skipped_occurrence(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.move_to(10)
    bench.admit()
    (run,) = bench.lease()
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.move_to(12)
    bench.settle(run)
    assert bench.outcomes_of(job) == [(10, "succeeded"), (20, "by_hand")]
    assert bench.progress(job).next_at == at(30)


def test_a_schedule_after_its_last_run_has_no_instants_that_a_clamp_could_displace(
    bench: LedgerHarness,
) -> None:
    job = bench.schedule(trigger=After(MINUTE), clamp=Clamp(min=5 * MINUTE))
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert bench.outcomes_of(job) == [(5, "by_hand")]


def test_a_hint_is_used_up_by_the_occurrence_that_was_left_out(bench: LedgerHarness) -> None:
    job = bench.schedule(trigger=Every(HOUR), adaptive=True)
    bench.hint(job, OneShotHint(at=at(7), expires_at=at(30)))
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert (changed.progress.next_at, changed.progress.hints.one_shot) == (at(60), None)


@pytest.mark.parametrize("to", [30, 90, 150])
def test_the_next_occurrence_can_be_moved(bench: LedgerHarness, to: float) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    made = move_next(bench.store, job.id, to=at(to), ids=bench.ids, by=ADA, now=bench.now)
    assert [run.state for run in made.runs] == [RunState.SKIPPED, RunState.READY]
    ran = []
    for minute in (30, 60, 90, 120, 150):
        bench.move_to(minute)
        bench.admit()
        ran += [minute] * len(bench.work())
    assert ran == sorted({to, 120})
    assert bench.outcomes_of(job)[0 if to > 60 else 1] == (60, "by_hand")


def test_only_a_time_that_lies_ahead_can_be_left_out_or_moved(bench: LedgerHarness) -> None:
    job = bench.schedule()
    with pytest.raises(InvalidInput, match="not in the future"):
        move_next(bench.store, job.id, to=bench.now, ids=bench.ids, by=ADA, now=bench.now)
    bench.move_to(1)
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.pause(job)
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)


def test_queue_entries_name_their_creator(bench: LedgerHarness) -> None:
    (entry,) = bench.enqueue({"to": "bob"}, not_before=at(5), priority=3)
    kept = bench.run(entry)
    assert kept == entry
    assert (kept.made_by, kept.payload, kept.priority) == ("ada", {"to": "bob"}, 3)
    assert bench.lease(handoff=True) == []
    bench.move_to(5)
    assert len(bench.lease(handoff=True)) == 1
