"""Facts are told on threads of their own: a slow listener keeps nobody waiting, none is lost in silence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.engine.faults import PATIENCE
from tests.engine.fleet import until
from timewright import Scheduler, every
from timewright.core.facts import Fact, FactsLost, RunFreed, RunReset, RunSucceeded
from timewright.engine.tell import Teller
from timewright.testing.bench import START

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test of this file starts is gone at its end."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("timewright-")] == []


class Keeps:
    """Keeps what it is told; while its door is closed it is told nothing more."""

    def __init__(self, *, open_door: bool = True) -> None:
        self.facts: list[Fact] = []
        self.door = threading.Event()
        self.began = threading.Event()
        if open_door:
            self.door.set()

    def note(self, fact: Fact) -> None:
        self.began.set()
        assert self.door.wait(PATIENCE)
        self.facts.append(fact)


def freed(number: int) -> RunFreed:
    return RunFreed(at=START, run_id=str(number), schedule_id="s")


def numbers(observer: Keeps) -> list[str]:
    return [fact.run_id for fact in observer.facts if isinstance(fact, RunFreed)]


def opened(*observers: Keeps, most: int = 100) -> Teller:
    teller = Teller(list(observers), troubled=lambda error: None, most=most)
    teller.open()
    return teller


def closed(teller: Teller, *, seconds: float = PATIENCE) -> int:
    return teller.close(until=lambda: seconds)


def test_whoever_tells_does_not_wait_for_a_listener_and_the_others_hear_meanwhile() -> None:
    slow, quick = Keeps(open_door=False), Keeps()
    teller = opened(slow, quick)
    for number in range(5):
        teller.tell([freed(number)])
    until(lambda: len(quick.facts) == 5, "the quick one to hear all")
    assert slow.facts == []
    slow.door.set()
    assert closed(teller) == 0
    assert numbers(slow) == numbers(quick) == ["0", "1", "2", "3", "4"]


def test_what_does_not_fit_is_counted_and_everyone_is_told_how_much_that_was() -> None:
    slow, quick = Keeps(open_door=False), Keeps()
    teller = opened(slow, quick, most=3)
    told: list[int] = []
    for number in range(5):
        teller.tell([freed(number)])
        told.append(number)
        until(lambda: len(numbers(quick)) == len(told), "the quick one to hear")
    assert teller.lost == 2
    slow.door.set()
    until(lambda: len(slow.facts) == 3, "room again")
    teller.tell([freed(5)])
    assert closed(teller) == 0
    assert numbers(slow) == ["0", "1", "2", "5"]
    assert numbers(quick) == ["0", "1", "2", "3", "4", "5"]
    for observer in (slow, quick):
        (lost,) = [fact for fact in observer.facts if isinstance(fact, FactsLost)]
        assert (lost.listener, lost.count) == ("Keeps", 2)


def test_a_listener_that_never_ends_delays_the_end_by_its_limit_and_is_counted() -> None:
    stuck = Keeps(open_door=False)
    teller = opened(stuck)
    teller.tell([freed(1), freed(2)])
    assert stuck.began.wait(PATIENCE)
    assert closed(teller, seconds=0.01) == 2
    assert teller.lost == 2
    stuck.door.set()
    until(lambda: len(stuck.facts) == 2, "the thread to go")


def test_who_wants_some_kinds_is_told_no_others_and_nothing_else_takes_its_room() -> None:
    class Picky(Keeps):
        kinds = (RunReset,)

    picky = Picky()
    teller = opened(picky, most=1)
    teller.tell([freed(number) for number in range(10)])
    teller.tell([RunReset(at=START, run_id="r", schedule_id="s", actor="ada")])
    assert closed(teller) == 0
    assert [type(fact) for fact in picky.facts] == [RunReset]
    assert teller.lost == 0


def test_before_it_is_open_and_after_it_is_closed_everyone_is_told_at_once() -> None:
    keeps = Keeps()
    teller = Teller([keeps], troubled=lambda error: None)
    teller.tell([freed(1)])
    assert numbers(keeps) == ["1"]
    teller.open()
    closed(teller)
    teller.tell([freed(2)])
    assert numbers(keeps) == ["1", "2"]


def test_a_listener_that_takes_long_delays_no_run(file: str) -> None:
    door, ran = threading.Event(), threading.Semaphore(0)
    app = Scheduler(file)

    @app.schedule(every("1s"), overlap="allow")
    def steady() -> None:
        ran.release()

    app.on_completed(lambda fact: door.wait(PATIENCE))
    with app:
        for _ in range(3):
            assert ran.acquire(timeout=PATIENCE)
        door.set()


def test_leaving_the_block_delivers_what_was_told_before(file: str) -> None:
    heard: list[str] = []
    pause = threading.Event()
    app = Scheduler(file)
    app.task("work")(lambda: None)

    @app.on_completed
    def slowly(fact: Fact) -> None:
        assert isinstance(fact, RunSucceeded)
        pause.wait(0.02)
        heard.append(fact.run_id)

    with app:
        app.schedules.create(name="a", manual={}, call="work", overlap="allow")
        ids = [app.schedules.run(schedule="a")["run"]["id"] for _ in range(10)]
        until(lambda: len(app.runs.list(state="succeeded")["runs"]) == 10, "all to end")
    assert sorted(heard) == sorted(ids)


def test_what_several_listeners_hear_of_a_schedule_keeps_its_order(file: str) -> None:
    heard: list[str] = []
    app = Scheduler(file)
    app.schedule(every("1s"), name="a", max_runs=2)(lambda: None)
    app.on("started")(lambda fact: heard.append("started"))
    app.on("completed")(lambda fact: heard.append("completed"))
    with app:
        until(lambda: len(heard) == 4, "both runs")
    assert heard == ["started", "completed"] * 2


def test_a_listener_may_ask_what_was_lost(file: str) -> None:
    app, lost = Scheduler(file), list[Fact]()
    app.on("lost")(lost.append)
    app.house.tell([FactsLost(at=START, listener="dashboard", count=7)])
    assert [fact.count for fact in lost if isinstance(fact, FactsLost)] == [7]
    app.stop()
