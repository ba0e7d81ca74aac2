"""The whole list at the agents' door: the same answers and refusals as when an operation is asked itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult
from msgspec.structs import replace

from tests.operations.house import House, furnished
from timewright.doors.mcp import make_server
from timewright.doors.mcp.tools import SHORT, is_destructive, is_list, tool_name
from timewright.errors import TimewrightError
from timewright.operations import Context, Operation, operations
from timewright.operations.callers import ROLES

EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]
EVERY = [pytest.param(one, id=one.name) for one in operations]


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def told_word(rehearsed: CallToolResult) -> str:
    """The word that a rehearsal gave for the confirmation."""
    text = rehearsed.content[-1].text  # type: ignore[union-attr]
    return str(text).partition("confirm: ")[2].split()[0]


def call(context: Context, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """One call by the official client; what must be confirmed is looked at first."""

    async def calling() -> CallToolResult:
        async with Client(make_server(lambda _: context)) as client:
            operation = operations[tool.replace("_", " ")]
            asked = dict(arguments)
            if is_destructive(operation) and not asked.get("dry_run"):
                rehearsed = await client.call_tool(tool, {**asked, "dry_run": True})
                if rehearsed.is_error:
                    return rehearsed
                asked["confirm"] = told_word(rehearsed)
            return await client.call_tool(tool, asked)

    return asyncio.run(calling())


def expected(one: Operation[Any], example: Mapping[str, Any]) -> dict[str, Any]:
    short = {"limit": SHORT} if is_list(one) else {}
    context = furnished().context
    if is_destructive(one):
        one(context, {**example, "dry_run": True})
    return one(context, {**short, **example})


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = call(house.context, tool_name(one), example)
    assert not said.is_error
    assert said.structured_content == as_json(expected(one, example))
    assert json.loads(said.content[0].text) == said.structured_content  # type: ignore[union-attr]


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_refusal_is_that_of_the_operation(
    house: House, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = call(house.elsewhere().context, tool_name(one), example)
    refusal = refusal_of(one, example)
    assert said.is_error is (refusal is not None)
    if refusal is not None:
        assert said.structured_content == {"error": as_json(refusal.problem())}
        assert refusal.message in said.content[0].text  # type: ignore[union-attr]


def refusal_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """What is refused to someone of another namespace."""
    try:
        one(furnished().elsewhere().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("one", EVERY)
def test_a_field_that_nobody_knows_is_refused_with_the_nearest_one(house: House, one: Operation[Any]) -> None:
    said = call(house.context, tool_name(one), {**one.examples[0], "dry_rum": True})
    assert said.is_error
    assert said.structured_content is not None
    assert said.structured_content["error"]["code"] == "unknown_field"


def listed(context: Context) -> dict[str, Any]:
    async def listing() -> dict[str, Any]:
        async with Client(make_server(lambda _: context)) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    return asyncio.run(listing())


def test_every_operation_is_a_tool_that_says_what_it_does(house: House) -> None:
    tools = listed(house.context)
    assert set(tools) == {tool_name(one) for one in operations}
    for one in operations:
        tool = tools[tool_name(one)]
        assert tool.description.startswith(one.summary)
        assert tool.annotations.read_only_hint is one.reads_only
        assert tool.annotations.destructive_hint is is_destructive(one)


@pytest.mark.parametrize("role", ROLES)
def test_a_caller_is_shown_the_tools_of_its_scopes_and_no_others(house: House, role: Any) -> None:
    caller = replace(house.context.caller, scopes=ROLES[role])
    tools = listed(replace(house.context, caller=caller))
    assert set(tools) == {tool_name(one) for one in operations if one.scope in ROLES[role]}


def test_whoever_only_reads_cannot_write_and_is_told_what_it_would_take(house: House) -> None:
    caller = replace(house.context.caller, scopes=ROLES["viewer"])
    before = house.ask("schedule get", schedule="nightly-report")
    said = call(replace(house.context, caller=caller), "schedule_pause", {"schedule": "nightly-report"})
    assert said.is_error
    assert "needs the scope write" in said.content[0].text  # type: ignore[union-attr]
    assert house.ask("schedule get", schedule="nightly-report") == before


def test_a_short_list_is_given_unless_more_is_asked_for(house: House) -> None:
    tool = listed(house.context)["run_list"]
    assert tool.input_schema["properties"]["limit"]["default"] == SHORT
    for number in range(SHORT):
        house.ask("queue add", queue="long", payload=number)
    few = call(house.context, "run_list", {}).structured_content
    many = call(house.context, "run_list", {"limit": 50}).structured_content
    assert few is not None
    assert many is not None
    assert len(few["runs"]) == SHORT < len(many["runs"])
    assert few["cursor"]
