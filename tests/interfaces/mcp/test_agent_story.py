"""A session of an agent: reminders, quotas and queue work."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import Client

from tests.operations.harness import OperationsHarness
from timewright.interfaces.mcp.server import make_server
from timewright.operations.access.authentication import ROLES, Caller, context_for


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the answer of a tool, or its error under `error`."""
    answer: dict[str, Any] = (await client.call_tool(tool, arguments)).structured_content or {}
    return answer


def test_an_agent_works_within_its_quotas() -> None:
    harness = OperationsHarness()
    harness.ask("namespace create", name="default", schedules=2)
    harness.ask("queue add", queue="mail", payload={"to": "ada"})
    agent = Caller(actor="night-agent", origin="agent", scopes=ROLES["editor"], key="aaaaaaaaaaaa")
    context = context_for(harness.context, agent)

    async def day() -> None:
        async with Client(make_server(lambda _: context, tools="all")) as client:
            await reminders(client, harness)
            await queue(client, harness)

    asyncio.run(day())


async def reminders(client: Client, harness: OperationsHarness) -> None:
    made = await call(client, "reminder_set", text="water the plants", after="2h")
    assert made["name"] == "water-the-plants"
    listed = await call(client, "reminder_list")
    assert [one["text"] for one in listed["reminders"]] == ["water the plants"]
    assert (await call(client, "schedule_get", schedule=made["name"]))["schedule"]["origin"] == "agent"
    await call(client, "reminder_set", text="stretch", every="1h")
    refused = (await call(client, "reminder_set", text="one too many", every="3h"))["error"]
    assert (refused["code"], refused["field"]) == ("over_quota", "schedules")
    assert refused["fix"]
    assert len((await call(client, "reminder_list"))["reminders"]) == 2


async def queue(client: Client, harness: OperationsHarness) -> None:
    (lease,) = (await call(client, "queue_lease", queue="mail", holder="night-agent"))["leases"]
    assert lease["payload"] == {"to": "ada"}
    # The lease runs out while the agent is busy elsewhere, and another takes the work up.
    harness.bench.clock.advance(minutes=10)
    assert (await call(client, "queue_lease", queue="mail"))["leases"] == [], "it waits its backoff first"
    harness.bench.clock.advance(minutes=1)
    (again,) = (await call(client, "queue_lease", queue="mail", holder="day-agent"))["leases"]
    assert (again["run"], again["fence"]) == (lease["run"], lease["fence"] + 1)
    stale = await call(client, "queue_complete", run=lease["run"], fence=lease["fence"])
    assert stale["error"]["code"] == "stale"
    done = await call(client, "queue_complete", run=again["run"], fence=again["fence"], result={"sent": True})
    assert done["run"]["state"] == "succeeded"
    why = await call(client, "run_explain", run=lease["run"])
    assert [attempt["outcome"] for attempt in why["attempts"]] == ["lost", "succeeded"]
    assert any("attempt" in line for line in why["because"])
