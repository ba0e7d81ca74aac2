"""The loop thread: errands begin, end exactly once, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from timewright.errors import NotAllowed
from timewright.targets.loop import LoopThread

SECOND = timedelta(seconds=1)
NOTHING = timedelta(0)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("under-test")
    yield thread
    thread.close(grace=NOTHING)
    assert not [one for one in threading.enumerate() if one.name.startswith("under-test")]


class Ends:
    """Remembers how errands ended, and on which thread."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self._told = threading.Semaphore(0)

    def tell(self, task: asyncio.Task[str]) -> None:
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


def test_an_errand_ends_on_the_thread_of_the_loop(loop: LoopThread) -> None:
    ends = Ends()
    loop.submit(word(), ends.tell)
    ends.wait()
    assert ends.seen == [("done", "under-test")]


def test_an_errand_cancelled_before_its_first_step_still_ends_once(loop: LoopThread) -> None:
    ends = Ends()
    for _ in range(200):
        loop.submit(for_ever(), ends.tell).cancel()
    ends.wait(200)
    assert [how for how, _ in ends.seen] == ["cancelled"] * 200


def test_cancelling_what_has_ended_does_nothing(loop: LoopThread) -> None:
    ends = Ends()
    errand = loop.submit(word(), ends.tell)
    ends.wait()
    errand.cancel()
    loop.close(grace=NOTHING)
    errand.cancel()
    assert len(ends.seen) == 1


def test_a_call_gives_back_the_result_or_the_error(loop: LoopThread) -> None:
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


def test_closing_waits_for_what_ends_by_itself_and_cancels_the_rest(loop: LoopThread) -> None:
    ends = Ends()
    begun = threading.Event()
    released = asyncio.Event()

    async def patient() -> str:
        begun.set()
        await released.wait()
        return "done"

    loop.submit(patient(), ends.tell)
    loop.submit(for_ever(), ends.tell)
    assert begun.wait(60)

    async def release() -> str:
        released.set()
        return "released"

    loop.call(release(), timeout=60 * SECOND)
    loop.close(grace=SECOND / 5)
    assert sorted(how for how, _ in ends.seen) == ["cancelled", "done"]


def test_after_closing_nothing_is_taken_on(loop: LoopThread) -> None:
    loop.start()
    loop.close(grace=NOTHING)
    with pytest.raises(NotAllowed):
        loop.submit(word(), Ends().tell)
    with pytest.raises(NotAllowed):
        loop.start()


def test_many_names_that_are_looked_up_for_long_do_not_keep_another_waiting(loop: LoopThread) -> None:
    ends, gate = Ends(), threading.Event()
    for _ in range(100):
        loop.submit(asyncio.to_thread(lambda: gate.wait(60) and ""), lambda _: None)
    loop.submit(asyncio.to_thread(lambda: "quick"), ends.tell)
    ends.wait()
    gate.set()
    assert ends.seen == [("quick", "under-test")]


def test_a_loop_that_was_never_started_closes_too() -> None:
    LoopThread().close(grace=SECOND)


def test_the_threads_that_look_up_names_end_with_the_loop(loop: LoopThread) -> None:
    async def borrow() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert loop.call(borrow(), timeout=60 * SECOND).startswith("under-test-lookup")


def test_what_an_errand_leaves_running_ends_with_the_loop(loop: LoopThread) -> None:
    ended = threading.Event()
    left: set[asyncio.Task[str]] = set()

    async def leaves_something_behind() -> str:
        left.add(asyncio.create_task(for_ever()))
        left.copy().pop().add_done_callback(lambda task: ended.set())
        return "done"

    assert loop.call(leaves_something_behind(), timeout=60 * SECOND) == "done"
    loop.close(grace=NOTHING)
    assert ended.is_set()


def test_a_task_that_ignores_being_cancelled_does_not_hold_the_closing_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timewright.targets.loop.LAST_WORD", SECOND / 20)
    thread = LoopThread("stubborn")
    tasks: list[asyncio.Task[str] | None] = []

    async def stubborn() -> str:
        tasks.append(asyncio.current_task())
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    ends = Ends()
    thread.submit(stubborn(), ends.tell)
    thread.close(grace=NOTHING)
    assert ends.seen == []
    assert tasks[0] is not None
    # Nobody will wake it again; asyncio would say so at the very end, on a console that is no longer ours.
    setattr(tasks[0], "_log_destroy_pending", False)  # noqa: B010 - not among the published names
    assert not [one for one in threading.enumerate() if one.name == "stubborn"]


@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt])
def test_an_errand_that_raises_an_exit_ends_alone(loop: LoopThread, exit_kind: type[BaseException]) -> None:
    ended: list[BaseException | None] = []
    told = threading.Event()

    async def leave() -> str:
        raise exit_kind

    def tell(task: asyncio.Task[str]) -> None:
        ended.append(task.exception())
        told.set()

    loop.submit(leave(), tell)
    assert told.wait(60)
    assert isinstance(ended[0], exit_kind)
    assert loop.call(word(), timeout=60 * SECOND) == "done"
