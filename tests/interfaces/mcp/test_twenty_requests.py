"""Twenty requests in words, and the calls that a newcomer writes who sees only `tools/list`.

The calls were written before they were run, from the listing of the toolset `core` alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from mcp import Client

from tests.interfaces.mcp.mcp_client import confirmation_token
from tests.operations.harness import OperationsHarness, sample_harness
from timewright.interfaces.mcp.server import make_server
from timewright.interfaces.mcp.toolsets import OFTEN_FOUND
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.operations.registry import PARKED_RUN

MIN_RIGHT = 18
HEALTH = "GET https://example.com/health"

NEWCOMER = Caller(actor="newcomer", origin="agent", scopes=ROLES["editor"])

Answer = Mapping[str, Any]
Request = tuple[str, str, dict[str, Any], Callable[[Answer], bool]]


def first_trigger(answer: Answer) -> Any:
    return answer["schedule"]["trigger"]


def planned(answer: Answer) -> set[str]:
    return {one["planned_at"] for one in answer["next"]}


REQUESTS: list[Request] = [
    (
        "Remind me tomorrow at 9 to call the bank.",
        "reminder_set",
        {"text": "call the bank", "at": "2026-03-11T09:00Z"},
        lambda a: a["next_at"] == "2026-03-11T09:00:00Z",
    ),
    (
        "Remind me every two hours to stretch.",
        "reminder_set",
        {"text": "stretch", "every": "2h"},
        lambda a: a["next_at"] == "2026-03-10T14:00:00Z",
    ),
    (
        "In 20 minutes, remind me of the pizza.",
        "reminder_set",
        {"text": "pizza", "after": "20m"},
        lambda a: a["next_at"] == "2026-03-10T12:20:00Z",
    ),
    (
        "Call https://example.com/health every 5 minutes.",
        "schedule_create",
        {"name": "health-check", "every": "5m", "http": HEALTH},
        lambda a: first_trigger(a)["interval"] == "5m" and a["schedule"]["target"]["method"] == "GET",
    ),
    (
        "Send the report on weekdays at 9 in the morning, Berlin time.",
        "schedule_create",
        {"name": "report", "every": "weekdays at 9am Europe/Berlin", "call": "reports.send"},
        lambda a: first_trigger(a)["zone"] == "Europe/Berlin",
    ),
    (
        "On the first of every month at 03:30, post to https://example.com/close.",
        "schedule_create",
        {"name": "month-close", "cron": "30 3 1 * *", "http": "POST https://example.com/close"},
        lambda a: a["next"][0]["planned_at"] == "2026-04-01T03:30:00Z",
    ),
    (
        "Wish everybody a merry Christmas on Christmas morning at 8.",
        "schedule_create",
        {"name": "christmas", "at": "2026-12-25T08:00Z", "note": "Merry Christmas!"},
        lambda a: a["next"][0]["planned_at"] == "2026-12-25T08:00:00Z",
    ),
    ("What is scheduled?", "schedule_list", {}, lambda a: len(a["schedules"]) >= 5),
    (
        "Check the health every minute instead.",
        "schedule_update",
        {"schedule": "health-check", "every": "1m", "reason": "requested"},
        lambda a: first_trigger(a)["interval"] == "1m",
    ),
    (
        "Pause the health check until tomorrow at 8.",
        "schedule_pause",
        {"schedule": "health-check", "until": "tomorrow 8am", "reason": "maintenance"},
        lambda a: a["progress"]["paused_until"] == "2026-03-11T08:00:00Z",
    ),
    (
        "Which schedules are paused?",
        "schedule_list",
        {"state": "paused"},
        lambda a: "health-check" in [one["name"] for one in a["schedules"]],
    ),
    (
        "Go on with the health check.",
        "schedule_resume",
        {"schedule": "health-check"},
        lambda a: a["progress"]["state"] == "active",
    ),
    (
        "Run the report now, for yesterday.",
        "schedule_run",
        {"schedule": "report", "payload": {"day": "2026-03-09"}},
        lambda a: a["run"]["state"] == "ready",
    ),
    (
        "Run the report tonight at ten as well.",
        "schedule_run",
        {"schedule": "report", "at": "2026-03-10T22:00Z"},
        lambda a: a["run"]["fire_at"] == "2026-03-10T22:00:00Z",
    ),
    (
        "Why did the orders poll run, or not run, at noon?",
        "schedule_explain",
        {"schedule": "orders-poll", "at": "2026-03-10T12:00:00Z"},
        lambda a: bool(a["summary"]),
    ),
    (
        "When does the report run next?",
        "schedule_get",
        {"schedule": "report"},
        lambda a: "2026-03-11T08:00:00Z" in planned(a),
    ),
    (
        "What failed since March?",
        "run_list",
        {"state": "failed", "since": "2026-03-01T00:00:00Z"},
        lambda a: len(a["runs"]) >= 1,
    ),
    (
        f"Cancel the run {PARKED_RUN}.",
        "run_cancel",
        {"run": PARKED_RUN, "reason": "no longer needed"},
        lambda a: a["run"]["state"] == "cancelled",
    ),
    (
        "Delete the health check.",
        "schedule_archive",
        {"schedule": "health-check", "reason": "no longer needed"},
        lambda a: a["progress"]["state"] == "archived",
    ),
    (
        "Skip the next two reports.",
        "find_operation",
        {"query": "skip the next two occurrences of a schedule"},
        lambda a: a["operations"][0]["tool"] == "schedule_skip" and "count" in a["operations"][0]["fields"],
    ),
]


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[bool, Any, str]:
    """Call a tool as its description says: what cannot be undone first with dry_run."""
    listed = {one.name: one for one in (await client.list_tools()).tools}
    request = dict(arguments)
    if "First with dry_run" in str(listed[tool].description):
        preview = await client.call_tool(tool, {**request, "dry_run": True})
        if preview.is_error:
            return False, preview.structured_content, str(preview.content[0])
        request["confirm"] = confirmation_token(preview)
    said = await client.call_tool(tool, request)
    return not said.is_error, said.structured_content, getattr(said.content[0], "text", "")


def call(tool: str, arguments: dict[str, Any]) -> Any:
    """The answer of one call by the newcomer."""
    context = context_for(sample_harness().context, NEWCOMER)

    async def story() -> Any:
        async with Client(make_server(lambda _: context)) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(story())


def live(harness: OperationsHarness) -> list[tuple[str, str, dict[str, Any], bool, str]]:
    context = context_for(harness.context, NEWCOMER)

    async def story() -> list[tuple[str, str, dict[str, Any], bool, str]]:
        told = []
        async with Client(make_server(lambda _: context)) as client:
            for words, tool, arguments, is_right in REQUESTS:
                worked, answer, text = await ask(client, tool, arguments)
                try:
                    right = worked and is_right(answer)
                except (KeyError, IndexError, TypeError):
                    right = False
                told.append((words, tool, arguments, right, text))
        return told

    return asyncio.run(story())


def test_at_least_eighteen_of_twenty_requests_are_right_at_the_first_try(record_property: Any) -> None:
    told = live(sample_harness())
    wrong = [(*one[:3], one[4][:300]) for one in told if not one[3]]
    record_property("right", f"{len(told) - len(wrong)} of {len(told)}")
    assert len(told) == 20
    assert len(told) - len(wrong) >= MIN_RIGHT, wrong


def shown_names(tool: Any) -> set[str]:
    """The fields of a tool that its entry in `tools/list` names, in its schema or in its description."""
    more = re.sub(r" \([^)]*\)", "", str(tool.description).partition("Also accepts: ")[2])
    more = more.partition(".")[0]
    return {*tool.input_schema["properties"], *filter(None, more.split(", "))}


def test_every_field_of_the_twenty_calls_is_named_in_the_tool_list() -> None:
    context = context_for(sample_harness().context, NEWCOMER)

    async def listed() -> dict[str, set[str]]:
        async with Client(make_server(lambda _: context)) as client:
            return {one.name: shown_names(one) for one in (await client.list_tools()).tools}

    names = asyncio.run(listed())
    assert [one for one in REQUESTS if not set(one[2]) <= names[one[1]]] == []
    # Retries, ends and dependencies are asked for often, and do not fit into the schema.
    often = {"after", "max_attempts", "backoff", "time_limit", "end_at", "max_runs", "rrule", "tags"}
    assert often | {"shell", "catch_up"} <= names["schedule_create"]
    assert {"at", "call", "all of schedule_create"} <= names["schedule_update"]


def test_fields_named_only_in_a_description_are_accepted() -> None:
    context = context_for(sample_harness().context, NEWCOMER)
    more: dict[str, Any] = {"max_attempts": 3, "backoff": "1m", "time_limit": "5m", "max_runs": 4}
    more |= {"start_at": "tomorrow 8am", "end_at": "2026-12-31T23:00Z", "tags": ["sales"]}

    async def story() -> list[Any]:
        async with Client(make_server(lambda _: context)) as client:
            made = {"name": "first", "every": "1h", "note": "n", **more}
            after = {"name": "second", "after": "first", "note": "n"}
            rule = {"name": "third", "rrule": "FREQ=DAILY", "note": "n"}
            calls = [("schedule_create", one) for one in (made, after, rule)]
            calls.append(("schedule_update", {"schedule": "third", "at": "2026-12-25T08:00Z", **more}))
            return [await client.call_tool(*one) for one in calls]

    assert [one.content[0].text for one in asyncio.run(story()) if one.is_error] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("schedule_create", {"every": "1h", "until": "2027-06-30T12:00Z"}, "end_at"),
        ("schedule_create", {"every": "1h", "start_date": "tomorrow 8am"}, "start_at"),
    ],
)
def test_a_start_and_an_end_have_other_names_too(tool: str, arguments: dict[str, Any], found: str) -> None:
    answer = call(tool, {"name": "a", "note": "n", **arguments})
    assert answer.structured_content["schedule"][found] is not None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("schedule_get", {"name": "orders-poll"}),
        ("schedule_explain", {"schedule_id": "orders-poll", "last": True}),
        ("run_get", {"id": PARKED_RUN}),
        ("run_retry", {"run_id": PARKED_RUN}),
        ("run_list", {"status": "failed", "since": "24h"}),
        ("schedule_list", {"name": "orders"}),
        ("schedule_run", {"schedule": "orders-poll", "at": "22:00", "zone": "Europe/Berlin"}),
        ("reminder_set", {"message": "tea", "in": "20m"}),
        ("reminder_set", {"text": "tea", "every": "day at 9am", "timezone": "Europe/Berlin", "count": 5}),
        ("schedule_create", {"name": "a", "every": "1h", "call": "orders.poll", "args": {"day": 1}}),
        ("schedule_create", {"name": "a", "every": "1h", "http": HEALTH, "watch": "body"}),
        (
            "schedule_create",
            {"name": "a", "every": "1h", "note": "n", "start_at": "2026-04-01", "zone": "Europe/Berlin"},
        ),
    ],
)
def test_a_field_is_found_by_the_word_that_a_newcomer_writes(tool: str, arguments: dict[str, Any]) -> None:
    answer = call(tool, arguments)
    assert not answer.is_error, answer.content[0].text


def test_an_unknown_field_beside_the_one_that_it_means_is_refused() -> None:
    answer = call("schedule_get", {"schedule": "orders-poll", "name": "nightly-report"})
    assert answer.is_error
    assert "unknown field 'name'" in answer.content[0].text


@pytest.mark.parametrize(
    ("tool", "arguments", "remedy"),
    [
        ("schedule_pause", {"schedule": "orders-poll", "for": "2h"}, "until: in 2h"),
        ("schedule_run", {"schedule": "orders-poll", "after": "10m"}, "at: in 2h"),
        ("schedule_create", {"name": "a", "every": "1h", "note": "n", "times": 5}, "max_runs: 5"),
        ("schedule_create", {"name": "a", "every": "day", "at": "9:00", "note": "n"}, "every: day at 9am"),
    ],
)
def test_a_call_that_is_nearly_right_is_answered_with_what_to_write(
    tool: str, arguments: dict[str, Any], remedy: str
) -> None:
    answer = call(tool, arguments)
    assert answer.is_error
    assert f"try     {remedy}" in answer.content[0].text


def test_the_tools_that_are_often_used_have_the_fields_that_the_list_names() -> None:
    for name, fields in OFTEN_FOUND.items():
        assert set(fields) <= set(operations[name].request_type.__struct_fields__)
    context = context_for(sample_harness().context, NEWCOMER)

    async def listed() -> str:
        async with Client(make_server(lambda _: context)) as client:
            return str((await client.list_tools()).tools[0].description)

    assert "run_retry-failures(schedule, since)" in asyncio.run(listed())
    assert not call("run_retry_failures", {"schedule": "orders-poll", "since": "24h"}).is_error


def test_a_tool_that_is_not_permitted_is_named_with_the_scope_it_needs() -> None:
    answer = call("find_operation", {"query": "store a secret"})
    assert "secret_set needs the scope secret" in answer.content[-1].text


def test_the_tool_list_says_that_a_payload_replaces_arguments() -> None:
    context = context_for(sample_harness().context, NEWCOMER)

    async def listed() -> Any:
        async with Client(make_server(lambda _: context)) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            return tools["schedule_run"].input_schema["properties"]["payload"]["description"]

    assert asyncio.run(listed()).startswith("replaces arguments of the function")
