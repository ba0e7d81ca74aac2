"""Hints: wishes that expire, come nearer at once, are used up once, and never outlive their pause."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.ledger.bench import ADA, Bench, at, kinds
from timewright.core.hints import NO_HINTS, IntervalHint, OneShotHint, PauseHint
from timewright.core.moments import HOUR, MINUTE
from timewright.core.policies import Align, CatchUp, Clamp
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.triggers import Every
from timewright.errors import NotAllowed
from timewright.ledger.replan import clear_hints


def adaptive(bench: Bench, **fields: Any) -> Schedule:
    return bench.schedule(trigger=Every(HOUR), adaptive=True, **fields)


def often(minutes: float, *, expires: float = 600) -> IntervalHint:
    return IntervalHint(interval=timedelta(minutes=minutes), expires_at=at(expires), reason="rising")


def once(minutes: float, *, expires: float = 600) -> OneShotHint:
    return OneShotHint(at=at(minutes), expires_at=at(expires), reason="look soon")


def next_at(bench: Bench, job: Schedule) -> tuple[datetime | None, str]:
    standing = bench.standing(job)
    return standing.next_at, str(standing.source)


def test_a_schedule_takes_hints_only_when_it_says_so(bench: Bench) -> None:
    job = bench.schedule()
    with pytest.raises(NotAllowed, match="does not take hints"):
        bench.hint(job, often(5))
    assert bench.standing(job).hints.interval is None


def test_a_nearer_wish_moves_the_next_time_at_once_and_a_later_one_does_not(bench: Bench) -> None:
    job = adaptive(bench)
    changed = bench.hint(job, often(5))
    assert kinds(changed.facts) == ["ScheduleChanged", "ScheduleMoved"]
    assert next_at(bench, job) == (at(5), "ai-interval")
    changed = bench.hint(job, often(30))
    assert kinds(changed.facts) == ["ScheduleChanged"]
    assert next_at(bench, job) == (at(5), "ai-interval")


def test_a_run_that_a_hint_made_says_so_and_names_what_lost(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.go(5)
    bench.admit()
    (run,) = bench.runs(job)
    assert (run.planned_at, run.source) == (at(5), "ai-interval")
    assert at(60) in {candidate.at for candidate in run.trail}


def test_a_one_shot_is_used_up_by_the_run_that_used_it(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, once(7))
    bench.go(7)
    bench.admit()
    assert bench.standing(job).hints.one_shot is None
    bench.work()
    assert bench.fates(job) == [(7, "succeeded")]
    assert next_at(bench, job) == (at(60), "baseline-interval")


def test_an_interval_wish_holds_until_it_expires(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, often(20, expires=45))
    for minute in (20, 40, 60):
        bench.go(minute)
        bench.admit()
        bench.work()
    assert bench.fates(job) == [(20, "succeeded"), (40, "succeeded"), (60, "succeeded")]
    assert next_at(bench, job) == (at(120), "baseline-interval")


def test_no_wish_comes_nearer_than_the_clamp(bench: Bench) -> None:
    job = adaptive(bench, clamp=Clamp(min=10 * MINUTE))
    bench.hint(job, often(1))
    assert next_at(bench, job) == (at(10), "clamped-min")


def test_a_pause_by_hint_holds_back_and_is_recorded(bench: Bench) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.ALL)
    bench.go(0.5)
    bench.hint(job, PauseHint(until=at(3), reason="quiet"))
    assert next_at(bench, job) == (at(3), "paused")
    bench.go(3)
    bench.admit()
    assert bench.fates(job) == [(1, "paused"), (2, "paused"), (3, "ready")]
    assert bench.standing(job).hints.pause is None
    assert bench.standing(job).state is ScheduleState.ACTIVE


def test_one_pause_by_hint_after_another_is_one_pause(bench: Bench) -> None:
    job = bench.schedule(adaptive=True)
    bench.go(0.5)
    bench.hint(job, PauseHint(until=at(2.5)))
    bench.go(2.2)
    bench.hint(job, PauseHint(until=at(4.5)))
    bench.go(5)
    bench.admit()
    assert bench.fates(job) == [*[(minute, "paused") for minute in (1, 2, 3, 4)], (5, "ready")]


def test_forgetting_a_pause_that_was_wished_ends_it_now(bench: Bench) -> None:
    job = bench.schedule(adaptive=True, catch_up=CatchUp.ALL)
    bench.go(0.5)
    bench.hint(job, PauseHint(until=at(30)))
    bench.go(2.5)
    clear_hints(bench.store, job.id, by=ADA, now=bench.now)
    bench.admit()
    assert bench.fates(job) == [(1, "paused"), (2, "paused")]
    assert next_at(bench, job) == (at(3), "baseline-interval")


def test_a_person_can_end_a_pause_that_was_wished(bench: Bench) -> None:
    job = bench.schedule(adaptive=True)
    bench.go(0.5)
    bench.hint(job, PauseHint(until=at(30)))
    bench.go(2.5)
    changed = bench.resume(job)
    assert bench.fates(job) == [(1, "paused"), (2, "paused")]
    assert (changed.standing.next_at, changed.standing.hints) == (at(3), NO_HINTS)


def test_forgetting_wishes_decides_without_them(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.hint(job, once(3))
    changed = clear_hints(bench.store, job.id, by=ADA, now=bench.now)
    assert changed.standing.hints == NO_HINTS
    assert next_at(bench, job) == (at(60), "baseline-interval")


def test_what_has_come_due_by_a_hint_stays_due_though_the_hint_is_forgotten(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    bench.go(6)
    clear_hints(bench.store, job.id, by=ADA, now=bench.now)
    bench.admit()
    assert bench.fates(job) == [(5, "ready")]


def test_a_wish_for_a_paused_schedule_is_kept_and_moves_nothing(bench: Bench) -> None:
    job = adaptive(bench)
    bench.pause(job)
    bench.hint(job, often(5))
    assert next_at(bench, job) == (None, "paused")
    clear_hints(bench.store, job.id, by=ADA, now=bench.now)
    assert next_at(bench, job) == (None, "paused")
    bench.go(30)
    assert bench.admit().looked_at == 0


def test_a_wish_made_while_a_run_is_under_way_counts_when_it_ends(bench: Bench) -> None:
    job = adaptive(bench, align=Align.NOW)
    bench.go(60)
    bench.admit()
    (run,) = bench.lease()
    bench.go(62)
    bench.hint(job, often(5))
    bench.go(63)
    bench.settle(run)
    assert next_at(bench, job) == (at(65), "ai-interval"), "five minutes after the run began"


def test_every_wish_leaves_its_line(bench: Bench) -> None:
    job = adaptive(bench)
    bench.hint(job, often(5))
    clear_hints(bench.store, job.id, by=ADA, now=bench.now)
    assert [e.action for e in bench.audit()] == ["schedule.create", "schedule.hint", "schedule.clear_hints"]
