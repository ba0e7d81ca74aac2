"""Bugs with hints that simulations of many adaptive schedules found, each as the smallest test of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.bench_requests import ask, verified
from timewright import every
from timewright.core.moments import format_instant
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import Align, CatchUp, Clamp, JitterSide, Overlap
from timewright.core.recurrence.triggers import Manual
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.targets import fail, succeed


def test_a_success_under_a_hint_opens_what_its_streak_replaced_before_the_hint() -> None:
    """Ruling 23: 12:03 came due before the hint replaced the trigger, and the cadence replaced it."""
    bench = Bench()
    ladder = Ladder(steps=(timedelta(minutes=10),))
    bench.schedule(
        "report", every("1m"), adaptive=True, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, cadence=ladder
    )
    bench.target.script("report", succeed(after=timedelta(seconds=200)), fail(), succeed())
    bench.advance(minutes=3, seconds=30)
    ask(bench, "hint interval", schedule="report", interval="5m", ttl="10m", reason="rarely")
    bench.advance(minutes=4)
    opened = DEFAULT_START + timedelta(minutes=3)
    assert [run.state for run in bench.runs("report") if run.planned_at == opened] == ["succeeded"]
    bench.advance(minutes=30)
    assert verified(bench) == []


def test_verify_accepts_what_a_hint_decided_within_the_early_jitter_before_it_was_cleared() -> None:
    """Each instant counts from one that lies ahead of the clock, and of the end of the hint."""
    bench = Bench()
    bench.schedule(
        "report", every("10m"), adaptive=True, jitter=timedelta(minutes=2), jitter_side=JitterSide.BOTH
    )
    ask(bench, "hint interval", schedule="report", interval="10s", ttl="10m", reason="watch")
    bench.advance(minutes=3)
    ask(bench, "hint clear", schedule="report")
    assert max(run.planned_at for run in bench.runs("report")) > bench.now + timedelta(minutes=1)
    bench.advance(minutes=20)
    assert verified(bench) == []


def test_verify_accepts_an_edit_after_a_skip_that_recorded_what_the_clamp_displaced() -> None:
    """The edit plans the instants before the skipped one again, and the row that counts them stays."""
    bench = Bench()
    clamp = Clamp(min=timedelta(minutes=4))
    bench.schedule("report", every("1m"), clamp=clamp)
    bench.advance(seconds=70)
    ask(bench, "schedule skip", schedule="report")
    assert [run.reason for run in bench.runs("report")] == ["clamped", "by_hand"]
    bench.advance(seconds=20)
    ask(bench, "schedule update", schedule="report", every="30s", clamp={"min": "1m"})
    bench.advance(minutes=20)
    assert verified(bench) == []


def test_an_edit_of_a_manual_trigger_keeps_what_a_hint_decided_within_the_early_jitter() -> None:
    """The new plan began at the edit, before an instant that had its run already."""
    bench = Bench()
    jitter = timedelta(minutes=2)
    bench.schedule("report", Manual(), adaptive=True, jitter=jitter, jitter_side=JitterSide.BOTH)
    ask(bench, "hint interval", schedule="report", interval="1m", ttl="1h", reason="watch")
    bench.advance(seconds=30)
    before = bench.progress("report").cursor
    assert before > bench.now
    ask(bench, "schedule update", schedule="report", every="10m")
    assert bench.progress("report").cursor == before
    assert verified(bench) == []


def test_verify_accepts_an_instant_that_a_hint_asked_for_just_before_a_skipped_one() -> None:
    """The clamp counts from what was decided before, and the skipped instant had its row already."""
    bench = Bench()
    bench.schedule("report", every("10m"), adaptive=True, clamp=Clamp(min=timedelta(minutes=2)))
    ask(bench, "schedule skip", schedule="report")
    bench.advance(minutes=7, seconds=30)
    ask(bench, "hint interval", schedule="report", interval="2m", ttl="10m", reason="watch")
    bench.advance(minutes=20)
    assert DEFAULT_START + timedelta(seconds=570) in [run.planned_at for run in bench.runs("report")]
    assert verified(bench) == []


@pytest.mark.parametrize("align", list(Align))
def test_a_hinted_pause_does_not_continue_one_that_ended_before_it(align: Align) -> None:
    """No pass was made between the two, and what came due there was recorded as paused, or not at all."""
    bench = Bench()
    bench.schedule("report", every("5m"), adaptive=True, align=align)
    bench.advance(minutes=1)
    ends = DEFAULT_START + timedelta(minutes=8)
    ask(bench, "hint pause", schedule="report", until=format_instant(ends), reason="night")
    bench.clock.advance(minutes=10)
    until = bench.now + timedelta(minutes=6)
    ask(bench, "hint pause", schedule="report", until=format_instant(until), reason="night")
    bench.advance(minutes=20)
    due = ends if align is Align.NOW else DEFAULT_START + timedelta(minutes=10)
    assert [run.state for run in bench.runs("report") if run.planned_at == due] == ["succeeded"]
    assert verified(bench) == []


@pytest.mark.parametrize("catch_up", [CatchUp.ALL, CatchUp.SPREAD])
def test_an_occurrence_that_an_instant_of_a_hint_follows_is_caught_up_and_not_replaced(
    catch_up: CatchUp,
) -> None:
    """Its successor was due in the same pass, so it is missed (§3.3), and no newer run replaces it."""
    bench = Bench()
    bench.schedule("report", every("2m"), adaptive=True, overlap=Overlap.REPLACE, catch_up=catch_up)
    bench.target.script("report", succeed(after=timedelta(minutes=1)), succeed())
    bench.advance(seconds=110)
    ask(bench, "schedule run", schedule="report")
    bench.advance(seconds=1)
    due = DEFAULT_START + timedelta(seconds=121)
    ask(bench, "hint once", schedule="report", at=format_instant(due), reason="watch")
    bench.clock.advance(timedelta(seconds=11))
    bench.advance(seconds=1)
    ask(bench, "schedule run", schedule="report", reason="again")
    bench.advance(seconds=90)
    outcomes = {run.planned_at: run.state for run in bench.runs("report") if run.source != "manual"}
    assert outcomes == {DEFAULT_START + timedelta(minutes=2): "succeeded", due: "succeeded"}
    assert verified(bench) == []


def test_verify_knows_that_a_hint_decides_an_edit_at_the_same_instant() -> None:
    """The edit plans again, under the hint that was made just before it on a clock that stood still."""
    bench = Bench()
    bench.schedule("report", every("1m"), adaptive=True)
    bench.advance(seconds=90)
    ask(bench, "hint interval", schedule="report", interval="3h", ttl="4h", reason="quiet")
    ask(bench, "schedule update", schedule="report", priority="high")
    assert bench.progress("report").next_at == DEFAULT_START + timedelta(hours=3, seconds=90)
    assert verified(bench) == []


@pytest.mark.parametrize("verb", ["schedule pause", "hint pause"])
def test_with_align_now_what_was_due_before_a_pause_is_decided(verb: str) -> None:
    """The engine was late, and the pause replaced the only instant that was planned (I3)."""
    bench = Bench()
    bench.schedule("report", every("5m"), adaptive=True, align=Align.NOW)
    bench.advance(minutes=6)
    bench.clock.advance(timedelta(minutes=5))
    until = format_instant(bench.now + timedelta(minutes=30))
    ask(bench, verb, schedule="report", until=until, reason="night")
    bench.advance(minutes=40)
    assert DEFAULT_START + timedelta(minutes=10) in [run.planned_at for run in bench.runs("report")]
    assert verified(bench) == []
