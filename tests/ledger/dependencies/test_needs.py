"""Needs: an occurrence starts, waits, or ends with a reason, depending on another schedule."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.ledger.ledger_kit import ADA, LedgerHarness, at, kinds
from timewright.core.moments import HOUR, MINUTE, ZERO
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import Overlap, Retry
from timewright.core.recurrence.triggers import Every, Manual, after
from timewright.core.run.run import Failed, Outcome, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.core.schedule.upstream import EndKind, Need, UnmetAction
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ledger.admission_batch import LocalCapacity
from timewright.ledger.queues.limits import set_limit
from timewright.ledger.replan import archive
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ports.rows import RunsWithNeeds

HOURLY = Every(HOUR, at(0))
BAD = Failed(error="no")


def load_of(bench: LedgerHarness) -> Schedule:
    return bench.schedule("load", Manual(), retry=Retry(max_attempts=1), overlap=Overlap.ALLOW)


def needing(
    bench: LedgerHarness,
    *,
    wait: timedelta = ZERO,
    otherwise: UnmetAction = UnmetAction.SKIP,
    **fields: object,
) -> Schedule:
    """An hourly schedule that needs a success of the load in the two hours before."""
    need = Need(schedule="load", within=2 * HOUR, wait=wait, else_=otherwise)
    return bench.schedule("report", HOURLY, needs=(need,), **fields)


def loaded(bench: LedgerHarness, load: Schedule, outcome: Outcome | None = None) -> list[str]:
    """Run `load` now with this outcome; return the facts."""
    made = bench.run_now(load, force=True)
    (leased,) = [run for run in bench.lease() if run.id == made.id]
    return kinds(bench.settle(leased, outcome=outcome).facts)


def started(bench: LedgerHarness) -> list[Run]:
    """The runs that start now; local capacity does not bypass needs."""
    bench.admit(local_capacity=LocalCapacity(holder=bench.name, free_slots=10))
    return bench.lease()


def test_it_starts_if_the_end_is_fresh_and_is_skipped_with_the_last_one_named_if_not(
    bench: LedgerHarness,
) -> None:
    load = load_of(bench)
    report = needing(bench)
    bench.move_to(60)
    assert started(bench) == []
    bench.move_to(100)
    loaded(bench, load)
    bench.move_to(120)
    (run,) = started(bench)
    bench.settle(run)
    bench.move_to(240)
    assert started(bench) == []
    assert [word for _, word in bench.outcomes_of(report)] == [
        "needs: load never succeeded",
        "succeeded",
        "missed",
        "needs: load last succeeded at 2026-03-10T13:40:00Z, longer ago than 2h",
    ]


def test_a_failure_does_not_meet_a_need_for_success(bench: LedgerHarness) -> None:
    load = load_of(bench)
    report = needing(bench)
    other = bench.schedule(
        "other",
        HOURLY,
        needs=(Need(schedule="load", within=HOUR, on=EndKind.FAILURE),),
        overlap=Overlap.ALLOW,
    )
    bench.move_to(59)
    loaded(bench, load, BAD)
    bench.move_to(60)
    assert [run.schedule_id for run in started(bench)] == [other.id]
    assert bench.outcomes_of(report) == [(60, "needs: load never succeeded")]


def test_a_run_waits_for_its_needs_and_starts_when_they_are_met(bench: LedgerHarness) -> None:
    load = load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.move_to(60)
    assert started(bench) == []
    (run,) = bench.runs(report)
    assert (run.state, run.fire_at, run.reason) == (
        RunState.READY,
        at(90),
        "needs: waits for load succeeded within 2h",
    )
    bench.move_to(65)
    assert "RunFreed" not in loaded(bench, load, BAD)
    bench.move_to(70)
    assert "RunFreed" in loaded(bench, load)
    (run,) = bench.lease()
    assert (run.schedule_id, run.reason, run.fire_at) == (report.id, "", at(70))
    bench.settle(run)
    assert bench.outcomes_of(report) == [(60, "succeeded")]


def test_a_run_is_not_freed_before_its_instant_by_an_end_that_is_dated_before_it(
    bench: LedgerHarness,
) -> None:
    """Dense seed 120000113: the end was dated, then the run was admitted, then the end was written."""
    load = load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.move_to(59)
    made = bench.run_now(load, force=True)
    (leased,) = [run for run in bench.lease() if run.id == made.id]
    bench.move_to(60)
    assert started(bench) == []
    settle_results(bench.store, [AttemptResult(run=leased, outcome=Succeeded())], now=at(59.9))
    (run,) = bench.runs(report)
    assert (run.reason, run.fire_at) == ("", at(60))


@pytest.mark.parametrize(
    ("otherwise", "state"),
    [(UnmetAction.SKIP, "skipped"), (UnmetAction.PARK, "parked"), (UnmetAction.RUN, "leased")],
)
def test_an_unmet_need_ends_the_wait_with_the_configured_action(
    bench: LedgerHarness, otherwise: UnmetAction, state: str
) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE, otherwise=otherwise)
    bench.move_to(60)
    started(bench)
    bench.move_to(89)
    assert bench.lease() == []
    bench.move_to(90)
    bench.lease()
    (run,) = bench.runs(report)
    assert run.state.value == state
    assert state == "leased" or run.reason == "needs: load never succeeded"
    assert bench.store.read(lambda tx: tx.select(RunsWithNeeds([report.id]))) == []


def test_a_waiting_run_holds_no_limit(bench: LedgerHarness) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE, limits=("api",))
    other = bench.schedule("other", HOURLY, limits=("api",))
    set_limit(bench.store, Limit(name="api", max_running=1), namespace="default", by=ADA, now=bench.now)
    bench.move_to(60)
    bench.admit()
    runs = {run.schedule_id for run in [*bench.lease(), *bench.lease()]}
    assert runs == {other.id}
    assert [run.state for run in bench.runs(report)] == [RunState.READY]


def test_a_manual_run_ignores_needs(bench: LedgerHarness) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.run_now(report)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_all_that_is_needed_must_be_there(bench: LedgerHarness) -> None:
    load = load_of(bench)
    rates = bench.schedule("rates", Manual(), overlap=Overlap.ALLOW)
    needs = tuple(Need(schedule=name, within=HOUR, wait=HOUR / 2) for name in ("load", "rates"))
    report = bench.schedule("report", HOURLY, needs=needs)
    bench.move_to(60)
    started(bench)
    loaded(bench, load)
    assert bench.lease() == []
    loaded(bench, rates)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_a_need_that_is_taken_away_lets_the_run_go(bench: LedgerHarness) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.move_to(60)
    started(bench)
    told = bench.revise(replace(report, needs=()))
    assert "RunFreed" in kinds(told.facts)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_an_end_before_the_need_was_written_counts(bench: LedgerHarness) -> None:
    load = load_of(bench)
    loaded(bench, load)
    report = needing(bench)
    bench.move_to(60)
    assert [run.schedule_id for run in started(bench)] == [report.id]


def test_a_run_that_was_tried_before_does_not_need_it_again(bench: LedgerHarness) -> None:
    load = load_of(bench)
    report = needing(bench, retry=Retry(max_attempts=2))
    loaded(bench, load)
    bench.move_to(60)
    (run,) = started(bench)
    bench.settle(run, outcome=BAD)
    bench.move_to(240)
    assert [again.id for again in bench.lease()] == [run.id]
    assert report.needs


def test_needs_and_after_together_form_no_cycle_and_name_existing_schedules(bench: LedgerHarness) -> None:
    load = load_of(bench)
    needing(bench)
    with pytest.raises(InvalidInput, match="load depends on report depends on load"):
        bench.revise(replace(load, trigger=after("report")))
    with pytest.raises(NotFound, match=r"needs\[0\].schedule: there is no schedule 'rates'"):
        bench.schedule("mail", HOURLY, needs=(Need(schedule="rates", within=HOUR),))
    with pytest.raises(NotAllowed, match="report depends on it"):
        archive(bench.store, load.id, by=ADA, now=bench.now)
