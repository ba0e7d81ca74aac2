"""An occurrence that needs another schedule's end: it starts, waits, or is given up, and says why."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.ledger.bench import ADA, Bench, at, kinds
from timewright.core.moments import HOUR, MINUTE, ZERO
from timewright.core.policies import Overlap, Retry
from timewright.core.run import Failed, Outcome, Run, RunState
from timewright.core.schedule import Schedule
from timewright.core.triggers import Every, Manual, after
from timewright.core.upstream import Need, On, Otherwise
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ledger.admission_pass import Offer
from timewright.ledger.policy import set_limit
from timewright.ledger.replan import archive

HOURLY = Every(HOUR, at(0))
BAD = Failed(error="no")


def load_of(bench: Bench) -> Schedule:
    return bench.schedule("load", Manual(), retry=Retry(max_attempts=1), overlap=Overlap.ALLOW)


def needing(
    bench: Bench, *, wait: timedelta = ZERO, otherwise: Otherwise = Otherwise.SKIP, **fields: object
) -> Schedule:
    """An hourly schedule that needs a success of the load in the two hours before."""
    need = Need(schedule="load", within=2 * HOUR, wait=wait, else_=otherwise)
    return bench.schedule("report", HOURLY, needs=(need,), **fields)


def loaded(bench: Bench, load: Schedule, outcome: Outcome | None = None) -> list[str]:
    """One run of the load that ends so now; gives back what happened."""
    made = bench.run_now(load, force=True)
    (leased,) = [run for run in bench.lease() if run.id == made.id]
    return kinds(bench.settle(leased, outcome=outcome).facts)


def started(bench: Bench) -> list[Run]:
    """What starts now; an offer does not pass by what is needed."""
    bench.admit(offer=Offer(holder=bench.name, capacity=10))
    return bench.lease()


def test_it_starts_if_the_end_is_fresh_and_is_skipped_with_the_last_one_named_if_not(bench: Bench) -> None:
    load = load_of(bench)
    report = needing(bench)
    bench.go(60)
    assert started(bench) == []
    bench.go(100)
    loaded(bench, load)
    bench.go(120)
    (run,) = started(bench)
    bench.settle(run)
    bench.go(240)
    assert started(bench) == []
    assert [word for _, word in bench.fates(report)] == [
        "needs: load never succeeded",
        "succeeded",
        "missed",
        "needs: load last succeeded at 2026-03-10T13:40:00Z, longer ago than 2h",
    ]


def test_a_failure_is_not_what_a_success_is_needed_for(bench: Bench) -> None:
    load = load_of(bench)
    report = needing(bench)
    other = bench.schedule(
        "other", HOURLY, needs=(Need(schedule="load", within=HOUR, on=On.FAILURE),), overlap=Overlap.ALLOW
    )
    bench.go(59)
    loaded(bench, load, BAD)
    bench.go(60)
    assert [run.schedule_id for run in started(bench)] == [other.id]
    assert bench.fates(report) == [(60, "needs: load never succeeded")]


def test_it_waits_for_what_it_needs_and_starts_the_moment_it_comes(bench: Bench) -> None:
    load = load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.go(60)
    assert started(bench) == []
    (run,) = bench.runs(report)
    assert (run.state, run.fire_at, run.reason) == (
        RunState.READY,
        at(90),
        "needs: waits for load succeeded within 2h",
    )
    bench.go(65)
    assert "RunFreed" not in loaded(bench, load, BAD)
    bench.go(70)
    assert "RunFreed" in loaded(bench, load)
    (run,) = bench.lease()
    assert (run.schedule_id, run.reason, run.fire_at) == (report.id, "", at(70))
    bench.settle(run)
    assert bench.fates(report) == [(60, "succeeded")]


@pytest.mark.parametrize(
    ("otherwise", "state"),
    [(Otherwise.SKIP, "skipped"), (Otherwise.PARK, "parked"), (Otherwise.RUN, "leased")],
)
def test_what_never_comes_ends_the_wait_as_was_asked_for(
    bench: Bench, otherwise: Otherwise, state: str
) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE, otherwise=otherwise)
    bench.go(60)
    started(bench)
    bench.go(89)
    assert bench.lease() == []
    bench.go(90)
    bench.lease()
    (run,) = bench.runs(report)
    assert run.state.value == state
    assert state == "leased" or run.reason == "needs: load never succeeded"
    assert bench.store.read(lambda tx: tx.waits_of([report.id])) == []


def test_a_run_that_waits_takes_no_place_under_a_ceiling(bench: Bench) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE, limits=("api",))
    other = bench.schedule("other", HOURLY, limits=("api",))
    set_limit(bench.store, namespace="default", name="api", most=1, by=ADA, now=bench.now)
    bench.go(60)
    bench.admit()
    runs = {run.schedule_id for run in [*bench.lease(), *bench.lease()]}
    assert runs == {other.id}
    assert [run.state for run in bench.runs(report)] == [RunState.READY]


def test_what_a_person_asks_for_waits_for_nothing(bench: Bench) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.run_now(report)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_all_that_is_needed_must_be_there(bench: Bench) -> None:
    load = load_of(bench)
    rates = bench.schedule("rates", Manual(), overlap=Overlap.ALLOW)
    needs = tuple(Need(schedule=name, within=HOUR, wait=HOUR / 2) for name in ("load", "rates"))
    report = bench.schedule("report", HOURLY, needs=needs)
    bench.go(60)
    started(bench)
    loaded(bench, load)
    assert bench.lease() == []
    loaded(bench, rates)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_a_need_that_is_taken_away_lets_the_run_go(bench: Bench) -> None:
    load_of(bench)
    report = needing(bench, wait=30 * MINUTE)
    bench.go(60)
    started(bench)
    told = bench.revise(replace(report, needs=()))
    assert "RunFreed" in kinds(told.facts)
    assert [run.schedule_id for run in bench.lease()] == [report.id]


def test_what_came_before_the_need_was_written_counts(bench: Bench) -> None:
    load = load_of(bench)
    loaded(bench, load)
    report = needing(bench)
    bench.go(60)
    assert [run.schedule_id for run in started(bench)] == [report.id]


def test_a_run_that_was_tried_before_does_not_need_it_again(bench: Bench) -> None:
    load = load_of(bench)
    report = needing(bench)
    loaded(bench, load)
    bench.go(60)
    (run,) = started(bench)
    bench.settle(run, outcome=BAD)
    bench.go(240)
    assert [again.id for again in bench.lease()] == [run.id]
    assert report.needs


def test_needs_and_after_together_make_no_ring_and_name_what_exists(bench: Bench) -> None:
    load = load_of(bench)
    needing(bench)
    with pytest.raises(InvalidInput, match="load waits for report waits for load"):
        bench.revise(replace(load, trigger=after("report")))
    with pytest.raises(NotFound, match=r"needs\[0\].schedule names 'rates'"):
        bench.schedule("mail", HOURLY, needs=(Need(schedule="rates", within=HOUR),))
    with pytest.raises(NotAllowed, match="report waits for its ends"):
        archive(bench.store, load.id, by=ADA, now=bench.now)
