"""The event stream: order, filters, replay, limits and shutdown."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import ADMIN, HOST, bearer, client_for, create_key
from tests.operations.harness import NOON, OperationsHarness
from timewright.core.facts import Fact, RunFreed, TickFinished
from timewright.interfaces.http import events
from timewright.interfaces.http.app import HttpApp
from timewright.interfaces.http.authentication import Authenticator, authenticate_by_key_or_session
from timewright.interfaces.http.events import (
    HISTORY_FACTS,
    MAX_PENDING_FACTS,
    MAX_STREAMS,
    MAX_STREAMS_PER_CALLER,
    EventHub,
)


def fact(number: int, namespace: str = "default") -> Fact:
    return RunFreed(at=NOON, namespace=namespace, run_id=f"run_{number}", schedule_id="sch_1")


class Stream:
    """An open stream and its received events."""

    def __init__(
        self,
        hub: EventHub,
        harness: OperationsHarness,
        query: str = "",
        authenticate: Authenticator = lambda _: ADMIN,
        **headers: str,
    ) -> None:
        app = HttpApp(harness.context, hub=hub, authenticate=authenticate)
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
        self.writable = asyncio.Event()
        self.writable.set()
        self.parts: list[bytes] = []
        self.status = 0
        self.task = asyncio.ensure_future(app(self.scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.writable.wait()
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


def test_facts_come_in_order_with_ids_and_their_kind(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        for number in range(3):
            hub.notify(fact(number))
        await stream.until(lambda: len(stream.told) == 4)
        first, *rest = stream.told
        assert (first["event"], json.loads(first["data"])) == ("hello", {"from": "now"})
        assert [row["id"] for row in rest] == ["one-1", "one-2", "one-3"]
        assert [json.loads(row["data"])["run_id"] for row in rest] == ["run_0", "run_1", "run_2"]
        assert {row["event"] for row in rest} == {"run-freed"}
        await stream.leave()

    tell(story)


def test_an_event_names_the_schedule_before_its_id(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        hub.watch_store(harness.context.store, lambda: None)
        created = harness.ask("schedule create", name="hello", trigger={"every": "1h"}, target={"note": "x"})
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        hub.notify(RunFreed(at=NOON, run_id="run_1", schedule_id=created["schedule"]["id"]))
        await stream.until(lambda: len(stream.told) == 2)
        data = json.loads(stream.told[1]["data"])
        assert data["schedule"] == "hello"
        assert list(data).index("schedule") < list(data).index("schedule_id")
        await stream.leave()

    tell(story)


def test_a_stream_only_has_facts_of_its_namespace_and_kinds(
    harness: OperationsHarness,
) -> None:
    async def story() -> None:
        hub = EventHub("one")
        stream = Stream(hub, harness)
        picky = Stream(hub, harness, "facts=run-parked,tick-finished")
        await stream.until(lambda: len(stream.told) == 1)
        await picky.until(lambda: len(picky.told) == 1)
        hub.notify(fact(1, "other"))
        hub.notify(TickFinished(at=NOON))
        hub.notify(fact(2))
        await stream.until(lambda: len(stream.told) == 2)
        await picky.until(lambda: len(picky.told) == 2)
        assert json.loads(stream.told[1]["data"])["run_id"] == "run_2"
        assert picky.told[1]["event"] == "tick-finished"
        await stream.leave()
        await picky.leave()

    tell(story)


def test_a_stream_can_be_limited_to_incidents_that_closed(
    harness: OperationsHarness,
) -> None:
    async def story() -> None:
        stream = Stream(EventHub("one"), harness, "facts=incident-closed")
        await stream.until(lambda: len(stream.told) == 1)
        await stream.leave()

    tell(story)


def test_an_unknown_kind_of_fact_is_refused(
    harness: OperationsHarness,
) -> None:
    with client_for(harness) as client:
        refusal = client.request("GET", "/api/v1/events?facts=run-failed,run-parkd")
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
def test_a_reconnected_stream_replays_missed_facts_or_reports_a_gap(
    harness: OperationsHarness, last: str, since: str, first: str | None
) -> None:
    async def story() -> None:
        hub = EventHub("one")
        for number in range(1, 6):
            hub.notify(fact(number))
        stream = Stream(hub, harness, last_event_id=last)
        hub_again = [json.dumps({"from": since}, separators=(",", ":"))]
        await stream.until(lambda: len(stream.told) >= 1)
        assert [stream.told[0]["data"]] == hub_again
        hub.notify(fact(6))
        await stream.until(lambda: len(stream.told) >= 2)
        assert json.loads(stream.told[1]["data"])["run_id"] == (first or "run_6")
        await stream.leave()

    tell(story)


def test_an_expired_event_id_replays_the_rest_and_reports_a_gap(harness: OperationsHarness) -> None:
    hub = EventHub("one")
    for number in range(HISTORY_FACTS + 10):
        hub.notify(fact(number))

    async def story() -> None:
        listener, missed, since = hub.subscribe("default", frozenset(), "one-3", caller="ada")
        assert (len(missed), since) == (HISTORY_FACTS, "gap")
        hub.unsubscribe(listener)

    tell(story)


def test_a_slow_reader_is_disconnected_and_does_not_delay_others(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        slow, quick = Stream(hub, harness), Stream(hub, harness)
        await slow.until(lambda: len(slow.told) == 1)
        await quick.until(lambda: len(quick.told) == 1)
        slow.writable.clear()
        hub.notify(fact(0))
        await quick.until(lambda: len(quick.told) == 2)
        for number in range(1, MAX_PENDING_FACTS + 10):
            hub.notify(fact(number))
            if number % 100 == 0:
                await quick.until(lambda upto=number: len(quick.told) > upto)  # type: ignore[misc]
        slow.writable.set()
        await asyncio.wait_for(slow.task, 60)
        assert json.loads(slow.told[-1]["data"]) == {"reason": "slow"}
        await quick.until(lambda: len(quick.told) > MAX_PENDING_FACTS + 9)
        await quick.leave()

    tell(story)


def test_a_client_that_never_reads_is_disconnected(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SEND_TIMEOUT_S", 0.05)

    async def story() -> None:
        hub = EventHub("one")
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        stream.writable.clear()
        hub.notify(fact(1))
        await asyncio.wait_for(stream.task, 60)

    tell(story)


def test_an_idle_stream_sends_keepalives(harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEPALIVE_S", 0.01)

    async def story() -> None:
        stream = Stream(EventHub("one"), harness)
        await stream.until(lambda: b"".join(stream.parts).count(b": keepalive\n\n") >= 2)
        await stream.leave()

    tell(story)


def test_streams_end_at_shutdown_and_new_ones_are_refused(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        await asyncio.to_thread(hub.close)
        await asyncio.wait_for(stream.task, 60)
        assert json.loads(stream.told[-1]["data"]) == {"reason": "stopping"}
        late = Stream(hub, harness)
        await asyncio.wait_for(late.task, 60)
        assert late.status == 503

    tell(story)


class ScriptedListener:
    """A change listener that is triggered by the test."""

    def __init__(self) -> None:
        self.changed: queue.Queue[bool] = queue.Queue()

    def changes(self) -> Iterator[None]:
        while self.changed.get():
            yield

    def close(self) -> None:
        self.changed.put(False)


def test_writes_of_other_processes_are_reported_at_a_limited_rate(
    harness: OperationsHarness,
) -> None:
    listeners: list[ScriptedListener] = []

    def new_listener() -> ScriptedListener:
        listeners.append(ScriptedListener())
        return listeners[-1]

    async def story() -> None:
        hub = EventHub("one")
        hub.watch_store(harness.context.store, new_listener)
        assert listeners == []
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        listeners[0].changed.put(True)
        await stream.until(lambda: len(stream.told) == 2)
        assert (stream.told[1]["event"], "id" in stream.told[1]) == ("changed", False)
        for _ in range(50):
            listeners[0].changed.put(True)
        await stream.until(lambda: len(stream.told) == 3)
        hub.notify(fact(1))
        await stream.until(lambda: stream.told[-1]["event"] == "run-freed")
        assert len(stream.told) <= 5
        second = Stream(hub, harness)
        await second.until(lambda: len(second.told) == 1)
        await stream.leave()
        assert len(listeners) == 1
        await second.leave()
        third = Stream(hub, harness)
        await third.until(lambda: len(third.told) == 1)
        assert len(listeners) == 2
        await third.leave()

    tell(story)


def test_a_private_store_has_no_change_listener(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        hub.watch_store(harness.context.store, lambda: None)
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        await stream.leave()

    tell(story)


def test_the_number_of_streams_is_limited(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        listeners = [
            hub.subscribe("default", frozenset(), "", caller=str(number // MAX_STREAMS_PER_CALLER))[0]
            for number in range(MAX_STREAMS)
        ]
        refused = Stream(hub, harness)
        await asyncio.wait_for(refused.task, 60)
        assert refused.status == 503
        hub.unsubscribe(listeners[0])
        stream = Stream(hub, harness)
        await stream.until(lambda: len(stream.told) == 1)
        await stream.leave()

    tell(story)


def open_stream(hub: EventHub, harness: OperationsHarness, **headers: str) -> Stream:
    """A stream that authenticates as the server does."""
    return Stream(hub, harness, authenticate=authenticate_by_key_or_session, **headers)


def test_a_stream_sends_nothing_after_its_key_is_revoked(harness: OperationsHarness) -> None:
    headers = bearer(create_key(harness, "watcher", role="viewer"))

    async def story() -> None:
        hub = EventHub("one")
        stream = open_stream(hub, harness, **headers)
        await stream.until(lambda: len(stream.told) == 1)
        hub.notify(fact(1))
        await stream.until(lambda: len(stream.told) == 2)
        harness.ask("key revoke", key="watcher")
        hub.notify(fact(2))
        await asyncio.wait_for(stream.task, 60)
        assert [row["event"] for row in stream.told] == ["hello", "run-freed", "bye"]
        assert json.loads(stream.told[-1]["data"]) == {"reason": "unauthorized"}

    tell(story)


def test_an_idle_stream_ends_when_its_key_expires(
    harness: OperationsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHECK_CALLER_S", 0.01)
    headers = bearer(create_key(harness, "short", role="viewer", expires_in="1h"))

    async def story() -> None:
        stream = open_stream(EventHub("one"), harness, **headers)
        await stream.until(lambda: len(stream.told) == 1)
        harness.sleep(hours=2)
        await asyncio.wait_for(stream.task, 60)
        assert json.loads(stream.told[-1]["data"]) == {"reason": "unauthorized"}

    tell(story)


def test_logging_out_ends_the_cookie_and_the_streams_of_other_tabs(harness: OperationsHarness) -> None:
    token = create_key(harness, "ada", role="viewer")
    with client_for(harness, caller=None) as browser:
        link = browser.request("POST", "/session/links", headers=bearer(token)).data["link"]
        cookie = browser.request("GET", link).headers["set-cookie"].split(";")[0]
        csrf = browser.request("GET", "/session", headers={"cookie": cookie}).data["csrf"]

        async def story() -> None:
            hub = EventHub("one")
            stream = open_stream(hub, harness, cookie=cookie)
            await stream.until(lambda: len(stream.told) == 1)
            leaving = {"cookie": cookie, "timewright-csrf": csrf}
            gone = await asyncio.to_thread(browser.request, "DELETE", "/session", headers=leaving)
            assert gone.status == 204
            hub.notify(fact(1))
            await asyncio.wait_for(stream.task, 60)
            assert [row["event"] for row in stream.told] == ["hello", "bye"]

        tell(story)
        assert browser.request("GET", "/session", headers={"cookie": cookie}).status == 401


def test_one_caller_cannot_take_all_streams(harness: OperationsHarness) -> None:
    async def story() -> None:
        hub = EventHub("one")
        many = [Stream(hub, harness) for _ in range(MAX_STREAMS_PER_CALLER)]
        for stream in many:
            await stream.until(lambda stream=stream: len(stream.told) == 1)  # type: ignore[misc]
        refused = Stream(hub, harness)
        await asyncio.wait_for(refused.task, 60)
        assert refused.status == 429
        other = Stream(hub, harness, authenticate=lambda _: replace(ADMIN, actor="grace"))
        await other.until(lambda: len(other.told) == 1)
        for stream in (*many, other):
            await stream.leave()

    tell(story)
