"""Threads come one after the other while work waits, and time limits share one timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.targets.stage import Doing
from timewright.targets import deadlines
from timewright.targets.deadlines import Deadlines
from timewright.targets.threads import Threads

PATIENCE = 60.0


def staying(began: threading.Event, until: threading.Event) -> Callable[[], object]:
    """Work that says that it has begun, and stays."""

    def stay() -> None:
        began.set()
        until.wait(PATIENCE)

    return stay


def test_work_that_takes_long_is_done_by_as_many_threads_as_are_allowed() -> None:
    pool, together = Threads(limit=8), threading.Barrier(9)
    for _ in range(8):
        pool.give(Doing(lambda: together.wait(PATIENCE)))
    together.wait(PATIENCE)
    assert pool.count == 8
    pool.close(grace=PATIENCE)
    assert pool.count == 0


def test_short_work_is_done_in_order_and_by_one_thread_when_one_is_allowed() -> None:
    pool, done = Threads(limit=1), list[int]()
    over = threading.Event()
    for number in range(1000):
        pool.give(Doing(lambda number=number: done.append(number)))  # type: ignore[misc]
    pool.give(Doing(over.set))
    assert over.wait(PATIENCE)
    assert done == list(range(1000))
    pool.close(grace=PATIENCE)


def test_a_thread_that_rests_is_called_again_and_one_that_rests_for_long_ends() -> None:
    pool = Threads(limit=4, idle_seconds=0.05)
    names: list[str] = []
    done = threading.Semaphore(0)

    def note() -> None:
        names.append(threading.current_thread().name)
        done.release()

    for number in range(3):
        pool.give(Doing(note))
        assert done.acquire(timeout=PATIENCE)
        assert len(names) == number + 1
    for thread in list(pool._threads):
        thread.join(PATIENCE)
    assert pool.count == 0
    pool.give(Doing(note))
    assert done.acquire(timeout=PATIENCE)
    pool.close(grace=PATIENCE)


def test_work_that_no_thread_can_be_started_for_is_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    pool = Threads(limit=4)
    monkeypatch.setattr(threading, "Thread", Refused)
    with pytest.raises(RuntimeError):
        pool.give(Doing(lambda: None))
    assert (pool.count, len(pool._line)) == (0, 0)


def test_work_waits_for_a_thread_of_ours_where_the_system_has_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, go_on, done = Threads(limit=4), threading.Event(), threading.Event()
    pool.give(Doing(lambda: go_on.wait(PATIENCE)))

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", Refused)
    pool.give(Doing(done.set))
    go_on.set()
    assert done.wait(PATIENCE)
    pool.close(grace=PATIENCE)


def test_a_piece_that_nobody_has_begun_can_be_taken_back() -> None:
    pool, go_on, began = Threads(limit=1), threading.Event(), threading.Event()
    pool.give(Doing(staying(began, go_on)))
    assert began.wait(PATIENCE)
    second = Doing(lambda: None)
    pool.give(second)
    assert pool.withdraw(second) is True
    assert pool.withdraw(second) is False
    go_on.set()
    pool.close(grace=PATIENCE)


def test_a_thread_that_is_given_up_makes_room_for_who_waits_behind_it() -> None:
    pool, never, began, done = Threads(limit=1), threading.Event(), threading.Event(), threading.Event()
    stuck = Doing(staying(began, never))
    pool.give(stuck)
    assert began.wait(PATIENCE)
    pool.give(Doing(done.set))
    assert pool.abandon(stuck) is True
    assert done.wait(PATIENCE)
    assert pool.leaked == 1
    never.set()
    pool.close(grace=PATIENCE)


# Time limits.


class StillWatch:
    """A watch whose time is moved by hand and whose timers are fired by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        self.timers.append((self.now + seconds, action))

    def pass_to(self, now: float) -> None:
        while self.timers and min(self.timers)[0] <= now:
            timer = min(self.timers, key=lambda entry: entry[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = now


class Limited:
    def __init__(self) -> None:
        self.is_over = False
        self.ended_at: list[float] = []


def limited(watch: StillWatch) -> Any:
    one = Limited()
    one.overdue = lambda: one.ended_at.append(watch.now)  # type: ignore[attr-defined]
    return one


def test_one_timer_serves_all_that_may_take_as_long() -> None:
    watch = StillWatch()
    lines = Deadlines(watch)  # type: ignore[arg-type]
    ones = []
    for second in range(5):
        watch.pass_to(float(second))
        ones.append(limited(watch))
        lines.add(ones[-1], 60.0)
    assert len(watch.timers) == 1
    ones[1].is_over = True
    watch.pass_to(100.0)
    assert [one.ended_at for one in ones] == [[60.0], [], [62.0], [63.0], [64.0]]
    assert watch.timers == []
    assert lines._lines == {}


def test_limits_of_another_length_have_a_line_of_their_own() -> None:
    watch = StillWatch()
    lines = Deadlines(watch)  # type: ignore[arg-type]
    long, short = limited(watch), limited(watch)
    lines.add(long, 60.0)
    lines.add(short, 1.0)
    watch.pass_to(2.0)
    assert (short.ended_at, long.ended_at) == ([1.0], [])


def test_those_that_ended_do_not_crowd_behind_one_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_CROWDED", 10)
    watch = StillWatch()
    lines = Deadlines(watch)  # type: ignore[arg-type]
    slow = limited(watch)
    lines.add(slow, 60.0)
    for _ in range(1000):
        quick = limited(watch)
        lines.add(quick, 60.0)
        quick.is_over = True
    assert len(lines._lines[60.0]) < 50
    watch.pass_to(60.0)
    assert slow.ended_at == [60.0]
