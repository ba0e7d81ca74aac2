"""The loop thread: tasks start, finish exactly once, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from timewright.errors import NotAllowed
from timewright.targets.loop_thread import LoopThread

SECOND = timedelta(seconds=1)
NOTHING = timedelta(0)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("under-test")
    yield thread
    thread.close(grace=NOTHING)
    assert not [one for one in threading.enumerate() if one.name.startswith("under-test")]


class FinishedTasks:
    """Records how tasks finished, and on which thread."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self._told = threading.Semaphore(0)

    def add(self, task: asyncio.Task[str]) -> None:
        self.seen.append(
            ("cancelled" if task.cancelled() else task.result(), threading.current_thread().name)
        )
        self._told.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._told.acquire(timeout=60)


async def word() -> str:
    return "done"


async def for_ever() -> str:
    await asyncio.Event().wait()
    return "never"


def test_a_task_finishes_on_the_thread_of_the_loop(loop: LoopThread) -> None:
    finished_tasks = FinishedTasks()
    loop.submit(word(), finished_tasks.add)
    finished_tasks.wait()
    assert finished_tasks.seen == [("done", "under-test")]


def test_a_task_cancelled_before_its_first_step_finishes_once(loop: LoopThread) -> None:
    finished_tasks = FinishedTasks()
    for _ in range(200):
        loop.submit(for_ever(), finished_tasks.add).cancel()
    finished_tasks.wait(200)
    assert [how for how, _ in finished_tasks.seen] == ["cancelled"] * 200


def test_a_finished_task_is_forgotten(loop: LoopThread) -> None:
    finished_tasks, tasks = FinishedTasks(), list[weakref.ref[Any]]()

    async def work() -> str:
        tasks.append(weakref.ref(asyncio.current_task()))
        return "done"

    for _ in range(20):
        loop.submit(work(), finished_tasks.add)
    finished_tasks.wait(20)
    loop.call(word(), timeout=60 * SECOND)
    gc.collect()
    assert [task() for task in tasks] == [None] * 20


def test_cancelling_a_finished_task_does_nothing(loop: LoopThread) -> None:
    finished_tasks = FinishedTasks()
    task = loop.submit(word(), finished_tasks.add)
    finished_tasks.wait()
    task.cancel()
    loop.close(grace=NOTHING)
    task.cancel()
    assert len(finished_tasks.seen) == 1


def test_a_call_returns_the_result_or_raises_the_error(loop: LoopThread) -> None:
    async def fail() -> None:
        raise LookupError("no")

    assert loop.call(word(), timeout=60 * SECOND) == "done"
    with pytest.raises(LookupError, match="no"):
        loop.call(fail(), timeout=60 * SECOND)


def test_a_call_that_takes_too_long_is_ended(loop: LoopThread) -> None:
    ended = threading.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        loop.call(slow(), timeout=SECOND / 20)
    assert ended.wait(60)


def test_closing_waits_for_tasks_within_the_grace_and_cancels_the_rest(loop: LoopThread) -> None:
    finished_tasks = FinishedTasks()
    begun = threading.Event()
    released = asyncio.Event()

    async def patient() -> str:
        begun.set()
        await released.wait()
        return "done"

    loop.submit(patient(), finished_tasks.add)
    loop.submit(for_ever(), finished_tasks.add)
    assert begun.wait(60)

    async def release() -> str:
        released.set()
        return "released"

    loop.call(release(), timeout=60 * SECOND)
    loop.close(grace=SECOND / 5)
    assert sorted(how for how, _ in finished_tasks.seen) == ["cancelled", "done"]


def test_a_closed_loop_accepts_no_task(loop: LoopThread) -> None:
    loop.start()
    loop.close(grace=NOTHING)
    with pytest.raises(NotAllowed):
        loop.submit(word(), FinishedTasks().add)
    with pytest.raises(NotAllowed):
        loop.start()


def test_slow_dns_lookups_do_not_delay_another_lookup(loop: LoopThread) -> None:
    finished_tasks, release = FinishedTasks(), threading.Event()
    for _ in range(100):
        loop.submit(asyncio.to_thread(lambda: release.wait(60) and ""), lambda _: None)
    loop.submit(asyncio.to_thread(lambda: "quick"), finished_tasks.add)
    finished_tasks.wait()
    release.set()
    assert finished_tasks.seen == [("quick", "under-test")]


def test_an_unstarted_loop_can_be_closed() -> None:
    LoopThread().close(grace=SECOND)


def test_dns_threads_end_with_the_loop(loop: LoopThread) -> None:
    async def borrow() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert loop.call(borrow(), timeout=60 * SECOND).startswith("under-test-lookup")


def test_tasks_created_by_a_task_end_with_the_loop(loop: LoopThread) -> None:
    ended = threading.Event()
    left: set[asyncio.Task[str]] = set()

    async def leaves_something_behind() -> str:
        left.add(asyncio.create_task(for_ever()))
        left.copy().pop().add_done_callback(lambda task: ended.set())
        return "done"

    assert loop.call(leaves_something_behind(), timeout=60 * SECOND) == "done"
    loop.close(grace=NOTHING)
    assert ended.is_set()


def test_a_task_that_ignores_cancellation_does_not_block_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timewright.targets.loop_thread.CANCEL_GRACE", SECOND / 20)
    thread = LoopThread("stubborn")
    tasks: list[asyncio.Task[str] | None] = []

    async def stubborn() -> str:
        tasks.append(asyncio.current_task())
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    finished_tasks = FinishedTasks()
    thread.submit(stubborn(), finished_tasks.add)
    thread.close(grace=NOTHING)
    assert finished_tasks.seen == []
    assert tasks[0] is not None
    # The task is never resumed; without this, asyncio logs that at interpreter exit.
    setattr(tasks[0], "_log_destroy_pending", False)  # noqa: B010 - not among the published names
    assert not [one for one in threading.enumerate() if one.name == "stubborn"]


@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt])
def test_a_task_that_raises_system_exit_does_not_stop_the_loop(
    loop: LoopThread, exit_kind: type[BaseException]
) -> None:
    ended: list[BaseException | None] = []
    finished = threading.Event()

    async def leave() -> str:
        raise exit_kind

    def add(task: asyncio.Task[str]) -> None:
        ended.append(task.exception())
        finished.set()

    loop.submit(leave(), add)
    assert finished.wait(60)
    assert isinstance(ended[0], exit_kind)
    assert loop.call(word(), timeout=60 * SECOND) == "done"
