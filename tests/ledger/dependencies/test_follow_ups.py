"""A schedule that follows another: every matching end makes one occurrence, whatever fails in between."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from tests.ledger.ledger_kit import ADA, TICK, LedgerHarness, LossyStore, at
from timewright.core.calendars import Calendar, CalendarRule
from timewright.core.moments import DAY, HOUR, MINUTE
from timewright.core.policies.policies import Exhausted, Overlap, Retry
from timewright.core.recurrence.triggers import Every, Manual, after
from timewright.core.run.run import Cancelled, Failed, Outcome, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.upstream import Need
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ledger.backfills.start import BackfillTerms, start_backfill
from timewright.ledger.lookups import CALENDAR
from timewright.ledger.manual_runs import move_next, skip_next
from timewright.ledger.replan import archive
from timewright.ledger.settle import cancel, reopen
from timewright.ports import PruneRequest, StoredObject
from timewright.ports.rows import LeasedRuns
from timewright.ports.workflow import OpenFollowUps
from timewright.stores.postgres.executor import PostgresExecutor
from timewright.stores.sqlite.executor import SqliteExecutor

ONCE = Retry(max_attempts=1)
BAD = Failed(error="no")


def pair(
    bench: LedgerHarness, on: str = "success", *, delay: timedelta = timedelta(0), **fields: object
) -> tuple[Schedule, Schedule]:
    """An upstream schedule without retries, and one that follows it."""
    load = bench.schedule("load", Manual(), retry=ONCE, overlap=Overlap.ALLOW)
    return load, bench.schedule("report", after("load", on, delay), **fields)


def ends(bench: LedgerHarness, load: Schedule, outcome: Outcome | None = None) -> Run:
    """Run the upstream schedule now, with this outcome."""
    made = bench.run_now(load, force=True)
    (leased,) = [run for run in bench.lease() if run.id == made.id]
    bench.settle(leased, outcome=outcome)
    return bench.run(made)


def planned(bench: LedgerHarness, schedule: Schedule) -> list[tuple[float, str]]:
    bench.advance(1)
    bench.admit()
    return bench.outcomes_of(schedule)


def open_ends(bench: LedgerHarness, schedule: Schedule) -> int:
    """How many upstream ends are open for a schedule."""
    return len(bench.store.read(lambda tx: tx.select(OpenFollowUps([schedule.id], limit=9))))


@pytest.mark.parametrize(
    ("on", "outcome", "follows"),
    [
        ("success", Succeeded(), True),
        ("success", BAD, False),
        ("failure", Succeeded(), False),
        ("failure", BAD, True),
        ("end", Succeeded(), True),
        ("end", BAD, True),
        ("end", Cancelled(), True),
        ("failure", Cancelled(), False),
    ],
)
def test_an_end_of_the_wanted_kind_makes_one_occurrence_and_no_other_does(
    bench: LedgerHarness, on: str, outcome: Outcome, follows: bool
) -> None:
    load, report = pair(bench, on)
    bench.move_to(5)
    ends(bench, load, outcome)
    assert planned(bench, report) == ([(5, "ready")] if follows else [])
    assert planned(bench, report) == ([(5, "ready")] if follows else [])


def test_a_parked_run_counts_as_failed_for_followers(bench: LedgerHarness) -> None:
    load = bench.schedule("load", Manual(), retry=replace(ONCE, exhausted=Exhausted.PARK))
    report = bench.schedule("report", after("load", "failure"))
    ends(bench, load, BAD)
    assert [word for _, word in planned(bench, report)] == ["ready"]


def test_skipped_unstarted_and_backfilled_runs_trigger_no_follower(bench: LedgerHarness) -> None:
    load = bench.schedule("load", Every(MINUTE), retry=ONCE)
    report = bench.schedule("report", after("load", "end"))
    bench.move_to(1)
    bench.admit()
    (first,) = bench.runs(load)
    cancel(bench.store, first.id, actor="ada", reason="no", now=bench.now)
    skip_next(bench.store, load.id, ids=bench.ids, by=ADA, now=bench.now)
    terms = BackfillTerms(since=at(1), until=at(1))
    start_backfill(bench.store, load.id, terms, ids=bench.ids, by=ADA, now=bench.now)
    bench.work()
    assert {outcome for _, outcome in bench.outcomes_of(load)} == {"cancelled", "by_hand", "succeeded"}
    assert planned(bench, report) == []


def test_a_run_that_is_replaced_while_it_waits_to_be_tried_again_has_ended(bench: LedgerHarness) -> None:
    load = bench.schedule("load", Every(MINUTE), retry=Retry(max_attempts=2), overlap=Overlap.REPLACE)
    report = bench.schedule("report", after("load", "end"), overlap=Overlap.ALLOW)
    bench.move_to(1)
    bench.admit()
    bench.settle(*bench.lease(), outcome=BAD)
    assert planned(bench, report) == []
    bench.move_to(2)
    bench.admit()
    assert bench.outcomes_of(load)[0] == (1, "cancelled")
    assert planned(bench, report) == [(2, "ready")]


def test_two_ends_at_one_instant_are_two_occurrences_a_microsecond_apart(bench: LedgerHarness) -> None:
    load, report = pair(bench, overlap=Overlap.ALLOW)
    bench.move_to(1)
    for _ in range(3):
        bench.run_now(load, force=True)
    bench.settle(*bench.lease())
    bench.admit()
    assert len(bench.runs(report)) == 1, "the second is not due yet, by a microsecond"
    bench.advance(1)
    bench.admit()
    assert [run.planned_at for run in bench.runs(report)] == [at(1), at(1) + TICK, at(1) + 2 * TICK]


def test_a_delay_is_seen_as_the_next_time_and_decided_when_it_is_over(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    bench.admit()
    assert (bench.progress(report).next_at, bench.runs(report)) == (at(10), [])
    bench.move_to(4)
    ends(bench, load)
    assert bench.progress(report).next_at == at(10)
    bench.move_to(10)
    bench.admit()
    assert bench.outcomes_of(report) == [(10, "ready")]
    assert bench.progress(report).next_at == at(14)


@pytest.mark.parametrize(
    ("overlap", "outcomes_of"),
    [
        (Overlap.SKIP, ["ready", "overlap"]),
        (Overlap.QUEUE, ["ready", "held"]),
        (Overlap.ALLOW, ["ready", "ready"]),
        (Overlap.REPLACE, ["cancelled", "ready"]),
    ],
)
def test_a_follower_keeps_its_own_overlap_policy(
    bench: LedgerHarness, overlap: Overlap, outcomes_of: list[str]
) -> None:
    load, report = pair(bench, overlap=overlap)
    bench.run_now(load, force=True)
    bench.run_now(load, force=True)
    for run in bench.lease():
        bench.settle(run)
        bench.advance(1)
    for _ in range(3):
        bench.admit()
    assert [word for _, word in bench.outcomes_of(report)] == outcomes_of


def test_an_end_while_it_is_paused_is_recorded_and_never_caught_up(bench: LedgerHarness) -> None:
    load, report = pair(bench)
    bench.pause(report)
    bench.move_to(1)
    ends(bench, load)
    assert planned(bench, report) == [(1, "paused")]
    bench.resume(report)
    bench.move_to(2)
    ends(bench, load)
    assert planned(bench, report) == [(1, "paused"), (2, "ready")]


def test_an_end_whose_delay_ends_in_a_pause_is_recorded_too(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    bench.move_to(5)
    bench.pause(report, until=at(20))
    bench.move_to(20)
    bench.admit()
    assert bench.outcomes_of(report) == [(10, "paused")]
    assert bench.progress(report).state.value == "active"


def test_calendar_window_and_max_runs_apply_to_followers(bench: LedgerHarness) -> None:
    closed = Calendar(name="closed", dates=(at(0).date(),))
    row = StoredObject(kind=CALENDAR, namespace="default", name="closed", body=encode(closed), at=bench.now)
    bench.store.write(lambda tx: tx.put_objects([row]))
    load = bench.schedule("load", Manual(), overlap=Overlap.ALLOW)
    off = bench.schedule("off", after("load"), calendar=CalendarRule(except_=("closed",)))
    late = bench.schedule("late", after("load"), start_at=at(60))
    once = bench.schedule("once", after("load"), max_runs=1, overlap=Overlap.ALLOW)
    for _ in range(2):
        ends(bench, load)
        bench.advance(1)
        bench.admit()
    assert [word for _, word in bench.outcomes_of(off)] == ["excluded", "excluded"]
    assert bench.outcomes_of(late) == []
    assert len(bench.runs(once)) == 1
    assert bench.progress(late).next_at is None


def test_an_end_after_the_last_allowed_run_is_closed_when_it_is_due(bench: LedgerHarness) -> None:
    """Dense seed 150000145: the last run ended before it, and nothing woke the schedule any more."""
    load, report = pair(bench, delay=10 * MINUTE, max_runs=1)
    ends(bench, load)
    bench.move_to(5)
    ends(bench, load)
    bench.move_to(10)
    bench.admit()
    (leased,) = bench.lease()
    bench.settle(leased)
    assert bench.progress(report).wake_at == at(15)
    bench.move_to(15)
    bench.admit()
    assert bench.outcomes_of(report) == [(10, "succeeded")]
    assert open_ends(bench, report) == 0


def test_a_run_that_is_tried_again_and_fails_again_makes_no_second_occurrence(bench: LedgerHarness) -> None:
    load, report = pair(bench, "failure", overlap=Overlap.ALLOW)
    failed = ends(bench, load, BAD)
    bench.advance(1)
    reopen(bench.store, failed.id, actor="ada", now=bench.now)
    bench.work(BAD)
    assert len(planned(bench, report)) == 1


def test_a_skipped_follow_up_stays_skipped(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    bench.advance(1)
    skip_next(bench.store, report.id, ids=bench.ids, by=ADA, now=bench.now)
    bench.move_to(11)
    assert planned(bench, report) == [(10, "by_hand")]


def test_a_skipped_follow_up_stays_skipped_after_another_end(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    bench.move_to(1)
    ends(bench, load)
    bench.move_to(2)
    skip_next(bench.store, report.id, ids=bench.ids, by=ADA, now=bench.now)
    assert bench.due(report).progress.next_at == at(11)
    ends(bench, load)
    bench.move_to(13)
    assert planned(bench, report) == [(10, "by_hand"), (11, "ready"), (12, "overlap")]


def test_a_moved_follow_up_does_not_also_run_at_its_first_instant(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    bench.move_to(1)
    move_next(bench.store, report.id, to=at(15), ids=bench.ids, by=ADA, now=bench.now)
    ends(bench, load)
    bench.move_to(13)
    assert planned(bench, report) == [(10, "by_hand"), (11, "ready"), (15, "ready")]


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_that_breaks_makes_neither_none_nor_two(
    unsure: tuple[LedgerHarness, LossyStore], applied: bool
) -> None:
    bench, store = unsure
    load, report = pair(bench)
    bench.run_now(load)
    (run,) = bench.lease()
    store.break_next(applied)
    bench.settle(run)
    bench.advance(1)
    store.break_next(applied)
    bench.admit()
    assert len(planned(bench, report)) == 1


def test_chains_reach_their_end(bench: LedgerHarness) -> None:
    load, report = pair(bench)
    mail = bench.schedule("mail", after("report"))
    ends(bench, load)
    for _ in range(3):
        bench.advance(1)
        bench.admit()
        bench.work()
    assert [[word for _, word in bench.outcomes_of(one)] for one in (report, mail)] == [
        ["succeeded"],
        ["succeeded"],
    ]


def test_a_cycle_is_rejected_with_its_path(bench: LedgerHarness) -> None:
    load, _ = pair(bench)
    mail = bench.schedule("mail", after("report"))
    with pytest.raises(InvalidInput, match="load depends on mail depends on report depends on load"):
        bench.revise(replace(load, trigger=after("mail")))
    with pytest.raises(InvalidInput, match="self depends on self"):
        bench.schedule("self", after("self"))
    assert bench.due(load).schedule.trigger == Manual()
    assert bench.due(mail).schedule.revision == 1


def test_an_unknown_upstream_name_is_rejected_with_the_nearest_name(bench: LedgerHarness) -> None:
    pair(bench)
    with pytest.raises(NotFound, match="'laod'") as refusal:
        bench.schedule("mail", after("laod"))
    assert (refusal.value.field, refusal.value.fix) == ("trigger.schedule", "did you mean load?")


def test_an_upstream_schedule_cannot_be_renamed_or_archived(bench: LedgerHarness) -> None:
    load, report = pair(bench)
    with pytest.raises(NotAllowed, match="report depends on it"):
        archive(bench.store, load.id, by=ADA, now=bench.now)
    with pytest.raises(NotAllowed, match="cannot be renamed"):
        bench.revise(replace(load, name="loader"))
    archive(bench.store, report.id, by=ADA, now=bench.now)
    bench.revise(replace(load, name="loader"))
    archive(bench.store, load.id, by=ADA, now=bench.now)


def test_another_upstream_drops_open_follow_ups(bench: LedgerHarness) -> None:
    load, report = pair(bench, delay=10 * MINUTE)
    other = bench.schedule("other", Manual())
    ends(bench, load)
    bench.revise(replace(report, trigger=after("other")))
    ends(bench, other)
    bench.move_to(15)
    assert [word for _, word in planned(bench, report)] == ["ready"]
    bench.revise(replace(bench.due(report).schedule, trigger=Every(HOUR, at(0))))
    ends(bench, other)
    assert len(planned(bench, report)) == 1


def test_after_an_edit_to_other_ends_no_dropped_one_is_next(bench: LedgerHarness) -> None:
    """Dense seed 640000109: the next time stayed, and a move recorded an occurrence that follows no end."""
    load, report = pair(bench, delay=10 * MINUTE)
    ends(bench, load)
    assert bench.progress(report).next_at is not None
    bench.revise(replace(report, trigger=after("load", "failure", 10 * MINUTE)))
    assert bench.progress(report).next_at is None
    with pytest.raises(NotAllowed):
        skip_next(bench.store, report.id, ids=bench.ids, by=ADA, now=bench.now)
    assert planned(bench, report) == []


def test_old_ends_are_forgotten_with_the_runs_they_were_of(bench: LedgerHarness) -> None:
    load, report = pair(bench)
    ends(bench, load)
    planned(bench, report)
    bench.work()
    bench.clock.advance(2 * DAY)
    bench.store.write(lambda tx: tx.prune(PruneRequest(older_than=bench.now - DAY)))
    assert bench.runs(load) == []
    assert open_ends(bench, report) == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_give_exactly_the_occurrences_that_ended_so(
    unsure: tuple[LedgerHarness, LossyStore], another: Callable[[str], LedgerHarness], seed: int
) -> None:
    """Ends of every kind, broken commits, and two instances that admit alternately."""
    bench, store = unsure
    dice, other = random.Random(seed), another("other")
    load = bench.schedule("load", Manual(), retry=ONCE, overlap=Overlap.ALLOW)
    on = {
        word: bench.schedule(word, after("load", word), overlap=Overlap.ALLOW)
        for word in ("success", "failure", "end")
    }
    expected = dict.fromkeys(on, 0)
    for _ in range(25):
        for _ in range(dice.randint(1, 3)):
            bench.run_now(load, force=True)
        outcomes: list[Outcome] = [Succeeded(), BAD, Cancelled()]
        outcome = dice.choice(outcomes)
        leased = [run for run in bench.lease() if run.schedule_id == load.id]
        if dice.random() < 0.4:
            store.break_next(dice.random() < 0.5)
        bench.settle(*leased, outcome=outcome)
        told = {
            "success": isinstance(outcome, Succeeded),
            "failure": isinstance(outcome, Failed),
            "end": True,
        }
        expected = {word: expected[word] + told[word] * len(leased) for word in on}
        bench.advance(dice.choice([0, 1]))
        dice.choice([bench, other]).admit()
    bench.advance(1)
    while bench.admit().admit_again or other.admit().admit_again:
        pass
    made = {word: len(bench.runs(schedule)) for word, schedule in on.items()}
    left = {word: open_ends(bench, schedule) for word, schedule in on.items()}
    assert (made, left) == (expected, dict.fromkeys(on, 0))


def test_instances_that_race_make_each_occurrence_once(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    load, report = pair(bench, overlap=Overlap.ALLOW)
    for _ in range(40):
        bench.run_now(load, force=True)
    workers = [another(f"worker-{i}") for i in range(2)]
    shares = [worker.lease(20) for worker in workers]
    bench.advance(5)

    def race(worker: LedgerHarness, share: list[Run]) -> None:
        for run in share:
            worker.settle(run)
            worker.admit()

    threads = [threading.Thread(target=race, args=pair_) for pair_ in zip(workers, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(50):
        bench.advance(1)
        bench.admit()
    rows = bench.runs(report)
    assert len(rows) == 40
    assert {run.state for run in rows} == {RunState.READY}


def questions(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> list[str]:
    """The statements that were executed meanwhile."""
    given: list[str] = []

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def noted(executor: Any, name: str, *rest: Any) -> Any:
            given.append(name)
            return plain(executor, name, *rest)

        return noted

    with monkeypatch.context() as patch:
        for executor in (SqliteExecutor, PostgresExecutor):
            for verb in ("query", "execute_many"):
                patch.setattr(executor, verb, noting(getattr(executor, verb)))
        work()
    return given


def test_many_followers_cost_no_more_queries_than_one(
    bench: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, _ = pair(bench)
    need = (Need(schedule="load", within=HOUR, wait=HOUR),)
    bench.schedule("needs", Every(MINUTE), needs=need, overlap=Overlap.ALLOW)
    asked: list[list[str]] = []
    for many in (0, 9):
        for number in range(many):
            bench.schedule(f"report-{number}", after("load", "success", timedelta(0)))
            bench.schedule(f"needs-{number}", Every(MINUTE), needs=need, overlap=Overlap.ALLOW)
        ends(bench, load)
        bench.advance(60)
        asked.append(questions(monkeypatch, lambda: (bench.admit(), bench.lease(100))))
        bench.settle(*bench.store.read(lambda tx: tx.select(LeasedRuns())))
    assert asked[1] == asked[0]
    assert "get_open_follow_ups" in asked[1]
    assert "upstream_links" in asked[1] or "lock_upstream_links" in asked[1]
