"""The thread pool of calls, and the shared timers of time limits."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.targets.kit import CallItem
from timewright.targets.call.threads import CallThreadPool

TIMEOUT_S = 60.0


def staying(began: threading.Event, until: threading.Event) -> Callable[[], object]:
    """An item that reports its start and then blocks."""

    def stay() -> None:
        began.set()
        until.wait(TIMEOUT_S)

    return stay


def test_long_items_use_as_many_threads_as_allowed() -> None:
    pool, together = CallThreadPool(limit=8), threading.Barrier(9)
    for _ in range(8):
        pool.submit(CallItem(lambda: together.wait(TIMEOUT_S)))
    together.wait(TIMEOUT_S)
    assert pool.count == 8
    pool.close(grace=TIMEOUT_S)
    assert pool.count == 0


def test_one_thread_runs_items_in_order() -> None:
    pool, done = CallThreadPool(limit=1), list[int]()
    over = threading.Event()
    for number in range(1000):
        pool.submit(CallItem(lambda number=number: done.append(number)))  # type: ignore[misc]
    pool.submit(CallItem(over.set))
    assert over.wait(TIMEOUT_S)
    assert done == list(range(1000))
    pool.close(grace=TIMEOUT_S)


def test_an_idle_thread_is_reused_and_ends_after_the_idle_time() -> None:
    pool = CallThreadPool(limit=4, idle_seconds=0.05)
    names: list[str] = []
    done = threading.Semaphore(0)

    def note() -> None:
        names.append(threading.current_thread().name)
        done.release()

    for number in range(3):
        pool.submit(CallItem(note))
        assert done.acquire(timeout=TIMEOUT_S)
        assert len(names) == number + 1
    for thread in list(pool._threads):
        thread.join(TIMEOUT_S)
    assert pool.count == 0
    pool.submit(CallItem(note))
    assert done.acquire(timeout=TIMEOUT_S)
    pool.close(grace=TIMEOUT_S)


def test_an_item_without_a_thread_is_refused_and_not_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    pool = CallThreadPool(limit=4)
    monkeypatch.setattr(threading, "Thread", Refused)
    with pytest.raises(RuntimeError):
        pool.submit(CallItem(lambda: None))
    assert (pool.count, len(pool._queue)) == (0, 0)


def test_an_item_waits_for_a_running_thread_when_no_new_one_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, go_on, done = CallThreadPool(limit=4), threading.Event(), threading.Event()
    pool.submit(CallItem(lambda: go_on.wait(TIMEOUT_S)))

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", Refused)
    pool.submit(CallItem(done.set))
    go_on.set()
    assert done.wait(TIMEOUT_S)
    pool.close(grace=TIMEOUT_S)


def test_a_queued_item_can_be_cancelled() -> None:
    pool, go_on, began = CallThreadPool(limit=1), threading.Event(), threading.Event()
    pool.submit(CallItem(staying(began, go_on)))
    assert began.wait(TIMEOUT_S)
    second = CallItem(lambda: None)
    pool.submit(second)
    assert pool.cancel_queued(second) is True
    assert pool.cancel_queued(second) is False
    go_on.set()
    pool.close(grace=TIMEOUT_S)


def test_an_abandoned_thread_is_replaced_when_items_are_queued() -> None:
    pool, never, began, done = (
        CallThreadPool(limit=1),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    stuck = CallItem(staying(began, never))
    pool.submit(stuck)
    assert began.wait(TIMEOUT_S)
    pool.submit(CallItem(done.set))
    assert pool.abandon(stuck) is True
    assert done.wait(TIMEOUT_S)
    assert pool.leaked == 1
    never.set()
    pool.close(grace=TIMEOUT_S)
