"""Due schedules are decided and written shortly before their instant; the store commits at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.conftest import postgres_url
from timewright.core.policies.policies import LeaseTerms, Overlap
from timewright.core.recurrence.triggers import After, Every, every
from timewright.core.run.run import Run, RunState
from timewright.engine.tick import TickLimits
from timewright.errors import ClockBehind, OutcomeUnknown, StoreUnavailable
from timewright.ledger.replan import Actor, pause
from timewright.ports import RunFilter, Store
from timewright.stores.clock_guard import MAX_LEAD_S, CommitTimer
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import succeed
from timewright.wiring import open_store

__all__ = ["postgres_url"]

BY = Actor(name="tester")
SHORTLY = timedelta(milliseconds=2)
NOON = "2026-03-10T12:00:00Z"


class SleepingClock(ManualClock):
    """A clock that records its sleeps, and calls `meanwhile` in each."""

    def __init__(self) -> None:
        super().__init__(NOON)
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()
        super().sleep(seconds)


class LeadBench(Bench):
    """A bench that decides before the instant by the lead time of its store."""

    def __init__(self, *, store: Store | None = None, clock: SleepingClock | None = None) -> None:
        self.sleeper = clock or SleepingClock()
        super().__init__(store=store, clock=self.sleeper)
        untyped: Any = self.store
        self.lead_time: Callable[[int], timedelta] = untyped.lead_time
        self.loop.sleep_plan.lead_time = self.lead_time
        self.loop.settles_inline = False

    def finish_all(self) -> None:
        """End all work, without a lead time."""
        self.loop.sleep_plan.lead_time, self.loop.settles_inline = None, True
        self.advance(seconds=1)

    def move_near(self, ahead: timedelta = SHORTLY) -> None:
        """Run a tick, then move the clock to shortly before the next instant."""
        self.loop.step()
        due = self.loop.tick.pending.last.schedule_due_at
        assert due is not None
        self.clock.advance(due - ahead - self.now)


@pytest.fixture
def bench() -> LeadBench:
    return LeadBench()


@pytest.fixture(params=("sqlite", "postgres"))
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[LeadBench, Store]]:
    """The bench on a store that the test also reads through a second connection."""
    place = request.getfixturevalue("file" if request.param == "sqlite" else "database")
    clock = SleepingClock()
    mine, theirs = open_store(place, clock=clock), open_store(place, clock=clock)
    yield LeadBench(store=mine, clock=clock), theirs
    theirs.close()
    mine.close()


def runs_in(store: Store) -> list[Run]:
    return list(store.read(lambda tx: tx.find(RunFilter(limit=100))).rows)


def test_the_sleep_ends_before_the_instant_by_the_lead_time(bench: LeadBench) -> None:
    bench.schedule("a", every("30s"))
    assert bench.loop.step() == pytest.approx(30 - bench.lead_time(1).total_seconds())


def test_runs_are_written_before_the_instant_and_committed_at_it(shared: tuple[LeadBench, Store]) -> None:
    bench, theirs = shared
    bench.schedule("a", every("1m"))
    seen_meanwhile: list[list[Run]] = []
    bench.sleeper.meanwhile = lambda: seen_meanwhile.append(runs_in(theirs))
    bench.move_near()
    bench.loop.step()
    assert bench.sleeper.slept == pytest.approx([SHORTLY.total_seconds()])
    assert seen_meanwhile == [[]]
    (run,) = runs_in(theirs)
    assert run.created_at == run.leased_at == run.planned_at == bench.now
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now]


def test_nothing_starts_before_the_lead_time(bench: LeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near(timedelta(milliseconds=200))
    bench.loop.step()
    assert bench.sleeper.slept == []
    assert bench.runs("a") == []


def test_a_run_that_ends_during_the_lead_time_is_not_overlapped(bench: LeadBench) -> None:
    bench.schedule("a", every("1m"), overlap=Overlap.SKIP, lease=LeaseTerms(length=timedelta(minutes=2)))
    bench.target.script("a", succeed(after=timedelta(minutes=1) - SHORTLY / 2), succeed(after="1s"))
    bench.clock.advance(minutes=1)
    bench.move_near()
    assert bench.loop.step() == pytest.approx(SHORTLY.total_seconds()), "its own run is in flight: it waits"
    bench.clock.advance(SHORTLY / 2)
    bench.target.finish_due()
    bench.loop.settle_at_shutdown()
    bench.clock.advance(seconds=bench.loop.step())
    bench.loop.step()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED, RunState.LEASED]


def test_a_schedule_that_follows_another_is_decided_at_its_instant(bench: LeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.schedule("b", After(schedule="a"))
    bench.move_near()
    bench.loop.step()
    assert bench.runs("b") == []
    bench.finish_all()
    assert [run.state for run in bench.runs("b")] == [RunState.SUCCEEDED]


def test_after_a_change_by_another_process_nothing_starts_before_the_instant(
    shared: tuple[LeadBench, Store],
) -> None:
    bench, theirs = shared
    schedule = bench.schedule("a", every("1m"))
    bench.move_near()
    pause(theirs, schedule.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.step()
    assert bench.sleeper.slept == pytest.approx([SHORTLY.total_seconds()])
    assert bench.target.launched == []
    assert [run.state for run in runs_in(theirs)] in ([], [RunState.SKIPPED])


def test_while_runs_wait_nothing_is_decided_ahead(bench: LeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near()
    bench.loop.tick.pending.announced_at = None
    bench.clock.advance(seconds=bench.loop.step())
    assert bench.runs("a") == []
    assert bench.sleeper.slept == []
    bench.loop.step()
    assert [run.leased_at for run in bench.runs("a")] == [bench.now]


def test_an_error_during_the_wait_commits_nothing(bench: LeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near()

    def fail() -> None:
        raise StoreUnavailable("the store is unavailable")

    bench.sleeper.meanwhile = fail
    with pytest.raises(StoreUnavailable):
        bench.loop.step()
    assert bench.runs("a") == []
    bench.finish_all()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED]


def test_after_an_unknown_outcome_nothing_is_leased_before_its_instant(bench: LeadBench) -> None:
    """Dense seed 85000173: the connection broke before the instant, and the tick leased as if at it."""
    bench.schedule("a", every("1m"))
    bench.schedule("b", every("1d"))
    bench.call("schedule run", schedule="b", at=bench.now + timedelta(minutes=1))
    bench.move_near()

    def fail() -> None:
        raise OutcomeUnknown("the connection broke")

    bench.sleeper.meanwhile = fail
    assert bench.loop.step() == 0.0, "the next tick reads the clock again"
    assert bench.target.launched == []
    bench.sleeper.meanwhile = lambda: None
    bench.finish_all()
    assert [run.state for run in runs_in(bench.store)] == [RunState.SUCCEEDED] * 2


def test_the_lead_time_follows_recent_writes_up_to_a_limit() -> None:
    clock = ManualClock(NOON)
    timer = CommitTimer(clock)

    def write(took: float) -> float:
        began = timer.begin()
        clock.advance(seconds=took)
        timer.wait(clock.now(), began=began, read_clock=clock.now)
        return timer.lead_time(1).total_seconds()

    first = timer.lead_time(1).total_seconds()
    assert write(0.010) > first
    assert write(5.0) == MAX_LEAD_S
    lengths = [write(0.001) for _ in range(400)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < first


def test_the_commit_waits_for_the_store_clock_and_not_for_the_host_clock(bench: LeadBench) -> None:
    instant = bench.now + SHORTLY
    shown = [instant - SHORTLY, instant - SHORTLY / 2, instant]
    untyped: Any = bench.store
    untyped._clock.now = lambda: shown.pop(0)
    bench.store.write(lambda tx: tx.put_meta("a", "1"), commit_at=instant)
    assert shown == []
    assert bench.sleeper.slept == pytest.approx([0.002, 0.001])


def test_a_store_clock_that_stands_still_commits_nothing(bench: LeadBench) -> None:
    now = bench.now
    untyped: Any = bench.store
    untyped._clock.now = lambda: now
    with pytest.raises(ClockBehind):
        bench.store.write(lambda tx: tx.put_meta("a", "1"), commit_at=now + SHORTLY)
    assert bench.store.read(lambda tx: tx.get_meta("a")) is None


def test_many_due_schedules_lengthen_the_lead_time(bench: LeadBench) -> None:
    for number in range(300):
        bench.schedule(f"s{number}", Every(timedelta(seconds=50), bench.now + timedelta(seconds=50)))
    assert bench.loop.step() == pytest.approx(50 - bench.lead_time(300).total_seconds())
    assert bench.lead_time(300) > bench.lead_time(1)


def test_only_a_limited_number_of_schedules_is_decided_ahead(bench: LeadBench) -> None:
    bench.loop.tick.limits = TickLimits(batch=10, ahead=4)
    for number in range(7):
        bench.schedule(f"s{number}", every("1m"))
    bench.move_near()
    assert bench.loop.step() == 0.0
    assert len(bench.target.launched) == 4
    bench.loop.step()
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now] * 7
