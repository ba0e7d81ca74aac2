"""MCP over HTTP: when an answer is a stream, and that any instance takes a person's answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as OfficialClient
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright import Context, Scheduler
from timewright.interfaces.mcp import client_channel, streamable_http
from timewright.interfaces.mcp.server import make_server
from timewright.interfaces.mcp.streamable_http import MAX_ANSWER_BYTES, McpOverHttp
from timewright.operations import OperationContext
from timewright.operations.access.callers import ALL_SCOPES, Caller

BOTH = "application/json, text/event-stream"
NEWEST, PREVIOUS = "2026-07-28", "2025-11-25"
CAN_ASK: dict[str, Any] = {"elicitation": {}}
YES = {"action": "accept", "content": {"confirm": True}}


class Exchange:
    """One HTTP request to an instance, and the messages of its response."""

    def __init__(
        self, instance: McpOverHttp, context: OperationContext, message: Any, headers: dict[str, str]
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._text = b""
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self._body: bytes | None = json.dumps(message).encode()
        sent = {"content-type": "application/json", "accept": BOTH, **headers}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"tools=all",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        self.done = asyncio.create_task(instance.answer(context, scope, self._receive, self._send))

    @property
    def messages(self) -> list[Any]:
        """What arrived: the events of a stream, or the one document."""
        text = self._text.decode()
        if not self.is_stream:
            return [json.loads(text)] if text else []
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def finish(self) -> Any:
        """Wait for the answer, and return its result."""
        await asyncio.wait_for(self.done, 20)
        return self.messages[-1]["result"]

    async def start(self) -> None:
        """Wait for the start of the response."""
        await asyncio.wait_for(self._arrived.wait(), 20)

    async def first(self) -> Any:
        """Wait for the first message of a stream."""
        while not self.messages:
            await asyncio.wait_for(self._arrived.wait(), 20)
            self._arrived.clear()
        return self.messages[0]

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self._text += message.get("body", b"")
        self._arrived.set()


class Client:
    """A client of one version that sends its requests to the instance that is named with each."""

    def __init__(self, context: OperationContext, version: str = PREVIOUS) -> None:
        self.context = context
        self.version = version
        self.session: dict[str, str] = {}

    async def connect(self, instance: McpOverHttp, capabilities: Any) -> None:
        info = {"name": "t", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": capabilities, "clientInfo": info}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        exchange = Exchange(instance, self.context, request, {})
        await exchange.finish()
        given = exchange.headers.get("mcp-session-id")
        self.session = {"mcp-session-id": given} if given else {}

    def call(self, instance: McpOverHttp, tool: str, arguments: Any, **more: Any) -> Exchange:
        meta: dict[str, Any] = {"progressToken": "p"} if more.pop("progress", False) else {}
        headers = {"mcp-protocol-version": self.version, **self.session, **more}
        if self.version == NEWEST:
            headers |= {"mcp-method": "tools/call", "mcp-name": tool}
            meta |= {"io.modelcontextprotocol/clientCapabilities": {}}
            meta |= {"io.modelcontextprotocol/protocolVersion": NEWEST}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return Exchange(instance, self.context, request, headers)

    def reply(self, instance: McpOverHttp, question: Any, result: Any) -> Exchange:
        message = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        return Exchange(instance, self.context, message, {"mcp-protocol-version": self.version})


def story(tell: Callable[[McpOverHttp, McpOverHttp], Awaitable[None]]) -> None:
    """Tell a story with two instances that know nothing of each other."""

    async def run() -> None:
        instances = McpOverHttp(), McpOverHttp()
        try:
            await tell(*instances)
        finally:
            for instance in instances:
                await instance.close()

    asyncio.run(run())


def home() -> OperationsHarness:
    made = OperationsHarness()
    made.ask("schedule create", name="shop", every="1h", note="look")
    return made


def as_caller(harness: OperationsHarness, name: str) -> OperationContext:
    return replace(harness.context, caller=Caller(actor=name, key=name, scopes=ALL_SCOPES))


def archive(client: Client, instance: McpOverHttp) -> Exchange:
    return client.call(instance, "schedule_archive", {"schedule": "shop", "reason": "closed"})


def state(harness: OperationsHarness) -> str:
    return str(harness.ask("schedule get", schedule="shop")["progress"]["state"])


@pytest.mark.parametrize("version", [PREVIOUS, NEWEST])
def test_an_answer_that_nothing_precedes_is_json(version: str) -> None:
    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        exchange = Client(home().context, version).call(one, "schedule_get", {"schedule": "shop"})
        assert (await exchange.finish())["structuredContent"]["schedule"]["name"] == "shop"
        assert exchange.headers["content-type"] == "application/json"

    story(tell)


def test_a_person_is_asked_and_answers_to_another_instance() -> None:
    harness = home()

    async def tell(one: McpOverHttp, other: McpOverHttp) -> None:
        client = Client(harness.context)
        await client.connect(one, CAN_ASK)
        call = archive(client, other)
        question = await call.first()
        assert question["method"] == "elicitation/create"
        assert "schedule_archive cannot be undone" in question["params"]["message"]
        assert state(harness) == "active"
        answered = client.reply(one, question, YES)
        await asyncio.wait_for(answered.done, 20)
        assert answered.status == 202
        assert not (await call.finish())["isError"]

    story(tell)
    assert state(harness) == "archived"


@pytest.mark.parametrize(
    "result",
    [
        {"action": "decline"},
        {"action": "accept", "content": {"confirm": False}},
        {"nonsense": 1},
        {"action": "accept", "content": {"confirm": True, "more": "x" * MAX_ANSWER_BYTES}},
    ],
)
def test_nothing_happens_over_http_if_the_person_does_not_say_yes(result: Any) -> None:
    harness = home()

    async def tell(one: McpOverHttp, other: McpOverHttp) -> None:
        client = Client(harness.context)
        await client.connect(one, CAN_ASK)
        call = archive(client, one)
        client.reply(other, await call.first(), result)
        assert "did not confirm" in (await call.finish())["content"][0]["text"]

    story(tell)
    assert state(harness) == "active"


def test_only_the_caller_that_was_asked_can_answer() -> None:
    harness = home()

    async def tell(one: McpOverHttp, other: McpOverHttp) -> None:
        client = Client(as_caller(harness, "ada"))
        await client.connect(one, CAN_ASK)
        call = archive(client, one)
        question = await call.first()
        for context, asked in ((as_caller(harness, "bob"), question), (client.context, {"id": "f" * 32})):
            refused = Client(context).reply(other, asked, YES)
            await asyncio.wait_for(refused.done, 20)
            assert refused.status == 404
        client.reply(other, question, {"action": "cancel"})
        await call.finish()

    story(tell)
    assert state(harness) == "active"


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}])
def test_a_client_that_has_no_forms_is_told_to_use_a_dry_run(capabilities: Any) -> None:
    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        client = Client(home().context)
        await client.connect(one, capabilities)
        assert not client.session
        call = archive(client, one)
        assert "needs a confirmation" in (await call.finish())["content"][0]["text"]
        assert not call.is_stream

    story(tell)


def test_an_instance_with_too_many_open_questions_asks_for_a_dry_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable_http, "MAX_OPEN_QUESTIONS", 1)
    harness = home()

    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        client = Client(harness.context)
        await client.connect(one, CAN_ASK)
        call = archive(client, one)
        question = await call.first()
        refused = await archive(client, one).finish()
        assert "needs a confirmation" in refused["content"][0]["text"]
        client.reply(one, question, YES)
        assert not (await call.finish())["isError"]

    story(tell)


def test_a_call_ends_when_its_person_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_channel, "MAX_ANSWER_S", 0.2)
    harness = home()

    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        client = Client(harness.context)
        await client.connect(one, CAN_ASK)
        assert "did not answer in time" in (await archive(client, one).finish())["content"][0]["text"]

    story(tell)
    assert state(harness) == "active"


def test_a_call_stops_waiting_for_its_person_when_the_client_is_gone() -> None:
    harness = home()

    async def tell(one: McpOverHttp, other: McpOverHttp) -> None:
        client = Client(harness.context)
        await client.connect(one, CAN_ASK)
        call = archive(client, one)
        question = await call.first()
        call.leave()
        await asyncio.wait_for(call.done, 20)
        await asyncio.wait_for(client.reply(other, question, YES).done, 20)

    story(tell)
    assert state(harness) == "active"


@pytest.fixture
def app(tmp_path: Path) -> Any:
    app = Scheduler(tmp_path / "app.db")

    @app.schedule(manual=True)
    def work(ctx: Context) -> str:
        ctx.progress(0.5, "half of it")
        ctx.cancelled.wait((ctx.payload or {}).get("seconds", 0))
        return "done"

    with app:
        yield app


def start(app: Scheduler, seconds: float) -> str:
    return str(app.call("schedule run", schedule="work", payload={"seconds": seconds}).run.id)


@pytest.mark.parametrize("version", [PREVIOUS, NEWEST])
def test_a_client_that_waits_for_a_run_sees_its_progress(app: Scheduler, version: str) -> None:
    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        client = Client(app._context(), version)
        call = client.call(one, "run_wait", {"run": start(app, 3)}, progress=True)
        assert (await call.finish())["structuredContent"]["run"]["state"] == "succeeded"
        told = [message["params"] for message in call.messages[:-1]]
        assert {one["progressToken"] for one in told} == {"p"}
        seen = [one["progress"] for one in told]
        assert seen == sorted(set(seen)), "every notification tells more than the last"
        assert (0.5, "half of it") in [(one["progress"], one["message"]) for one in told]
        assert (seen[-1], told[-1]["message"]) == (1.0, "succeeded")

    story(tell)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_on_a_connection_of_its_own_sees_progress_too(app: Scheduler, mode: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async def wait() -> None:
        server = make_server(lambda _: app._context(), tools="all")
        async with OfficialClient(server, mode=mode) as client:
            await client.call_tool("run_wait", {"run": start(app, 3)}, progress_callback=on_progress)

    asyncio.run(wait())
    assert {(0.5, "half of it"), (1.0, "succeeded")} <= set(seen)


def test_a_client_that_accepts_no_stream_gets_json_only(app: Scheduler) -> None:
    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        for version in (PREVIOUS, NEWEST):
            client = Client(app._context(), version)
            wait = {"run": start(app, 0)}
            call = client.call(one, "run_wait", wait, progress=True, accept="application/json")
            assert (await call.finish())["structuredContent"]["run"]["state"] == "succeeded"
            assert (call.is_stream, len(call.messages)) == (False, 1)

    story(tell)


def test_a_long_wait_is_kept_open_by_pings_and_ends_with_the_client(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_channel, "PING_INTERVAL_S", 0.1)

    async def tell(one: McpOverHttp, _: McpOverHttp) -> None:
        run = start(app, 60)
        call = Client(app._context()).call(one, "run_wait", {"run": run, "time_limit": "60s"})
        await call.start()
        assert call.is_stream
        call.leave()
        await asyncio.wait_for(call.done, 10)
        assert call.messages == []
        app.runs.cancel(run)

    story(tell)
