"""Every observer has its own thread: a slow one delays no other, and lost facts are reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.engine.fakes import TIMEOUT_S
from tests.faults.tools.worker_fleet import wait_until
from timewright import Scheduler, every
from timewright.core.facts import Fact, FactsLost, RunFreed, RunReset, RunSucceeded
from timewright.engine.observers import ObserverDispatcher
from timewright.testing.bench import DEFAULT_START

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread may be left at the end of a test."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")] == []


class RecordingObserver:
    """Records facts; it blocks while its event is cleared."""

    def __init__(self, *, released: bool = True) -> None:
        self.facts: list[Fact] = []
        self.release = threading.Event()
        self.began = threading.Event()
        if released:
            self.release.set()

    def notify(self, fact: Fact) -> None:
        self.began.set()
        assert self.release.wait(TIMEOUT_S)
        self.facts.append(fact)


def freed(number: int) -> RunFreed:
    return RunFreed(at=DEFAULT_START, run_id=str(number), schedule_id="s")


def numbers(observer: RecordingObserver) -> list[str]:
    return [fact.run_id for fact in observer.facts if isinstance(fact, RunFreed)]


def opened(*observers: RecordingObserver, most: int = 100) -> ObserverDispatcher:
    dispatcher = ObserverDispatcher(list(observers), on_error=lambda error: None, max_queued=most)
    dispatcher.open()
    return dispatcher


def closed(dispatcher: ObserverDispatcher, *, seconds: float = TIMEOUT_S) -> int:
    return dispatcher.close(seconds_left=lambda: seconds)


def test_a_slow_observer_delays_neither_the_sender_nor_other_observers() -> None:
    slow, quick = RecordingObserver(released=False), RecordingObserver()
    dispatcher = opened(slow, quick)
    for number in range(5):
        dispatcher.dispatch([freed(number)])
    wait_until(lambda: len(quick.facts) == 5, "all facts at the quick one")
    assert slow.facts == []
    slow.release.set()
    assert closed(dispatcher) == 0
    assert numbers(slow) == numbers(quick) == ["0", "1", "2", "3", "4"]


def test_dropped_facts_are_counted_and_reported_to_all_observers() -> None:
    slow, quick = RecordingObserver(released=False), RecordingObserver()
    dispatcher = opened(slow, quick, most=3)
    told: list[int] = []
    for number in range(5):
        dispatcher.dispatch([freed(number)])
        told.append(number)
        wait_until(lambda: len(numbers(quick)) == len(told), "the facts at the quick one")
    assert dispatcher.lost_facts == 2
    slow.release.set()
    wait_until(lambda: len(slow.facts) == 3, "a free place in the queue")
    dispatcher.dispatch([freed(5)])
    assert closed(dispatcher) == 0
    assert numbers(slow) == ["0", "1", "2", "5"]
    assert numbers(quick) == ["0", "1", "2", "3", "4", "5"]
    for observer in (slow, quick):
        (lost,) = [fact for fact in observer.facts if isinstance(fact, FactsLost)]
        assert (lost.listener, lost.count) == ("RecordingObserver", 2)


def test_a_listener_that_never_ends_delays_the_end_by_its_limit_and_is_counted() -> None:
    stuck = RecordingObserver(released=False)
    dispatcher = opened(stuck)
    dispatcher.dispatch([freed(1), freed(2)])
    assert stuck.began.wait(TIMEOUT_S)
    assert closed(dispatcher, seconds=0.01) == 2
    assert dispatcher.lost_facts == 2
    stuck.release.set()
    wait_until(lambda: len(stuck.facts) == 2, "the thread to go")


def test_an_observer_receives_only_the_kinds_it_wants() -> None:
    class SelectiveObserver(RecordingObserver):
        kinds = (RunReset,)

    selective = SelectiveObserver()
    dispatcher = opened(selective, most=1)
    dispatcher.dispatch([freed(number) for number in range(10)])
    dispatcher.dispatch([RunReset(at=DEFAULT_START, run_id="r", schedule_id="s", actor="ada")])
    assert closed(dispatcher) == 0
    assert [type(fact) for fact in selective.facts] == [RunReset]
    assert dispatcher.lost_facts == 0


def test_a_closed_dispatcher_calls_observers_directly() -> None:
    keeps = RecordingObserver()
    dispatcher = ObserverDispatcher([keeps], on_error=lambda error: None)
    dispatcher.dispatch([freed(1)])
    assert numbers(keeps) == ["1"]
    dispatcher.open()
    closed(dispatcher)
    dispatcher.dispatch([freed(2)])
    assert numbers(keeps) == ["1", "2"]


def test_a_listener_that_takes_long_delays_no_run(file: str) -> None:
    release, ran = threading.Event(), threading.Semaphore(0)
    app = Scheduler(file)

    @app.schedule(every("1s"), overlap="allow")
    def steady() -> None:
        ran.release()

    app.on_completed(lambda fact: release.wait(TIMEOUT_S))
    with app:
        for _ in range(3):
            assert ran.acquire(timeout=TIMEOUT_S)
        release.set()


def test_leaving_the_with_block_delivers_all_queued_facts(file: str) -> None:
    received: list[str] = []
    pause = threading.Event()
    app = Scheduler(file)
    app.task("work")(lambda: None)

    @app.on_completed
    def slowly(fact: Fact) -> None:
        assert isinstance(fact, RunSucceeded)
        pause.wait(0.02)
        received.append(fact.run_id)

    with app:
        app.schedules.create(name="a", manual={}, call="work", overlap="allow")
        ids = [app.schedules.run(schedule="a").run.id for _ in range(10)]
        wait_until(lambda: len(app.runs.list(state="succeeded").runs) == 10, "all to end")
    assert sorted(received) == sorted(ids)


def test_facts_of_a_schedule_keep_their_order_for_every_listener(file: str) -> None:
    received: list[str] = []
    app = Scheduler(file)
    app.schedule(every("1s"), name="a", max_runs=2)(lambda: None)
    app.on("started")(lambda fact: received.append("started"))
    app.on("completed")(lambda fact: received.append("completed"))
    with app:
        wait_until(lambda: len(received) == 4, "both runs")
    assert received == ["started", "completed"] * 2


def test_a_listener_can_read_the_number_of_lost_facts(file: str) -> None:
    app, lost = Scheduler(file), list[Fact]()
    app.on("lost")(lost.append)
    app.instance.notify_observers([FactsLost(at=DEFAULT_START, listener="dashboard", count=7)])
    assert [fact.count for fact in lost if isinstance(fact, FactsLost)] == [7]
    app.stop()
