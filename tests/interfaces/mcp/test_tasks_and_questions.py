"""Runs as MCP tasks, and questions to the person at the client, with the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.operations.harness import OperationsHarness
from tests.targets.kit import wait_until
from timewright import Context, Scheduler
from timewright.core.alerts.channels import DASHBOARD_URL
from timewright.interfaces.mcp.server import make_server
from timewright.interfaces.mcp.tasks import TASKS_EXTENSION
from timewright.operations import OperationContext

TASKS: dict[str, dict[str, Any]] = {TASKS_EXTENSION: {}}


def harness() -> OperationsHarness:
    made = OperationsHarness()
    made.ask("schedule create", name="shop", every="1h", note="look")
    return made


def archive(context: OperationContext, answer: types.ElicitResult | None, mode: str) -> tuple[Any, list[str]]:
    """Archive a schedule with a client whose person answers this; returns the result and the questions."""
    asked: list[str] = []

    async def ask(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        assert answer is not None
        return answer

    async def call() -> Any:
        server = make_server(lambda _: context)
        handler: Any = ask if answer is not None else None
        async with Client(server, elicitation_callback=handler, mode=mode) as client:
            return await client.call_tool("schedule_archive", {"schedule": "shop", "reason": "closed"})

    return asyncio.run(call()), asked


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_can_ask_its_person_needs_no_token(mode: str) -> None:
    home = harness()
    yes = types.ElicitResult(action="accept", content={"confirm": True})
    result, asked = archive(home.context, yes, mode)
    assert not result.is_error, result.content
    assert result.structured_content["progress"]["state"] == "archived"
    assert len(asked) == 1
    assert "schedule_archive cannot be undone" in asked[0]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    "answer",
    [
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="accept", content={"confirm": False}),
        types.ElicitResult(action="accept", content={}),
    ],
)
def test_nothing_happens_if_the_person_does_not_say_yes(answer: types.ElicitResult, mode: str) -> None:
    home = harness()
    result, _ = archive(home.context, answer, mode)
    assert result.is_error
    assert "did not confirm" in result.content[0].text
    assert home.ask("schedule get", schedule="shop")["progress"]["state"] == "active"


def test_a_client_that_cannot_ask_is_told_to_use_a_dry_run() -> None:
    home = harness()
    result, _ = archive(home.context, None, "auto")
    assert result.is_error
    assert "needs a confirmation" in result.content[0].text


def answer_question(home: OperationsHarness, **more: Any) -> Any:
    """Repeat a call that asked its person, as a client of the newest version does."""
    server = make_server(lambda _: home.context)
    entry = server.get_request_handler("tools/call")
    assert entry is not None
    fields = {"name": "schedule_archive", "arguments": {"schedule": "shop"}, **more}
    request = fake_request(types.ClientCapabilities(elicitation=types.ElicitationCapability()))

    async def answer() -> Any:
        return await entry.handler(request, entry.params_type.model_validate(fields, by_name=True))

    return asyncio.run(answer())


def test_an_answer_with_a_state_of_another_server_is_a_protocol_error() -> None:
    home = harness()
    yes = types.ElicitResult(action="accept", content={"confirm": True})
    with pytest.raises(MCPError, match="is unknown") as refused:
        answer_question(home, request_state="0123456789abcdef", input_responses={"confirm": yes})
    assert refused.value.error.code == types.INVALID_PARAMS
    assert home.ask("schedule get", schedule="shop")["progress"]["state"] == "active"


def test_a_call_that_is_repeated_without_the_answer_is_asked_again() -> None:
    home = harness()
    first = answer_question(home)
    again = answer_question(home, request_state=first.request_state, input_responses={})
    assert list(again.input_requests) == ["confirm"]
    assert home.ask("schedule get", schedule="shop")["progress"]["state"] == "active"


@pytest.fixture
def app(tmp_path: Path) -> Any:
    app = Scheduler(tmp_path / "app.db")

    @app.schedule(manual=True)
    def work(ctx: Context) -> str:
        ctx.cancelled.wait((ctx.payload or {}).get("seconds", 0))
        return "done"

    @app.schedule(manual=True)
    def broken() -> None:
        raise OSError("no disk")

    wait: dict[str, Any] = {"answer": {"to": "editors", "form": {"send": "boolean"}}}
    steps = [{"name": name, "description": f"Send {name}?", "wait": wait} for name in ("one", "other")]
    app.call("workflow put", name="letters", steps=steps)
    app._context().store.write(lambda tx: tx.put_meta(DASHBOARD_URL, "https://tw.example.com/"))
    with app:
        yield app


def perform(
    app: Scheduler, method: str, fields: dict[str, Any], *, declares: bool, opens_pages: bool = False
) -> Any:
    """Perform a request of a client of the newest version."""
    server = make_server(lambda _: app._context(), tools="all")
    entry = server.get_request_handler(method)
    assert entry is not None
    params = entry.params_type.model_validate(fields, by_name=True)

    url = types.UrlElicitationCapability() if opens_pages else None
    asking = types.ElicitationCapability(form=types.FormElicitationCapability(), url=url)
    request = fake_request(
        types.ClientCapabilities(extensions=TASKS if declares else None, elicitation=asking)
    )

    async def answer() -> Any:
        return await entry.handler(request, params)

    return asyncio.run(answer())


def ask_for(app: Scheduler, method: str, task_id: str, *, declares: bool = True) -> Any:
    return perform(app, method, {"task_id": task_id}, declares=declares)


def call_tool(app: Scheduler, name: str, arguments: dict[str, Any], *, declares: bool = True) -> Any:
    return perform(app, "tools/call", {"name": name, "arguments": arguments}, declares=declares)


def fake_request(declared: types.ClientCapabilities) -> Any:
    class Request:
        protocol_version = "2026-07-28"
        request = None
        meta = None

        class session:  # noqa: N801 - an attribute of the request
            client_capabilities = declared

    return Request()


def ended(app: Scheduler, task: dict[str, Any]) -> Any:
    app.runs.wait(task["taskId"])
    return ask_for(app, "tasks/get", task["taskId"])


def test_a_run_is_a_task_with_its_id(app: Scheduler) -> None:
    task = call_tool(app, "schedule_run", {"schedule": "work"})
    assert task["resultType"] == "task"
    assert app.runs.get(task["taskId"]).run.schedule == "work"
    found = ended(app, task)
    assert (found["status"], found["result"]["isError"]) == ("completed", False)
    assert found["result"]["structuredContent"]["run"]["state"] == "succeeded"


def test_a_task_of_a_failed_run_has_an_error_as_its_result(app: Scheduler) -> None:
    found = ended(app, call_tool(app, "schedule_run", {"schedule": "broken"}))
    assert (found["status"], found["result"]["isError"]) == ("completed", True)
    assert "no disk" in found["result"]["content"][0]["text"]


def test_a_task_can_be_cancelled(app: Scheduler) -> None:
    task = call_tool(app, "schedule_run", {"schedule": "work", "payload": {"seconds": 60}})
    assert ask_for(app, "tasks/get", task["taskId"])["status"] == "working"
    assert ask_for(app, "tasks/cancel", task["taskId"]) == {}
    assert ended(app, task)["status"] == "cancelled"
    assert ask_for(app, "tasks/cancel", task["taskId"]) == {}, "a second time changes nothing"


def test_a_client_without_tasks_gets_the_run_and_may_not_ask_for_tasks(app: Scheduler) -> None:
    answer = call_tool(app, "schedule_run", {"schedule": "work"}, declares=False)
    assert answer.structured_content["run"]["schedule"] == "work"
    with pytest.raises(MCPError, match="tasks need the client extension"):
        ask_for(app, "tasks/get", answer.structured_content["run"]["id"], declares=False)


def test_an_unknown_task_is_refused(app: Scheduler) -> None:
    with pytest.raises(MCPError, match="no run"):
        ask_for(app, "tasks/get", "run_" + "0" * 26)


def test_a_run_of_tomorrow_is_not_a_task(app: Scheduler) -> None:
    answer = call_tool(app, "schedule_run", {"schedule": "work", "at": "2099-01-01T00:00:00Z"})
    assert answer.structured_content["run"]["state"] == "ready"


def asking_task(app: Scheduler) -> tuple[str, list[Any]]:
    """Start a workflow that asks twice; return its task and its questions."""
    task = str(call_tool(app, "workflow_run", {"workflow": "letters"})["taskId"])
    wait_until(lambda: len(app.approvals.list().answers) == 2)
    return task, list(app.approvals.list().answers)


def see_task(app: Scheduler, task: str, *, opens_pages: bool = True) -> Any:
    return perform(app, "tasks/get", {"task_id": task}, declares=True, opens_pages=opens_pages)


def test_a_task_whose_workflow_asks_a_person_leads_to_the_pages_of_its_questions(app: Scheduler) -> None:
    task, (first, second) = asking_task(app)
    seen = see_task(app, task)
    assert (seen["status"], seen["statusMessage"]) == (
        "input_required",
        "waits for a person: Send one?; Send other?",
    )
    assert seen["inputRequests"][first.run] == {
        "method": "elicitation/create",
        "params": {
            "mode": "url",
            "message": "Send one?",
            "url": f"https://tw.example.com/runs/{first.run}",
        },
    }
    app.runs.answer(run=first.run, answer={"send": True})
    assert list(see_task(app, task)["inputRequests"]) == [second.run]
    app.runs.answer(run=second.run, answer={"send": True})
    assert ended(app, {"taskId": task})["status"] == "completed"


def test_a_client_that_opens_no_pages_is_told_who_is_waited_for(app: Scheduler) -> None:
    task, _ = asking_task(app)
    seen = see_task(app, task, opens_pages=False)
    assert seen["status"] == "working"
    assert seen["statusMessage"].startswith("waits for a person: Send one?; Send other?; approval list")
    assert "inputRequests" not in seen


def test_a_client_cannot_answer_for_a_person(app: Scheduler) -> None:
    task, (first, _) = asking_task(app)
    given = {first.run: {"action": "accept", "content": {"send": True}}}
    fields = {"task_id": task, "inputResponses": given}
    assert perform(app, "tasks/update", fields, declares=True, opens_pages=True) == {}
    assert first.run in see_task(app, task)["inputRequests"]
