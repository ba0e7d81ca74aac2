"""Due schedules are decided and written shortly before their instant; only the commit waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.conformance.conftest import postgres_url
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import After, Every, every
from timewright.core.run.run import Run, RunState
from timewright.engine import waiting
from timewright.engine.tick import TickLimits
from timewright.engine.waiting import CommitLead
from timewright.errors import StoreUnavailable
from timewright.ledger.replan import Actor, pause
from timewright.ports import RunFilter, Store
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import succeed
from timewright.wiring import open_store

__all__ = ["postgres_url"]

BY = Actor(name="tester")
SHORTLY = timedelta(milliseconds=2)


class FakeSleep:
    """A fake exact sleep: it advances the clock, after calling `meanwhile`."""

    def __init__(self, clock: ManualClock) -> None:
        self.held: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        self.held.append(seconds)
        self.meanwhile()
        self._clock.advance(seconds=seconds)


class CommitLeadBench(Bench):
    """A bench that starts before the instant by the lead time."""

    def __init__(self, *, store: Store | None = None, clock: ManualClock | None = None) -> None:
        super().__init__(store=store, clock=clock)
        self.fake_sleep = FakeSleep(self.clock)
        self.loop.commit_lead = CommitLead(sleep_exactly=self.fake_sleep, monotonic=self.clock.monotonic)
        self.loop.tick.settles_inline = False

    def finish_all(self) -> None:
        """End all work, without a lead time."""
        self.loop.commit_lead, self.loop.tick.settles_inline = None, True
        self.advance(seconds=1)

    def move_near(self, ahead: timedelta = SHORTLY) -> None:
        """Run a tick, then move the clock to shortly before the next instant."""
        self.loop.step()
        due = self.loop.tick.pending_work.last_read.schedule_due_at
        assert due is not None
        self.clock.advance(due - ahead - self.now)


@pytest.fixture
def bench() -> CommitLeadBench:
    return CommitLeadBench()


@pytest.fixture(params=("sqlite", "postgres"))
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[CommitLeadBench, Store]]:
    """The bench on a store that the test also reads through a second connection."""
    place = request.getfixturevalue("file" if request.param == "sqlite" else "database")
    clock = ManualClock("2026-03-10T12:00:00Z")
    mine, theirs = open_store(place, clock=clock), open_store(place, clock=clock)
    yield CommitLeadBench(store=mine, clock=clock), theirs
    theirs.close()
    mine.close()


def runs_in(store: Store) -> list[Run]:
    return list(store.read(lambda tx: tx.find_runs(RunFilter(limit=100))).rows)


def test_the_sleep_ends_before_the_instant_by_the_lead_time(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("30s"))
    assert bench.loop.commit_lead is not None
    assert bench.loop.step() == pytest.approx(30 - bench.loop.commit_lead.lead_time.total_seconds())


def test_runs_are_written_before_the_instant_and_committed_at_it(
    shared: tuple[CommitLeadBench, Store],
) -> None:
    bench, theirs = shared
    bench.schedule("a", every("1m"))
    seen_meanwhile: list[list[Run]] = []
    bench.fake_sleep.meanwhile = lambda: seen_meanwhile.append(runs_in(theirs))
    bench.move_near()
    bench.loop.step()
    assert bench.fake_sleep.held == pytest.approx([SHORTLY.total_seconds()])
    assert seen_meanwhile == [[]]
    (run,) = runs_in(theirs)
    assert run.created_at == run.leased_at == run.planned_at == bench.now
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now]


def test_nothing_starts_before_the_lead_time(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near(timedelta(milliseconds=200))
    bench.loop.step()
    assert bench.fake_sleep.held == []
    assert bench.runs("a") == []


def test_a_run_that_ends_during_the_lead_time_is_not_overlapped(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("1m"), overlap=Overlap.SKIP)
    bench.target.script("a", succeed(after=timedelta(minutes=1) - SHORTLY / 2), succeed(after="1s"))
    bench.clock.advance(minutes=1)
    bench.move_near()

    def end() -> None:
        bench.clock.advance(SHORTLY / 2)
        bench.target.finish_due()
        bench.loop.settle_at_shutdown()

    bench.fake_sleep.meanwhile = end
    bench.loop.step()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED, RunState.LEASED]


def test_a_schedule_that_follows_another_is_decided_at_its_instant(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.schedule("b", After(schedule="a"))
    bench.move_near()
    bench.loop.step()
    assert bench.runs("b") == []
    bench.finish_all()
    assert [run.state for run in bench.runs("b")] == [RunState.SUCCEEDED]


def test_after_a_change_by_another_process_nothing_starts_before_the_instant(
    shared: tuple[CommitLeadBench, Store],
) -> None:
    bench, theirs = shared
    schedule = bench.schedule("a", every("1m"))
    bench.move_near()
    pause(theirs, schedule.id, by=BY, now=bench.now)
    bench.loop.step()
    assert bench.fake_sleep.held == pytest.approx([SHORTLY.total_seconds()])
    assert bench.target.launched == []
    assert [run.state for run in runs_in(theirs)] in ([], [RunState.SKIPPED])


def test_waiting_runs_go_first_and_start_at_the_instant(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near()
    bench.loop.tick._has_backlog = True
    bench.loop.step()
    assert bench.fake_sleep.held == pytest.approx([SHORTLY.total_seconds()])
    assert [run.leased_at for run in bench.runs("a")] == [bench.now]


def test_an_error_during_the_lead_time_commits_nothing(bench: CommitLeadBench) -> None:
    bench.schedule("a", every("1m"))
    bench.move_near()

    def away() -> None:
        raise StoreUnavailable("the store is unavailable")

    bench.fake_sleep.meanwhile = away
    with pytest.raises(StoreUnavailable):
        bench.loop.step()
    assert bench.runs("a") == []
    bench.finish_all()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED]


def test_the_lead_time_follows_recent_passes_up_to_a_limit(bench: CommitLeadBench) -> None:
    lead = bench.loop.commit_lead
    assert lead is not None

    def one(took: float) -> float:
        wait_for_instant = lead.wait_if_near(
            bench.now + lead.lead_time, now=bench.now, monotonic_now=bench.clock.monotonic()
        )
        assert wait_for_instant is not None
        bench.clock.advance(seconds=took)
        wait_for_instant(bench.store.now)
        wait_for_instant(bench.store.now)
        return lead.lead_time.total_seconds()

    first = lead.lead_time.total_seconds()
    assert one(0.010) > first
    assert one(5.0) == waiting.MAX_LEAD_S
    lengths = [one(0.001) for _ in range(400)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < first


def test_many_due_schedules_lengthen_the_lead_time(bench: CommitLeadBench) -> None:
    lead = bench.loop.commit_lead
    assert lead is not None
    for number in range(300):
        bench.schedule(f"s{number}", Every(timedelta(seconds=50), bench.now + timedelta(seconds=50)))
    before = lead.lead_time
    bench.loop.step()
    assert lead.lead_time > before


def test_only_a_limited_number_of_schedules_is_decided_ahead(
    bench: CommitLeadBench,
) -> None:
    bench.loop.tick.limits = TickLimits(batch=10, ahead=4)
    for number in range(7):
        bench.schedule(f"s{number}", every("1m"))
    bench.move_near()
    assert bench.loop.step() == 0.0
    assert len(bench.target.launched) == 4
    bench.loop.step()
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now] * 7
