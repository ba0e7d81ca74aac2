"""Runs by hand obey overlap unless forced, are made once per key, and never stand for an occurrence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.together import all_at_once
from tests.ledger.bench import ADA, TICK, Bench, at, kinds
from timewright.core.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.moments import HOUR, MINUTE
from timewright.core.policies import Align, Overlap
from timewright.core.run import RunState, run_key
from timewright.core.schedule import ScheduleState
from timewright.core.triggers import After, Every, Manual, Once
from timewright.errors import InvalidInput, NotAllowed
from timewright.ledger.by_hand import move_next, skip_next
from timewright.ledger.replan import archive


def test_a_run_now_is_ready_at_once_and_says_who_made_it(bench: Bench) -> None:
    job = bench.schedule(trigger=Manual())
    made = bench.made_now(job, payload={"day": 3})
    (run,) = made.runs
    assert kinds(made.facts) == ["RunAdmitted"]
    assert (run.source, run.made_by, run.payload, run.planned_at) == ("manual", "ada", {"day": 3}, bench.now)
    (leased,) = bench.lease()
    assert (leased.id, leased.payload) == (run.id, {"day": 3})
    bench.settle(leased)
    assert bench.standing(job).state is ScheduleState.ACTIVE
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
def test_a_run_now_obeys_overlap(bench: Bench, overlap: Overlap, expected: list[str]) -> None:
    job = bench.schedule(overlap=overlap)
    bench.go(1)
    bench.admit()
    (live,) = bench.lease()
    bench.go(1.5)
    bench.run_now(job)
    assert [word for _, word in bench.fates(job)] == expected
    assert (bench.run(live).cancel_at is not None) == (overlap is Overlap.REPLACE)
    bench.settle(live)
    assert len(bench.lease()) == (0 if overlap is Overlap.SKIP else 1)


def test_a_queue_that_is_full_turns_a_run_now_away(bench: Bench) -> None:
    job = bench.schedule(trigger=Manual(), overlap=Overlap.QUEUE, queue_limit=1)
    fates = [bench.run_now(job).state for _ in range(3)]
    assert fates == [RunState.READY, RunState.HELD, RunState.SKIPPED]


def test_forced_it_runs_beside_the_live_one_and_blocks_nobody(bench: Bench) -> None:
    job = bench.schedule()
    bench.go(1)
    bench.admit()
    bench.lease()
    bench.run_now(job, force=True)
    (forced,) = bench.lease()
    assert forced.alone is False
    bench.settle(*bench.store.read(lambda tx: tx.leased_runs(holder="worker"))[:1])
    bench.go(2)
    bench.admit()
    assert bench.fates(job)[-1] == (2, "ready")


def test_the_same_client_key_gives_the_same_run(bench: Bench) -> None:
    job, other = bench.schedule("job", Manual()), bench.schedule("other", Manual())
    first = bench.run_now(job, client_key="invoice-7")
    bench.rest(30)
    again = bench.made_now(job, client_key="invoice-7")
    assert (again.runs[0].id, again.facts) == (first.id, ())
    assert bench.run_now(other, client_key="invoice-7").id != first.id
    bench.settle(*bench.lease())
    assert bench.run_now(job, client_key="invoice-7").state is RunState.SUCCEEDED
    assert bench.run_now(job, client_key="invoice-8").id != first.id


def test_a_client_key_that_races_makes_one_run(bench: Bench, another: Callable[[str], Bench]) -> None:
    job = bench.schedule(trigger=Manual(), overlap=Overlap.ALLOW)
    makers = [another(f"maker-{i}") for i in range(3)]
    runs = all_at_once([partial(one.run_now, job, client_key="k") for one in makers])
    assert len({run.id for run in runs}) == 1
    assert len(bench.runs(job)) == 1


def test_a_run_now_that_races_the_clock_is_one_emitted_and_one_skipped(
    bench: Bench, another: Callable[[str], Bench]
) -> None:
    jobs = [bench.schedule(f"job-{i}") for i in range(6)]
    bench.go(1)
    left, right = another("left"), another("right")
    answers = all_at_once([left.admit, *(partial(right.run_now, job) for job in jobs)])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    bench.admit()
    for job in jobs:
        assert sorted(word for _, word in bench.fates(job)) == ["overlap", "ready"]


def test_a_run_by_hand_has_a_key_of_its_own(bench: Bench) -> None:
    job = bench.schedule(overlap=Overlap.ALLOW)
    bench.go(1)
    bench.admit()
    manual = bench.run_now(job)
    planned = next(run for run in bench.runs(job) if not run.lane)
    assert manual.planned_at == planned.planned_at
    assert run_key(manual) != run_key(planned)


def test_a_paused_schedule_can_be_run_by_hand_and_an_archived_one_not(bench: Bench) -> None:
    job = bench.schedule()
    bench.pause(job)
    assert bench.run_now(job).state is RunState.READY
    archive(bench.store, job.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed, match="archived"):
        bench.run_now(job)


def test_the_next_occurrence_can_be_left_out(bench: Bench) -> None:
    job = bench.schedule()
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.standing.next_at == at(2)
    assert kinds(changed.facts) == ["RunSkipped", "ScheduleMoved"]
    bench.go(2)
    bench.admit()
    assert bench.fates(job) == [(1, "by_hand"), (2, "ready")]


@pytest.mark.parametrize(
    ("fields", "following"),
    [
        ({"trigger": After(5 * MINUTE)}, at(10)),
        ({"trigger": Every(5 * MINUTE), "align": Align.NOW}, at(10)),
        ({"trigger": Every(5 * MINUTE, at(0)), "end_at": at(7)}, None),
        ({"trigger": Once(at(5))}, None),
    ],
)
def test_what_follows_the_one_that_was_left_out(
    bench: Bench, fields: dict[str, object], following: object
) -> None:
    job = bench.schedule(**fields)  # type: ignore[arg-type]
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert changed.standing.next_at == following
    assert (changed.standing.state is ScheduleState.FINISHED) == (following is None)
    assert bench.fates(job) == [(5, "by_hand")]


def test_no_wish_brings_back_what_was_left_out(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR), adaptive=True)
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.hint(job, IntervalHint(interval=5 * MINUTE, expires_at=at(600)))
    assert bench.standing(job).next_at == at(65) + TICK
    bench.hint(job, PauseHint(until=at(10)))
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)


def test_counted_from_now_the_end_of_a_run_plans_past_what_was_left_out(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(10 * MINUTE), align=Align.NOW)
    bench.go(10)
    bench.admit()
    (run,) = bench.lease()
    skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.go(12)
    bench.settle(run)
    assert bench.fates(job) == [(10, "succeeded"), (20, "by_hand")]
    assert bench.standing(job).next_at == at(30) + TICK


def test_a_hint_is_used_up_by_the_occurrence_that_was_left_out(bench: Bench) -> None:
    job = bench.schedule(trigger=Every(HOUR), adaptive=True)
    bench.hint(job, OneShotHint(at=at(7), expires_at=at(30)))
    changed = skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    assert (changed.standing.next_at, changed.standing.hints.one_shot) == (at(60), None)


@pytest.mark.parametrize("to", [30, 90, 150])
def test_the_next_occurrence_can_be_moved(bench: Bench, to: float) -> None:
    job = bench.schedule(trigger=Every(HOUR))
    made = move_next(bench.store, job.id, to=at(to), ids=bench.ids, by=ADA, now=bench.now)
    assert [run.state for run in made.runs] == [RunState.SKIPPED, RunState.READY]
    ran = []
    for minute in (30, 60, 90, 120, 150):
        bench.go(minute)
        bench.admit()
        ran += [minute] * len(bench.work())
    assert ran == sorted({to, 120})
    assert bench.fates(job)[0 if to > 60 else 1] == (60, "by_hand")


def test_only_a_time_that_lies_ahead_can_be_left_out_or_moved(bench: Bench) -> None:
    job = bench.schedule()
    with pytest.raises(InvalidInput, match="not ahead"):
        move_next(bench.store, job.id, to=bench.now, ids=bench.ids, by=ADA, now=bench.now)
    bench.go(1)
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.pause(job)
    with pytest.raises(NotAllowed, match="no next time"):
        skip_next(bench.store, job.id, ids=bench.ids, by=ADA, now=bench.now)


def test_entries_of_a_queue_say_who_made_them(bench: Bench) -> None:
    (entry,) = bench.enqueue({"to": "bob"}, not_before=at(5), priority=3)
    kept = bench.run(entry)
    assert kept == entry
    assert (kept.made_by, kept.payload, kept.priority) == ("ada", {"to": "bob"}, 3)
    assert bench.lease(handoff=True) == []
    bench.go(5)
    assert len(bench.lease(handoff=True)) == 1
