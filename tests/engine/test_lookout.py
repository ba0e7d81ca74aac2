"""A tick looks before it writes: it writes only where there is something, and misses nothing by looking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tests.engine.faults import CountingWaker
from timewright.assembly import open_store
from timewright.core.facts import Fact, LeaseLost, RunFreed
from timewright.core.policies import LeaseTerms, Overlap, Retry
from timewright.core.run import RunState, Succeeded
from timewright.core.triggers import Manual, every
from timewright.engine.pace import AHEAD_SECONDS
from timewright.engine.tick import LEASE_AT_LEAST, Limits
from timewright.errors import StoreUnavailable
from timewright.ledger.by_hand import run_now
from timewright.ledger.lease import lease_ready
from timewright.ledger.replan import By
from timewright.ports import Store, Transaction
from timewright.stores.postgres_speaker import PostgresSpeaker
from timewright.stores.sqlite_speaker import SqliteSpeaker
from timewright.testing.bench import START, Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import hang

T = TypeVar("T")

BY = By(actor="tester")
SHORT = LeaseTerms(length=timedelta(seconds=30), time_limit=timedelta(minutes=10), grace=timedelta(seconds=5))


class Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.failing = 0

    def now(self) -> datetime:
        return self._store.now()

    def write(self, work: Callable[[Transaction], T]) -> T:
        self.calls["write"] += 1
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable("the store is away")
        return self._store.write(work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        self.calls["read"] += 1
        return self._store.read(work)

    def close(self) -> None:
        self._store.close()


class CountedBench(Bench):
    """A bench on a store that is counted."""

    def __init__(self, place: str, *, capacity: int = 100) -> None:
        clock = ManualClock(START)
        self.counted = Counted(open_store(place, clock=clock))
        super().__init__(store=self.counted, clock=clock, capacity=capacity)

    def step(self) -> tuple[float, dict[str, int]]:
        """One pass: for how long it would rest then, and what it asked of the store."""
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
def spoken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement was spoken, on either store."""
    counts: Counter[str] = Counter()

    def counting(speak: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: Any, name: str, *rest: Any, **named: Any) -> Any:
            counts[name] += 1
            return speak(self, name, *rest, **named)

        return count

    for speaker in (SqliteSpeaker, PostgresSpeaker):
        for verb in ("ask", "tell"):
            monkeypatch.setattr(speaker, verb, counting(getattr(speaker, verb)))
    return counts


# What it costs.


def test_a_tick_with_nothing_to_do_asks_one_question_and_writes_nothing(
    bench: CountedBench, spoken: Counter[str]
) -> None:
    bench.schedule("later", every("1h"))
    bench.loop.step()
    bench.loop.step()
    bench.clock.advance(seconds=30)
    spoken.clear()
    seconds, calls = bench.step()
    assert (seconds, calls, spoken) == (60.0, {"read": 1}, {"outlook": 1})


def noting_looks(bench: Bench, count: Callable[[], int]) -> list[int]:
    """What was counted at each look from now on."""
    looked: list[int] = []
    look = bench.loop.tick.lookout.glance

    def noted(**arguments: Any) -> Any:
        looked.append(count())
        return look(**arguments)

    bench.loop.tick.lookout.glance = noted  # type: ignore[method-assign]
    return looked


def test_what_was_foreseen_is_decided_and_started_before_anything_is_looked_at(bench: CountedBench) -> None:
    bench.schedule("a", every("1m"))
    bench.target.script("a", hang())
    bench.loop.step()
    bench.clock.advance(minutes=1)
    looked = noting_looks(bench, lambda: len(bench.target.launched))
    _, calls = bench.step()
    assert looked == [1], "one look, after the start"
    assert calls["write"] == 1


def test_what_nobody_foresaw_is_found_by_the_first_look(bench: CountedBench, spoken: Counter[str]) -> None:
    bench.loop.step()
    bench.schedule("new", every("1m"))
    bench.target.script("new", hang())
    bench.clock.advance(minutes=1)
    spoken.clear()
    _, calls = bench.step()
    assert [run.state for run in bench.runs("new")] == [RunState.LEASED]
    assert (calls["write"], spoken["outlook"]) == (1, 2), "before it, and after it for the rest"


def test_a_burst_is_decided_batch_by_batch_without_a_look_in_between(bench: CountedBench) -> None:
    bench.loop.tick.limits = Limits(batch=10, capacity=1000)
    for number in range(30):
        bench.schedule(f"s{number}", every("1h"))
        bench.target.script(f"s{number}", hang())
    bench.loop.step()
    bench.clock.advance(hours=1)
    asked = [bench.step() for _ in range(4)]
    assert asked[0] == (0.0, {"write": 1, "read": 1}), "the first also looks who waits"
    assert asked[1:3] == [(0.0, {"write": 1})] * 2
    assert len(bench.target.launched) == 30


def crowded(bench: CountedBench, *, waiting: int, ahead: int) -> None:
    """So many wait whose like were quick of late, and so many of them are taken ahead."""
    made = bench.schedule("by-hand", Manual(), overlap=Overlap.ALLOW)
    bench.target.script("by-hand", hang())
    for _ in range(waiting):
        run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.tick.limits = Limits(capacity=3)
    bench.loop.launcher._pace._rate = ahead / AHEAD_SECONDS


def test_a_crowd_is_leased_half_by_half_without_a_look_in_between(bench: CountedBench) -> None:
    crowded(bench, waiting=40, ahead=20)
    assert bench.step()[0] == 0.0
    assert len(bench.loop.launcher) == 10
    bench.clock.advance(milliseconds=10)
    looked = noting_looks(bench, lambda: len(bench.loop.launcher))
    bench.step()
    assert set(looked) == {20}, "looked at when the second half was taken, for the rest"
    bench.step()
    assert len(bench.loop.launcher) == 20, "no more than are taken ahead"


# What it must not miss.


def test_what_is_due_meanwhile_starts_before_more_of_a_crowd_is_taken(bench: CountedBench) -> None:
    bench.schedule("soon", every("1h"))
    bench.clock.advance(timedelta(hours=1) - timedelta(milliseconds=20))
    crowded(bench, waiting=40, ahead=20)
    bench.loop.step()
    bench.clock.advance(milliseconds=20)
    bench.loop.step()
    assert [run.state for run in bench.runs("soon")] == [RunState.READY], (
        "decided; it waits behind the others"
    )


def test_a_crowd_keeps_nobody_from_looking_for_longer_than_a_moment(bench: CountedBench) -> None:
    crowded(bench, waiting=40, ahead=20)
    bench.loop.step()
    bench.clock.advance(LEASE_AT_LEAST)
    assert bench.step()[1]["read"] > 0


def test_a_lease_that_ends_while_the_engine_rests_is_taken_back_when_it_does(bench: CountedBench) -> None:
    bench.schedule("theirs", every("1h"), lease=SHORT, retry=Retry(max_attempts=1))
    bench.loop.tick.leasing = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    bench.clock.advance(seconds=1)
    seconds, calls = bench.step()
    assert (seconds, calls) == (29.0, {"read": 1})
    bench.clock.advance(seconds=seconds)
    bench.loop.step()
    assert bench.told(LeaseLost) == [bench.now]


def test_however_often_it_is_woken_a_lost_lease_is_looked_for_every_second(bench: CountedBench) -> None:
    bench.schedule("theirs", every("1h"), lease=SHORT, retry=Retry(max_attempts=1))
    bench.loop.tick.leasing = False
    bench.clock.advance(hours=1)
    bench.loop.step()
    lease_ready(bench.store, ids=bench.ids, holder="someone", capacity=1, now=bench.now)
    over = bench.now + SHORT.length
    while bench.now < over + timedelta(seconds=2):
        bench.clock.advance(seconds=0.3)
        bench.loop.step()
    (found,) = bench.told(LeaseLost)
    assert over <= found <= over + timedelta(seconds=1.3)


def test_a_held_run_that_nobody_let_go_is_let_go_within_a_second_and_others_cost_no_write(
    bench: CountedBench,
) -> None:
    bench.schedule("line", every("1m"), overlap=Overlap.QUEUE)
    bench.target.script("line", hang())
    bench.advance(minutes=2)
    assert [run.state for run in bench.runs("line")] == [RunState.LEASED, RunState.HELD]
    bench.clock.advance(seconds=1)
    assert bench.step()[1] == {"read": 1}, "who is held behind a living one is left alone"
    forgotten = bench.schedule("forgotten", Manual())
    lost = replace(bench.runs("line")[1], id="run_lost", schedule_id=forgotten.id, lane="lost", previous="")
    bench.store.write(lambda tx: tx.add_runs([lost]))
    bench.clock.advance(seconds=1)
    bench.loop.step()
    assert bench.told(RunFreed) == [bench.now]
    assert [run.state for run in bench.store.read(lambda tx: tx.get_runs(["run_lost"])).values()] == [
        RunState.LEASED
    ]


def test_a_run_that_another_made_ready_ends_the_rest(bench: CountedBench) -> None:
    made = bench.schedule("by-hand", Manual())
    bench.loop.waker = waker = CountingWaker()
    bench.loop.step()
    bench.loop.heard()
    assert waker.woken == 0
    run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.heard()
    assert waker.woken == 1
    bench.loop.step()
    assert len(bench.target.launched) == 1


def test_without_room_whoever_ends_calls_also_when_nobody_waited_at_the_last_look(place: str) -> None:
    bench = CountedBench(place, capacity=1)
    made = bench.schedule("by-hand", Manual())
    bench.schedule("long", every("1h"))
    bench.target.script("long", hang())
    bench.clock.advance(hours=1)
    bench.loop.step()
    bench.loop.waker = waker = CountingWaker()
    run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
    bench.loop.heard()
    assert waker.woken == 0, "there is no room for it"
    bench.target.under_way[0].end(Succeeded())
    bench.loop.settler.settle()
    assert waker.woken == 1
    bench.loop.step()
    assert len(bench.target.launched) == 2
    bench.counted.close()


def test_one_who_ends_while_the_tick_looks_is_not_overlooked(place: str) -> None:
    bench = CountedBench(place, capacity=1)
    made = bench.schedule("by-hand", Manual())
    bench.schedule("long", every("1h"))
    bench.target.script("long", hang())
    bench.clock.advance(hours=1)
    bench.loop.step()
    glance = bench.loop.tick.lookout.glance

    def glance_and_more(**arguments: Any) -> Any:
        seen = glance(**arguments)
        # After the look: another makes a run, and then the room comes, before anyone is said to wait.
        bench.loop.tick.lookout.glance = glance  # type: ignore[method-assign]
        run_now(bench.store, made.id, ids=bench.ids, by=BY, now=bench.now)
        bench.target.under_way[0].end(Succeeded())
        bench.loop.settler.settle()
        return seen

    bench.loop.tick.lookout.glance = glance_and_more  # type: ignore[method-assign]
    bench.loop.tick.settles = bench.loop.tick.waits_for_room = False
    bench.loop.waker = waker = CountingWaker()
    assert bench.loop.step() == 0.0, "nobody calls it: it must look again by itself"
    assert waker.woken == 0
    bench.loop.step()
    assert len(bench.target.launched) == 2
    bench.counted.close()


def test_after_an_error_what_was_foreseen_is_found_again(place: str) -> None:
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
