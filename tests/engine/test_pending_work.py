"""A tick queries before it writes: it writes only if there is work, and overlooks none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tests.engine.fakes import CountingWaker
from timewright.core.facts import Fact, LeaseLost, RunFreed
from timewright.core.policies.policies import LeaseTerms, Overlap, Retry
from timewright.core.recurrence.triggers import Manual, every
from timewright.core.run.run import RunState, Succeeded
from timewright.engine.constants import PREFETCH_S
from timewright.engine.tick import TickLimits
from timewright.errors import StoreUnavailable
from timewright.ledger.lease import lease_ready
from timewright.ledger.manual_runs import run_now
from timewright.ledger.replan import Actor
from timewright.ports import Store, Transaction
from timewright.stores.postgres.executor import PostgresExecutor
from timewright.stores.sqlite.executor import SqliteExecutor
from timewright.testing.bench import DEFAULT_START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import hang
from timewright.wiring import open_store

T = TypeVar("T")

BY = Actor(name="tester")
SHORT = LeaseTerms(length=timedelta(seconds=30), time_limit=timedelta(minutes=10), grace=timedelta(seconds=5))


class CountingStore:
    """A store that counts its calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.failing = 0

    def now(self) -> datetime:
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        self.calls["write"] += 1
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable("the store is unavailable")
        return self._store.write(work, commit_at=commit_at)

    def read(self, work: Callable[[Transaction], T]) -> T:
        self.calls["read"] += 1
        return self._store.read(work)

    def close(self) -> None:
        self._store.close()


class CountedBench(Bench):
    """A bench on a counting store."""

    def __init__(self, place: str, *, capacity: int = 100) -> None:
        clock = ManualClock(DEFAULT_START)
        self.counted = CountingStore(open_store(place, clock=clock))
        super().__init__(store=self.counted, clock=clock, capacity=capacity)

    def step(self) -> tuple[float, dict[str, int]]:
        """Run one tick; return its sleep and the calls to the store."""
        self.counted.calls.clear()
        seconds = self.loop.step()
        return seconds, dict(self.counted.calls)

    def told(self, kind: type[Fact]) -> list[datetime]:
        return [fact.at for fact in self.facts if isinstance(fact, kind)]


@pytest.fixture
def bench(place: str) -> Iterator[CountedBench]:
    made = CountedBench(place)
    yield made
    made.counted.close()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement was executed, on either store."""
    counts: Counter[str] = Counter()

    def counting(execute: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: Any, name: str, *rest: Any, **named: Any) -> Any:
            counts[name] += 1
            return execute(self, name, *rest, **named)

        return count

    for executor in (SqliteExecutor, PostgresExecutor):
        for method in ("query", "execute_many"):
            monkeypatch.setattr(executor, method, counting(getattr(executor, method)))
    return counts


# Cost.


def test_an_idle_tick_runs_one_query_and_writes_nothing(bench: CountedBench, executed: Counter[str]) -> None:
    bench.schedule("later", every("1h"))
    bench.loop.step()
    bench.loop.step()
    bench.clock.advance(seconds=30)
    executed.clear()
    seconds, calls = bench.step()
    assert (seconds, calls, executed) == (60.0, {"read": 1}, {"pending_work": 1})


def noting_looks(bench: Bench, count: Callable[[], int]) -> list[int]:
    """The counts at each query from now on."""
    looked: list[int] = []
    look = bench.loop.tick.pending.peek

    def noted(**arguments: Any) -> Any:
        looked.append(count())
        return look(**arguments)

    bench.loop.tick.pending.peek = noted  # type: ignore[method-assign]
    return looked


def test_announced_schedules_start_before_any_query(bench: CountedBench) -> None:
    bench.schedule("a", every("1m"))
    bench.target.script("a", hang())
    bench.loop.step()
    bench.clock.advance(minutes=1)
    looked = noting_looks(bench, lambda: len(bench.target.launched))
    _, calls = bench.step()
    assert looked == [1], "one look, after the start"
    assert calls["write"] == 2, "the admission, and the check for incidents of this minute"


def test_an_unannounced_schedule_is_found_by_the_first_query(
    bench: CountedBench, executed: Counter[str]
) -> None:
    bench.loop.step()
    bench.schedule("new", every("1m"))
    bench.target.script("new", hang())
    bench.clock.advance(minutes=1)
    executed.clear()
    _, calls = bench.step()
    assert [run.state for run in bench.runs("new")] == [RunState.LEASED]
    assert (calls["write"], executed["pending_work"]) == (2, 2), "before it, and after it for the rest"


def test_a_burst_is_admitted_in_batches_with_one_query_after_each(bench: CountedBench) -> None:
    bench.loop.tick.limits = TickLimits(batch=10)
    bench.loop.launcher.capacity = 1000
    for number in range(30):
        bench.schedule(f"s{number}", every("1h"))
        bench.target.script(f"s{number}", hang())
    bench.loop.step()
    bench.clock.advance(hours=1)
    asked = [bench.step() for _ in range(4)]
    assert asked[:3] == [(0.0, {"write": 1, "read": 1})] * 3
    assert len(bench.target.launched) == 30


def crowded(bench: CountedBench, *, waiting: int, ahead: int) -> None:
    """A backlog of short runs, of which a part is prefetched."""
    made = bench.schedule("by-hand", Manual(), overlap=Overlap.ALLOW)
    bench.target.script("by-hand", hang())
    for _ in range(waiting):
        run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.launcher.capacity = 3
    bench.loop.launcher._estimator._rate = ahead / PREFETCH_S


def test_a_backlog_is_leased_in_halves(bench: CountedBench) -> None:
    crowded(bench, waiting=40, ahead=20)
    assert bench.step()[0] == 0.0
    assert len(bench.loop.launcher) == 10
    bench.clock.advance(milliseconds=10)
    bench.step()
    assert len(bench.loop.launcher) == 20
    bench.step()
    assert len(bench.loop.launcher) == 20, "at most 20 are prefetched"


# What must not be overlooked.


def test_a_due_schedule_starts_before_more_of_a_backlog_is_leased(bench: CountedBench) -> None:
    bench.schedule("soon", every("1h"))
    bench.clock.advance(timedelta(hours=1) - timedelta(milliseconds=20))
    crowded(bench, waiting=40, ahead=20)
    bench.loop.step()
    bench.clock.advance(milliseconds=20)
    bench.loop.step()
    assert [run.state for run in bench.runs("soon")] == [RunState.READY], (
        "decided; it waits behind the others"
    )


def test_a_lease_that_expires_during_a_sleep_is_reclaimed_when_it_expires(bench: CountedBench) -> None:
    bench.schedule("theirs", every("1h"), lease=SHORT, retry=Retry(max_attempts=1))
    bench.loop.launcher.is_open = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    bench.clock.advance(seconds=1)
    seconds, calls = bench.step()
    assert (seconds, calls) == (29.0, {"read": 1})
    bench.clock.advance(seconds=seconds)
    bench.loop.step()
    assert bench.told(LeaseLost) == [bench.now]


def test_expired_leases_are_queried_once_a_second_however_often_the_loop_wakes(bench: CountedBench) -> None:
    bench.schedule("theirs", every("1h"), lease=SHORT, retry=Retry(max_attempts=1))
    bench.loop.launcher.is_open = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    over = bench.now + SHORT.length
    while bench.now < over + timedelta(seconds=2):
        bench.clock.advance(seconds=0.3)
        bench.loop.step()
    (found,) = bench.told(LeaseLost)
    assert over <= found <= over + timedelta(seconds=1.3)


def test_an_overlooked_held_run_is_released_within_a_second(
    bench: CountedBench,
) -> None:
    bench.schedule("line", every("1m"), overlap=Overlap.QUEUE)
    bench.target.script("line", hang())
    bench.advance(minutes=2)
    assert [run.state for run in bench.runs("line")] == [RunState.LEASED, RunState.HELD]
    bench.clock.advance(seconds=1)
    assert bench.step()[1] == {"read": 1}, "who is held behind a living one is left alone"
    forgotten = bench.schedule("forgotten", Manual())
    lost = replace(
        bench.runs("line")[1], id="run_lost", schedule_id=forgotten.id, dedupe_scope="lost", previous=""
    )
    bench.store.write(lambda tx: tx.add_runs([lost]))
    bench.clock.advance(seconds=1)
    bench.loop.step()
    assert bench.told(RunFreed) == [bench.now]
    assert [run.state for run in bench.store.read(lambda tx: tx.get_runs(["run_lost"])).values()] == [
        RunState.LEASED
    ]


def test_a_run_that_another_process_made_ready_ends_the_sleep(bench: CountedBench) -> None:
    made = bench.schedule("by-hand", Manual())
    bench.loop.waker = waker = CountingWaker()
    bench.loop.step()
    bench.loop.on_external_change()
    assert waker.woken == 0
    run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.on_external_change()
    assert waker.woken == 1
    bench.loop.step()
    assert len(bench.target.launched) == 1


def test_without_capacity_an_ended_run_wakes_the_tick_even_if_none_waited(place: str) -> None:
    bench = CountedBench(place, capacity=1)
    made = bench.schedule("by-hand", Manual())
    bench.schedule("long", every("1h"))
    bench.target.script("long", hang())
    bench.clock.advance(hours=1)
    bench.loop.step()
    bench.loop.waker = waker = CountingWaker()
    run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.on_external_change()
    assert waker.woken == 0, "no slot is free for it"
    bench.target.under_way[0].end(Succeeded())
    bench.loop.settle_thread.settle_results()
    assert waker.woken == 1
    bench.loop.step()
    assert len(bench.target.launched) == 2
    bench.counted.close()


def test_a_run_that_ends_during_the_query_is_not_overlooked(place: str) -> None:
    bench = CountedBench(place, capacity=1)
    made = bench.schedule("by-hand", Manual())
    bench.schedule("long", every("1h"))
    bench.target.script("long", hang())
    bench.clock.advance(hours=1)
    bench.loop.step()
    glance = bench.loop.tick.pending.peek

    def glance_and_more(**arguments: Any) -> Any:
        seen = glance(**arguments)
        # After the query another process adds a run, then a slot is freed before the tick reads `free`.
        bench.loop.tick.pending.peek = glance  # type: ignore[method-assign]
        run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
        bench.loop.on_external_change()
        bench.target.under_way[0].end(Succeeded())
        bench.loop.settle_thread.settle_results()
        return seen

    bench.loop.tick.pending.peek = glance_and_more  # type: ignore[method-assign]
    bench.loop.settles_inline = False
    bench.loop.waker = waker = CountingWaker()
    bench.loop.step()
    assert waker.woken, "the change found no free slot, so the end wakes the tick"
    bench.loop.step()
    assert len(bench.target.launched) == 2
    bench.counted.close()


def test_after_an_error_announced_schedules_are_found_again(place: str) -> None:
    bench = CountedBench(place)
    bench.schedule("a", every("1m"))
    bench.loop.step()
    bench.clock.advance(minutes=1)
    bench.counted.failing = 1
    with pytest.raises(StoreUnavailable):
        bench.loop.step()
    assert bench.target.launched == []
    bench.loop.step()
    assert len(bench.target.launched) == 1
    bench.counted.close()
