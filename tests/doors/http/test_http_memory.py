"""What the door remembers for a moment, and what it must not: keys, terms, spellings, threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from tests.doors.http.test_http_callers import bearer, made_key
from tests.doors.http.visitor import Visitor, visiting
from tests.operations.house import KEYRING, House, furnished
from timewright.core.encoding import encode
from timewright.doors.http import threads as threading_door
from timewright.doors.http.sending import is_written_alike, sendable
from timewright.doors.http.threads import Threads
from timewright.operations import Operation, operations
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.short_memory import LIVES, ShortMemory
from timewright.operations.views import RunRow, ScheduleRow
from timewright.ports import Transaction

T = TypeVar("T")
PATH = "/api/v1/schedules/nightly-report"
EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]


class Counted:
    """A store that counts how often it is asked."""

    def __init__(self, house: House) -> None:
        self._store = house.store
        self.now = house.store.now
        self.close = house.store.close
        self.reads = 0
        self.writes = 0

    def read(self, work: Callable[[Transaction], T]) -> T:
        self.reads += 1
        return self._store.read(work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        self.writes += 1
        return self._store.write(work)


def counted(house: House) -> Counted:
    store = Counted(house)
    house.context = replace(house.context, store=store)
    return store


def asked(visitor: Visitor, token: str) -> int:
    return visitor.ask("GET", PATH, headers=bearer(token)).status


def test_a_key_that_came_a_moment_ago_costs_no_look_at_the_store(house: House) -> None:
    token = made_key(house, "k", role="viewer")
    store = counted(house)
    with visiting(house, caller=None) as visitor:
        assert asked(visitor, token) == 200
        store.reads = store.writes = 0
        assert asked(visitor, token) == 200
        assert (store.reads, store.writes) == (1, 0)


def test_a_key_that_is_revoked_here_opens_nothing_from_then_on(house: House) -> None:
    token, other = made_key(house, "k", role="viewer"), made_key(house, "other", role="viewer")
    with visiting(house, caller=None) as visitor:
        assert [asked(visitor, one) for one in (token, other)] == [200, 200]
        house.ask("key revoke", key="k")
        assert [asked(visitor, one) for one in (token, other)] == [401, 200]


def test_a_key_that_is_revoked_elsewhere_opens_for_two_seconds_at_most(house: House) -> None:
    token = made_key(house, "k", role="viewer")
    with visiting(house, caller=None) as visitor:
        assert asked(visitor, token) == 200
        elsewhere = replace(house.context, doorkeeper=Doorkeeper(lambda: KEYRING))
        operations["key revoke"](elsewhere, {"key": "k"})
        house.sleep(seconds=LIVES)
        assert asked(visitor, token) == 401


def test_a_key_that_is_over_is_not_remembered_past_its_end(house: House) -> None:
    token = made_key(house, "k", role="viewer", expires_in="1m")
    with visiting(house, caller=None) as visitor:
        house.sleep(seconds=59)
        assert asked(visitor, token) == 200
        house.sleep(seconds=1)
        assert asked(visitor, token) == 401


def test_new_terms_of_a_namespace_hold_from_the_next_request_on(house: House) -> None:
    token = made_key(house, "k", role="viewer")
    with visiting(house, caller=None) as visitor:
        assert asked(visitor, token) == 200
        house.ask("namespace create", name="default", requests_per_minute=1)
        # Of what was left under the old terms, one fits into the new ones.
        assert [asked(visitor, token) for _ in range(2)] == [200, 429]


def test_a_wrong_key_is_looked_up_and_refused_every_time(house: House) -> None:
    token = made_key(house, "k", role="viewer")
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    with visiting(house, caller=None) as visitor:
        assert [asked(visitor, one) for one in (token, wrong, token, wrong)] == [200, 401, 200, 401]


def test_what_was_read_before_a_change_is_not_remembered_after_it() -> None:
    memory: ShortMemory[str] = ShortMemory(most=2)
    before = memory.changes
    memory.forget()
    memory.remember("a", "old", at=0, since=before)
    assert memory.recall("a", at=0) is None
    memory.remember("a", "new", at=0, since=memory.changes)
    assert memory.recall("a", at=LIVES / 2) == "new"
    assert memory.recall("a", at=LIVES) is None
    assert memory.recall("a", at=-1) is None
    for name in "bcd":
        memory.remember(name, name, at=0, since=memory.changes)
    assert memory.recall("d", at=0) == "d"
    assert memory.recall("a", at=0) is None


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_answer_is_sent_in_the_same_bytes_as_it_is_spelled(
    one: Operation[Any], example: Mapping[str, Any]
) -> None:
    answers: list[Any] = []

    def spell(answer: Any) -> dict[str, Any]:
        answers.append(answer)
        return {}

    one.spelled(furnished().context, example, spell)
    assert msgspec.json.encode(sendable(answers[0])) == msgspec.json.encode(encode(answers[0]))


def test_the_rows_of_long_lists_are_left_to_msgspec_and_times_of_a_zone_are_written_alike() -> None:
    assert is_written_alike(ScheduleRow)
    assert is_written_alike(RunRow)
    house = furnished()
    house.ask("schedule create", name="zoned", cron="0 9 * * *", zone="Europe/Berlin", note="x")
    house.ask("schedule create", name="ruled", rrule="FREQ=DAILY", zone="America/New_York", note="x")
    for name in ("zoned", "ruled"):
        get = operations["schedule get"]
        expected = msgspec.json.encode(get(house.context, {"schedule": name}))
        for _ in range(2):
            sent = get.spelled(house.context, {"schedule": name}, sendable)
            assert msgspec.json.encode(sent) == expected


def test_no_more_threads_work_than_may_and_everything_is_done() -> None:
    async def many() -> list[int]:
        return list(await asyncio.gather(*(threads.run(partial(work, n)) for n in range(20))))

    threads, guard, under_way, most = Threads(3), threading.Lock(), [0], [0]

    def work(number: int) -> int:
        with guard:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        meet.wait(0.01)
        with guard:
            under_way[0] -= 1
        return number

    meet = threading.Event()
    assert asyncio.run(many()) == list(range(20))
    assert 1 <= most[0] <= 3


def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    async def failing() -> None:
        with pytest.raises(ValueError, match="nothing"):
            await Threads(1).run(lambda: int("nothing"))

    asyncio.run(failing())


def test_whoever_is_cancelled_waits_until_its_work_has_ended() -> None:
    begun, go, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go.wait(60)
        ended.append(True)

    async def cancelled() -> None:
        task = asyncio.create_task(Threads(1).run(work))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        asyncio.get_running_loop().call_later(0.02, go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(cancelled())


def test_a_thread_that_nobody_needs_ends_and_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading_door, "IDLE_SECONDS", 0.01)
    threads = Threads(1)
    first = asyncio.run(threads.run(threading.current_thread))
    first.join(60)
    assert not first.is_alive()
    assert asyncio.run(threads.run(lambda: 7)) == 7
