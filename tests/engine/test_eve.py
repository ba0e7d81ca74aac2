"""On the eve of an instant all is decided and written; only the commit waits for the instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.conformance.conftest import postgres_url
from timewright.assembly import open_store
from timewright.core.policies import Overlap
from timewright.core.run import Run, RunState
from timewright.core.triggers import After, Every, every
from timewright.engine import eve as eves
from timewright.engine.eve import Eve
from timewright.engine.tick import Limits
from timewright.errors import StoreUnavailable
from timewright.ledger.replan import By, pause
from timewright.ports import RunFilter, Store
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import succeed

__all__ = ["postgres_url"]

BY = By(actor="tester")
MOMENT = timedelta(milliseconds=2)


class Standing:
    """To stand still is to let the clock go on; what happens meanwhile may be said."""

    def __init__(self, clock: ManualClock) -> None:
        self.held: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        self.held.append(seconds)
        self.meanwhile()
        self._clock.advance(seconds=seconds)


class Punctual(Bench):
    """A bench that begins on the eve."""

    def __init__(self, *, store: Store | None = None, clock: ManualClock | None = None) -> None:
        super().__init__(store=store, clock=clock)
        self.standing_still = Standing(self.clock)
        self.loop.eve = Eve(stand_still=self.standing_still, monotonic=self.clock.monotonic)
        self.loop.tick.settles = False

    def go_on(self) -> None:
        """Let all that began end, without an eve."""
        self.loop.eve, self.loop.tick.settles = None, True
        self.advance(seconds=1)

    def come_near(self, ahead: timedelta = MOMENT) -> None:
        """Look, rest, and stand a moment before the next instant."""
        self.loop.step()
        due = self.loop.tick.lookout.last.due
        assert due is not None
        self.clock.advance(due - ahead - self.now)


@pytest.fixture
def bench() -> Punctual:
    return Punctual()


@pytest.fixture(params=("sqlite", "postgres"))
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[Punctual, Store]]:
    """The same over a store that another looks at from a connection of its own."""
    place = request.getfixturevalue("file" if request.param == "sqlite" else "database")
    clock = ManualClock("2026-03-10T12:00:00Z")
    mine, theirs = open_store(place, clock=clock), open_store(place, clock=clock)
    yield Punctual(store=mine, clock=clock), theirs
    theirs.close()
    mine.close()


def runs_in(store: Store) -> list[Run]:
    return list(store.read(lambda tx: tx.find_runs(RunFilter(limit=100))).rows)


def test_the_rest_ends_on_the_eve(bench: Punctual) -> None:
    bench.schedule("a", every("30s"))
    assert bench.loop.eve is not None
    assert bench.loop.step() == pytest.approx(30 - bench.loop.eve.length.total_seconds())


def test_all_is_written_before_the_instant_and_kept_at_it(shared: tuple[Punctual, Store]) -> None:
    bench, theirs = shared
    bench.schedule("a", every("1m"))
    seen_meanwhile: list[list[Run]] = []
    bench.standing_still.meanwhile = lambda: seen_meanwhile.append(runs_in(theirs))
    bench.come_near()
    bench.loop.step()
    assert bench.standing_still.held == pytest.approx([MOMENT.total_seconds()])
    assert seen_meanwhile == [[]]
    (run,) = runs_in(theirs)
    assert run.created_at == run.leased_at == run.planned_at == bench.now
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now]


def test_nobody_begins_before_the_eve(bench: Punctual) -> None:
    bench.schedule("a", every("1m"))
    bench.come_near(timedelta(milliseconds=200))
    bench.loop.step()
    assert bench.standing_still.held == []
    assert bench.runs("a") == []


def test_whoever_still_runs_may_end_on_the_eve_and_is_not_overlapped(bench: Punctual) -> None:
    bench.schedule("a", every("1m"), overlap=Overlap.SKIP)
    bench.target.script("a", succeed(after=timedelta(minutes=1) - MOMENT / 2), succeed(after="1s"))
    bench.clock.advance(minutes=1)
    bench.come_near()

    def end() -> None:
        bench.clock.advance(MOMENT / 2)
        bench.target.finish_due()
        bench.loop.settle_quietly()

    bench.standing_still.meanwhile = end
    bench.loop.step()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED, RunState.LEASED]


def test_what_runs_after_another_is_decided_at_its_instant(bench: Punctual) -> None:
    bench.schedule("a", every("1m"))
    bench.schedule("b", After(schedule="a"))
    bench.come_near()
    bench.loop.step()
    assert bench.runs("b") == []
    bench.go_on()
    assert [run.state for run in bench.runs("b")] == [RunState.SUCCEEDED]


def test_where_another_was_quicker_nothing_goes_on_before_the_instant(shared: tuple[Punctual, Store]) -> None:
    bench, theirs = shared
    schedule = bench.schedule("a", every("1m"))
    bench.come_near()
    pause(theirs, schedule.id, by=BY, now=bench.now)
    bench.loop.step()
    assert bench.standing_still.held == pytest.approx([MOMENT.total_seconds()])
    assert bench.target.launched == []
    assert [run.state for run in runs_in(theirs)] in ([], [RunState.SKIPPED])


def test_who_waits_already_goes_first_and_at_the_instant(bench: Punctual) -> None:
    bench.schedule("a", every("1m"))
    bench.come_near()
    bench.loop.tick._backlog = True
    bench.loop.step()
    assert bench.standing_still.held == pytest.approx([MOMENT.total_seconds()])
    assert [run.leased_at for run in bench.runs("a")] == [bench.now]


def test_an_error_on_the_eve_keeps_nothing(bench: Punctual) -> None:
    bench.schedule("a", every("1m"))
    bench.come_near()

    def away() -> None:
        raise StoreUnavailable("the store is away")

    bench.standing_still.meanwhile = away
    with pytest.raises(StoreUnavailable):
        bench.loop.step()
    assert bench.runs("a") == []
    bench.go_on()
    assert [run.state for run in bench.runs("a")] == [RunState.SUCCEEDED]


def test_an_eve_is_as_long_as_the_last_ones_took_and_never_long(bench: Punctual) -> None:
    eve = bench.loop.eve
    assert eve is not None

    def one(took: float) -> float:
        vigil = eve.before(bench.now + eve.length, now=bench.now, moment=bench.clock.monotonic())
        assert vigil is not None
        bench.clock.advance(seconds=took)
        vigil()
        vigil()
        return eve.length.total_seconds()

    first = eve.length.total_seconds()
    assert one(0.010) > first
    assert one(5.0) == eves.LONGEST
    lengths = [one(0.001) for _ in range(400)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < first


def test_much_that_is_due_has_a_longer_eve(bench: Punctual) -> None:
    eve = bench.loop.eve
    assert eve is not None
    for number in range(300):
        bench.schedule(f"s{number}", Every(timedelta(seconds=50), bench.now + timedelta(seconds=50)))
    before = eve.length
    bench.loop.step()
    assert eve.length > before


def test_an_eve_decides_as_many_as_it_has_time_for_and_the_others_follow_at_the_instant(
    bench: Punctual,
) -> None:
    bench.loop.tick.limits = Limits(batch=10, eve=4)
    for number in range(7):
        bench.schedule(f"s{number}", every("1m"))
    bench.come_near()
    assert bench.loop.step() == 0.0
    assert len(bench.target.launched) == 4
    bench.loop.step()
    assert [launch.planned_at for launch in bench.target.launched] == [bench.now] * 7
