"""What happens, as it happens: in order, in bounds, to those it concerns, and with an honest end."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.doors.http.visitor import ADA, HOST, visiting
from tests.operations.house import NOON, House
from timewright.core.facts import Fact, RunFreed, TickFinished
from timewright.doors.http import events
from timewright.doors.http.app import HttpDoor
from timewright.doors.http.events import KEPT, MOST_STREAMS, MOST_WAITING, Hub


def fact(number: int, namespace: str = "default") -> Fact:
    return RunFreed(at=NOON, namespace=namespace, run_id=f"run_{number}", schedule_id="sch_1")


class Stream:
    """One open stream: what came so far, as a browser would read it."""

    def __init__(self, hub: Hub, house: House, query: str = "", **headers: str) -> None:
        door = HttpDoor(house.context, hub=hub, callers=lambda _: ADA)
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "query_string": query.encode(),
            "scheme": "http",
            "headers": [(b"host", HOST.encode())]
            + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        self.left = asyncio.Event()
        self.came = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.parts: list[bytes] = []
        self.status = 0
        self.task = asyncio.ensure_future(door(self.scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.gate.wait()
        self.status = message.get("status", self.status)
        self.parts.append(message.get("body", b""))
        self.came.set()

    @property
    def told(self) -> list[dict[str, str]]:
        blocks = b"".join(self.parts).decode().split("\n\n")
        rows = [
            dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if "event:" in block
        ]
        return [row for row in rows if row.get("event")]

    async def until(self, enough: Callable[[], bool]) -> None:
        async def looking() -> None:
            while not enough():
                self.came.clear()
                await self.came.wait()

        await asyncio.wait_for(looking(), 60)

    async def leave(self) -> None:
        self.left.set()
        await asyncio.wait_for(self.task, 60)


def tell(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def test_facts_come_in_order_with_ids_and_their_kind(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        for number in range(3):
            hub.note(fact(number))
        await stream.until(lambda: len(stream.told) == 4)
        first, *rest = stream.told
        assert (first["event"], json.loads(first["data"])) == ("hello", {"from": "now"})
        assert [row["id"] for row in rest] == ["one-1", "one-2", "one-3"]
        assert [json.loads(row["data"])["run_id"] for row in rest] == ["run_0", "run_1", "run_2"]
        assert {row["event"] for row in rest} == {"run-freed"}
        await stream.leave()

    tell(story)


def test_nobody_hears_of_another_namespace_and_only_of_the_kinds_asked_for(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        stream = Stream(hub, house)
        picky = Stream(hub, house, "facts=run-parked,tick-finished")
        await stream.until(lambda: len(stream.told) == 1)
        await picky.until(lambda: len(picky.told) == 1)
        hub.note(fact(1, "other"))
        hub.note(TickFinished(at=NOON))
        hub.note(fact(2))
        await stream.until(lambda: len(stream.told) == 2)
        await picky.until(lambda: len(picky.told) == 2)
        assert json.loads(stream.told[1]["data"])["run_id"] == "run_2"
        assert picky.told[1]["event"] == "tick-finished"
        await stream.leave()
        await picky.leave()

    tell(story)


def test_a_kind_of_fact_that_there_is_not_is_refused_before_anyone_waits_for_it(house: House) -> None:
    with visiting(house) as visitor:
        refusal = visitor.ask("GET", "/api/v1/events?facts=run-failed,run-parkd")
    assert (refusal.status, refusal.data["field"]) == (422, "facts")
    assert refusal.data["fix"] == "did you mean run-parked?"


@pytest.mark.parametrize(
    ("last", "since", "first"),
    [
        ("", "now", None),
        ("one-3", "id", "run_4"),
        ("one-5", "id", None),
        ("other-3", "gap", None),
        ("one-x", "gap", None),
        ("one--1", "gap", None),
        ("one-" + "9" * 100, "gap", None),
        ("\x7f" * 50, "gap", None),
    ],
)
def test_a_listener_that_comes_back_hears_what_it_missed_or_that_there_is_a_gap(
    house: House, last: str, since: str, first: str | None
) -> None:
    async def story() -> None:
        hub = Hub("one")
        for number in range(1, 6):
            hub.note(fact(number))
        stream = Stream(hub, house, last_event_id=last)
        hub_again = [json.dumps({"from": since}, separators=(",", ":"))]
        await stream.until(lambda: len(stream.told) >= 1)
        assert [stream.told[0]["data"]] == hub_again
        hub.note(fact(6))
        await stream.until(lambda: len(stream.told) >= 2)
        assert json.loads(stream.told[1]["data"])["run_id"] == (first or "run_6")
        await stream.leave()

    tell(story)


def test_an_id_that_is_too_old_gives_what_is_left_and_says_so(house: House) -> None:
    hub = Hub("one")
    for number in range(KEPT + 10):
        hub.note(fact(number))

    async def story() -> None:
        listener, missed, since = hub.listen("default", frozenset(), "one-3")
        assert (len(missed), since) == (KEPT, "gap")
        hub.leave(listener)

    tell(story)


def test_whoever_reads_too_slowly_is_let_go_and_holds_nobody_up(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        slow, quick = Stream(hub, house), Stream(hub, house)
        await slow.until(lambda: len(slow.told) == 1)
        await quick.until(lambda: len(quick.told) == 1)
        slow.gate.clear()
        hub.note(fact(0))
        await quick.until(lambda: len(quick.told) == 2)
        for number in range(1, MOST_WAITING + 10):
            hub.note(fact(number))
            if number % 100 == 0:
                await quick.until(lambda upto=number: len(quick.told) > upto)  # type: ignore[misc]
        slow.gate.set()
        await asyncio.wait_for(slow.task, 60)
        assert json.loads(slow.told[-1]["data"]) == {"reason": "slow"}
        await quick.until(lambda: len(quick.told) > MOST_WAITING + 9)
        await quick.leave()

    tell(story)


def test_whoever_does_not_read_at_all_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_SECONDS", 0.05)

    async def story() -> None:
        hub = Hub("one")
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        stream.gate.clear()
        hub.note(fact(1))
        await asyncio.wait_for(stream.task, 60)

    tell(story)


def test_a_quiet_stream_has_a_heartbeat(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.01)

    async def story() -> None:
        stream = Stream(Hub("one"), house)
        await stream.until(lambda: b"".join(stream.parts).count(b": still here\n\n") >= 2)
        await stream.leave()

    tell(story)


def test_streams_end_when_we_stop_and_no_new_one_begins(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        await asyncio.to_thread(hub.close)
        await asyncio.wait_for(stream.task, 60)
        assert json.loads(stream.told[-1]["data"]) == {"reason": "stopping"}
        late = Stream(hub, house)
        await asyncio.wait_for(late.task, 60)
        assert late.status == 503

    tell(story)


class Whisper:
    """An ear whose calls are made by hand."""

    def __init__(self) -> None:
        self.said: queue.Queue[bool] = queue.Queue()

    def calls(self) -> Iterator[None]:
        while self.said.get():
            yield

    def close(self) -> None:
        self.said.put(False)


def test_what_others_write_is_heard_while_someone_listens_and_not_told_too_often(house: House) -> None:
    ears: list[Whisper] = []

    def new_ear() -> Whisper:
        ears.append(Whisper())
        return ears[-1]

    async def story() -> None:
        hub = Hub("one")
        hub.hear(new_ear)
        assert ears == []
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        ears[0].said.put(True)
        await stream.until(lambda: len(stream.told) == 2)
        assert (stream.told[1]["event"], "id" in stream.told[1]) == ("changed", False)
        for _ in range(50):
            ears[0].said.put(True)
        await stream.until(lambda: len(stream.told) == 3)
        hub.note(fact(1))
        await stream.until(lambda: stream.told[-1]["event"] == "run-freed")
        assert len(stream.told) <= 5
        second = Stream(hub, house)
        await second.until(lambda: len(second.told) == 1)
        await stream.leave()
        assert len(ears) == 1
        await second.leave()
        third = Stream(hub, house)
        await third.until(lambda: len(third.told) == 1)
        assert len(ears) == 2
        await third.leave()

    tell(story)


def test_a_store_of_our_own_has_no_ear(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        hub.hear(lambda: None)
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        await stream.leave()

    tell(story)


def test_there_are_so_many_streams_and_no_more(house: House) -> None:
    async def story() -> None:
        hub = Hub("one")
        listeners = [hub.listen("default", frozenset(), "")[0] for _ in range(MOST_STREAMS)]
        refused = Stream(hub, house)
        await asyncio.wait_for(refused.task, 60)
        assert refused.status == 503
        hub.leave(listeners[0])
        stream = Stream(hub, house)
        await stream.until(lambda: len(stream.told) == 1)
        await stream.leave()

    tell(story)
