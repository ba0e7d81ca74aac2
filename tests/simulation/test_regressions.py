"""Bugs that the simulation found, each as the smallest test that shows it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulation.bench_requests import ask, verified
from timewright import cron, every
from timewright.core.moments import format_instant
from timewright.core.policies.backoff import Constant, Ladder
from timewright.core.policies.policies import CatchUp, Clamp, JitterSide, Overlap, Retry
from timewright.core.recurrence.triggers import Once, with_anchor
from timewright.core.run.run import Attempt, RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import NotAllowed
from timewright.ledger.replan import Actor, pause, resume, revise
from timewright.ports import Renewal
from timewright.stores.sqlite.store import SqliteStore
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, hang, succeed

PERSON = Actor(name="person")
HOUR = timedelta(hours=1)


def test_an_edit_after_a_pause_plans_from_now_and_not_from_the_old_next_time() -> None:
    bench = Bench()
    schedule = bench.schedule("report", Once(bench.now + 6 * HOUR))
    bench.advance(minutes=5)
    pause(bench.store, schedule.id, ids=bench.ids, until=None, by=PERSON, now=bench.now)
    bench.advance(minutes=5)
    resume(bench.store, schedule.id, ids=bench.ids, by=PERSON, now=bench.now)
    hourly = replace(schedule, trigger=with_anchor(every("1h"), schedule.created_at))
    revise(bench.store, hourly, ids=bench.ids, by=PERSON, now=bench.now)
    assert bench.progress("report").next_at == schedule.created_at + HOUR


def test_a_renewal_never_makes_a_lease_shorter() -> None:
    bench = Bench()
    bench.schedule("report", every("1h"))
    bench.target.script("report", hang())
    bench.advance(hours=1)
    (run,) = [run for run in bench.runs("report") if run.state is RunState.LEASED]
    assert run.lease_until is not None
    shorter = Renewal(run.id, run.fence, run.lease_until - timedelta(seconds=30))
    bench.store.write(lambda tx: tx.renew_leases([shorter]))
    assert bench.store.read(lambda tx: tx.get_runs([run.id]))[run.id].lease_until == run.lease_until


@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("schedule update", {"every": "2h"}),
        ("schedule restore", {"to": 1}),
        ("hint clear", {}),
    ],
)
def test_an_archived_schedule_never_changes_again(operation: str, payload: dict[str, Any]) -> None:
    bench = Bench()
    bench.schedule("report", every("1h"), adaptive=True)
    ask(bench, "schedule archive", schedule="report")
    before = bench.progress("report")
    with pytest.raises(NotAllowed) as caught:
        ask(bench, operation, schedule="report", **payload)
    assert caught.value.rule == "an archived schedule cannot be changed"
    assert "schedule create" in str(caught.value.fix)
    assert bench.progress("report") == before
    ask(bench, "schedule create", name="report", every="2h", note="anew")
    assert bench.progress("report").state is ScheduleState.ACTIVE


def test_an_edit_after_a_skip_plans_the_instants_before_the_skipped_one() -> None:
    bench = Bench()
    bench.schedule("report", every("6h"))
    bench.advance(minutes=10)
    ask(bench, "schedule skip", schedule="report")
    (left_out,) = bench.runs("report")
    ask(bench, "schedule update", schedule="report", every="1h")
    assert bench.progress("report").next_at == bench.now + timedelta(minutes=50)
    bench.advance(hours=7)
    runs = bench.runs("report")
    assert len(runs) == 7
    assert [run.planned_at for run in runs if run.state is RunState.SKIPPED] == [left_out.planned_at]
    assert verified(bench) == []


def test_an_edit_in_a_pause_after_a_skip_plans_the_instants_before_the_skipped_one() -> None:
    bench = Bench()
    bench.schedule("report", every("24h"))
    ask(bench, "schedule skip", schedule="report", count=3)
    ask(bench, "schedule pause", schedule="report", until=format_instant(bench.now + HOUR))
    edited = bench.now
    bench.advance(minutes=30)
    ask(bench, "schedule update", schedule="report", every="10m")
    bench.advance(hours=2)
    planned = {run.planned_at: run.state for run in bench.runs("report") if run.planned_at > edited}
    assert planned[edited + timedelta(minutes=50)] is RunState.SKIPPED
    assert planned[edited + timedelta(minutes=90)] is RunState.SUCCEEDED
    assert ask(bench, "verify")["holds"]


def test_an_edit_of_other_fields_keeps_skipped_instants_skipped() -> None:
    bench = Bench()
    bench.schedule("report", every("1h"))
    ask(bench, "schedule skip", schedule="report")
    before = bench.progress("report").next_at
    ask(bench, "schedule update", schedule="report", priority=7)
    assert bench.progress("report").next_at == before


def test_instants_due_at_an_edit_are_decided_under_the_old_revision() -> None:
    bench = Bench()
    bench.schedule("report", every("1h"))
    bench.clock.advance(HOUR + timedelta(minutes=1))
    ask(bench, "schedule update", schedule="report", every="25m", clamp={"min": "10m"})
    (run,) = bench.runs("report")
    assert (run.revision, run.state) == (1, RunState.READY)
    bench.advance(hours=2)
    assert verified(bench) == []


def test_an_edit_in_a_hinted_pause_skips_no_instant() -> None:
    bench = Bench()
    bench.schedule("report", every("10m"), adaptive=True)
    until = (bench.now + timedelta(minutes=50)).isoformat()
    ask(bench, "hint pause", schedule="report", until=until, reason="night")
    bench.advance(minutes=30)
    ask(bench, "schedule update", schedule="report", priority=7)
    bench.advance(minutes=40)
    assert len(bench.runs("report")) == 7
    assert verified(bench) == []


def test_verify_accepts_an_edit_after_max_runs() -> None:
    bench = Bench()
    bench.schedule("report", every("1h"), max_runs=2)
    bench.advance(hours=6)
    assert bench.progress("report").state is ScheduleState.FINISHED
    ask(bench, "schedule update", schedule="report", max_runs=4)
    bench.advance(hours=6)
    assert sum(run.state is RunState.SUCCEEDED for run in bench.runs("report")) == 4
    assert verified(bench) == []


def test_verify_accepts_a_reused_name_of_an_archived_schedule() -> None:
    bench = Bench()
    bench.schedule("report", every("1h"), max_runs=100)
    bench.advance(hours=2)
    ask(bench, "schedule archive", schedule="report")
    bench.advance(hours=3)
    ask(bench, "schedule create", name="report", every="2h", note="anew")
    bench.advance(hours=3)
    assert verified(bench) == []


@pytest.mark.parametrize("stopped", ["paused", "parked"])
def test_verify_accepts_an_edit_of_a_suspended_schedule(stopped: str) -> None:
    bench = Bench()
    bench.schedule("report", every("1h"), max_runs=100, disable_after=1)
    bench.target.script("report", fail())
    bench.advance(minutes=30)
    if stopped == "paused":
        ask(bench, "schedule pause", schedule="report")
    bench.advance(hours=3)
    assert bench.progress("report").state == stopped
    ask(bench, "schedule update", schedule="report", every="50m")
    bench.advance(hours=1)
    ask(bench, "schedule resume", schedule="report")
    bench.advance(hours=1)
    assert verified(bench) == []


def test_verify_accepts_a_hinted_interval_in_place_of_the_baseline() -> None:
    bench = Bench()
    bench.schedule("report", every("15m"), adaptive=True)
    ask(bench, "hint interval", schedule="report", interval="3h", ttl="45m", reason="rarely")
    bench.advance(minutes=15, seconds=1)
    at = (bench.now + timedelta(minutes=20)).isoformat()
    ask(bench, "hint once", schedule="report", at=at, reason="but then")
    bench.advance(hours=1)
    assert "ai-oneshot" in {run.source for run in bench.runs("report")}
    assert verified(bench) == []


def test_jitter_to_both_sides_does_not_wake_before_a_pause_ends() -> None:
    bench = Bench()
    bench.schedule(
        "report", every("1h"), adaptive=True, jitter=timedelta(minutes=3), jitter_side=JitterSide.BOTH
    )
    until = bench.now + timedelta(minutes=50)
    ask(bench, "hint pause", schedule="report", until=until.isoformat(), reason="night")
    assert bench.progress("report").wake_at == until
    bench.advance(hours=2)
    assert verified(bench) == []


def test_verify_accepts_a_run_jittered_to_before_a_pause() -> None:
    bench = Bench()
    names = [f"report-{number}" for number in range(8)]
    for name in names:
        bench.schedule(name, every("1h"), jitter=timedelta(minutes=20), jitter_side=JitterSide.BOTH)
    bench.advance(minutes=55)
    early = [name for name in names if bench.runs(name)]
    assert early
    for name in early:
        ask(bench, "schedule pause", schedule=name)
    bench.advance(hours=3)
    for name in early:
        ask(bench, "schedule resume", schedule=name)
    assert verified(bench) == []


def test_results_during_a_stop_are_not_dated_after_the_store_clock() -> None:
    clock = ManualClock(DEFAULT_START)
    store = SqliteStore(":memory:", clock=clock)
    bench = Bench(clock=clock, store=store)
    bench.schedule("report", every("1h"))
    bench.target.script("report", hang())
    bench.advance(hours=1)
    clock.step(timedelta(minutes=-30))
    clock.advance(minutes=5)
    bench.loop.stop(wait=timedelta(0), grace=timedelta(0))
    (run,) = bench.runs("report")
    (ended,) = store.read(lambda tx: tx.get_run_rows(Attempt, [run.id]))[run.id]
    assert ended.ended_at <= store.now()


def test_verify_accepts_a_resume_after_a_pause_has_ended() -> None:
    bench = Bench()
    bench.schedule("report", every("10m"), catch_up=CatchUp.ALL, catch_up_limit=1)
    bench.target.script("report", succeed(after=timedelta(minutes=20)))
    until = (bench.now + timedelta(minutes=25)).isoformat()
    ask(bench, "schedule pause", schedule="report", until=until)
    bench.clock.advance(timedelta(hours=2))
    bench.advance(minutes=30)
    assert bench.progress("report").state is ScheduleState.PAUSED
    ask(bench, "schedule resume", schedule="report")
    bench.advance(hours=4)
    assert [broken for broken in verified(bench) if broken.startswith("I23")] == []


def test_a_maximum_counts_from_the_expiry_of_a_hint_that_outlasted_a_pause() -> None:
    """Dense seed 640000112: a late pass counted from before the pause, and ran in the time of the hint."""
    bench = Bench()
    bench.schedule("report", cron("0 0 1 1 *"), adaptive=True, clamp=Clamp(max=HOUR))
    bench.advance(minutes=10)
    ask(bench, "schedule pause", schedule="report", until=format_instant(bench.now + HOUR / 2))
    ask(bench, "hint interval", schedule="report", interval="10s", ttl="70m", reason="watch")
    expires_at = bench.now + timedelta(minutes=70)
    bench.clock.advance(minutes=100)
    bench.advance(hours=1)
    planned = [run.planned_at for run in bench.runs("report")]
    assert planned == [expires_at + HOUR]
    assert verified(bench) == []


@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("hint clear", {}),
        ("hint interval", {"interval": "4h", "ttl": "1m", "reason": "rarely"}),
        ("hint pause", {"until": "2026-03-10T12:16:30Z", "reason": "night"}),
        ("schedule pause", {"until": "2026-03-10T12:16:30Z"}),
    ],
)
def test_a_change_keeps_what_came_due_since_a_hint_expired(operation: str, payload: dict[str, Any]) -> None:
    """Dense seed 130000766: no pass was made since a hint expired, and a change passed over an instant."""
    bench = Bench()
    bench.schedule("report", every("5m"), adaptive=True)
    bench.advance(minutes=4)
    ask(bench, "hint interval", schedule="report", interval="3h", ttl="2m", reason="rarely")
    bench.advance(minutes=1)
    assert bench.progress("report").source == Source.AI_INTERVAL
    bench.clock.advance(minutes=7)
    ask(bench, operation, schedule="report", **payload)
    bench.advance(minutes=20)
    assert DEFAULT_START + timedelta(minutes=10) in [run.planned_at for run in bench.runs("report")]
    assert verified(bench) == []


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_failure_in_a_pause_keeps_open_what_a_success_had_opened_in_it(is_resumed: bool) -> None:
    """Dense seed 130000739: the second streak hid what the success in the same pause had made due."""
    bench = Bench()
    ladder = Ladder(steps=(timedelta(seconds=90),))
    bench.schedule(
        "report", every("1m"), adaptive=True, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, cadence=ladder
    )
    first, third = succeed(after=timedelta(seconds=200)), fail(after=timedelta(seconds=60))
    last = fail(after=timedelta(seconds=40))
    bench.target.script("report", first, fail(), third, last, succeed())
    bench.advance(minutes=4, seconds=10)
    until = DEFAULT_START + timedelta(minutes=8)
    ask(bench, "hint pause", schedule="report", until=format_instant(until), reason="night")
    bench.advance(minutes=1)
    assert bench.progress("report").failures == 2
    if is_resumed:
        ask(bench, "schedule resume", schedule="report")
    bench.advance(minutes=5)
    replaced = DEFAULT_START + timedelta(minutes=3)
    assert [run.state for run in bench.runs("report") if run.planned_at == replaced] == ["succeeded"]
    assert verified(bench) == []


def test_a_success_after_the_last_run_that_is_allowed_opens_nothing() -> None:
    """Dense seed 130000751: what a cadence had replaced was noted as open, though `max_runs` was used up."""
    bench = Bench()
    ladder = Ladder(steps=(timedelta(seconds=90),))
    bench.schedule("report", every("1m"), overlap=Overlap.ALLOW, cadence=ladder, max_runs=4)
    third, last = fail(after=timedelta(seconds=60)), succeed(after=timedelta(seconds=60))
    bench.target.script("report", succeed(after=timedelta(seconds=200)), fail(), third, last)
    bench.advance(minutes=10)
    assert bench.progress("report").state is ScheduleState.FINISHED
    assert verified(bench) == []


def test_a_clamp_counts_from_the_last_occurrence_when_an_earlier_run_ends_after_it() -> None:
    """A hint was counted from the start of the run that ended, and so was the clamp."""
    bench = Bench()
    once_more = Retry(max_attempts=2, backoff=Constant(wait=timedelta(seconds=110)))
    clamp = Clamp(min=timedelta(minutes=2))
    bench.schedule("report", every("1m"), adaptive=True, clamp=clamp, overlap=Overlap.ALLOW, retry=once_more)
    bench.target.script("report", fail(), succeed(after=timedelta(seconds=30)), succeed())
    bench.advance(minutes=3)
    ask(bench, "hint interval", schedule="report", interval="10s", ttl="10m", reason="watch")
    bench.advance(minutes=2)
    assert [run.planned_at.minute for run in bench.runs("report") if run.state is RunState.SUCCEEDED] == [
        2,
        4,
    ]
    assert bench.progress("report").next_at == DEFAULT_START + timedelta(minutes=6)
    bench.advance(minutes=5)
    assert verified(bench) == []


def test_verify_accepts_a_hint_that_another_one_replaced_in_a_backlog() -> None:
    """The instant that the first one asked for had come, but the pass had carried it over."""
    bench = Bench()
    bench.schedule("report", every("1m"), adaptive=True, catch_up=CatchUp.ALL, catch_up_limit=1)
    bench.target.script("report", succeed(after=timedelta(minutes=2)))
    at = bench.now + timedelta(seconds=210)
    ask(bench, "hint once", schedule="report", at=format_instant(at), reason="look")
    bench.clock.advance(minutes=4)
    bench.advance(seconds=30)
    assert bench.progress("report").cursor < at
    ask(bench, "hint once", schedule="report", at=format_instant(bench.now + HOUR / 4), reason="later")
    bench.advance(minutes=10)
    assert verified(bench) == []


def test_an_instant_that_a_hint_asked_for_is_carried_over_behind_a_skipped_one() -> None:
    """The cursor is at the instant that was skipped ahead, so the carried one was not found behind it."""
    bench = Bench()
    bench.schedule(
        "report", every("1h"), adaptive=True, catch_up=CatchUp.ALL, catch_up_limit=1, overlap=Overlap.QUEUE
    )
    bench.target.script("report", succeed(after=timedelta(minutes=5)), succeed())
    ask(bench, "schedule skip", schedule="report")
    ask(bench, "hint interval", schedule="report", interval="1m", ttl="20m", reason="watch")
    bench.advance(minutes=2)
    bench.clock.advance(minutes=3)
    bench.advance(minutes=10)
    assert DEFAULT_START + timedelta(minutes=3) in [run.planned_at for run in bench.runs("report")]
    assert verified(bench) == []
