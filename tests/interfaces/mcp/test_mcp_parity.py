"""Every operation over MCP returns the same answers and errors as a direct call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import Client
from msgspec.structs import replace

from tests.interfaces.mcp.mcp_client import call
from tests.operations.harness import OperationsHarness, sample_harness
from timewright.errors import TimewrightError
from timewright.interfaces.mcp.server import make_server
from timewright.interfaces.mcp.tools import DEFAULT_PAGE_ROWS, is_destructive, is_list, tool_name
from timewright.interfaces.mcp.toolsets import FIND_OPERATION
from timewright.operations import Operation, OperationContext, operations
from timewright.operations.access.callers import ROLES

EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]
# What an agent is always refused is not listed.
PERSONS = {
    "approval approve",
    "approval reject",
    "run answer",
    "run link",
    "workflow approve",
    "workflow reject",
}
EVERY = [pytest.param(one, id=one.name) for one in operations]


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def expected(one: Operation[Any], example: Mapping[str, Any]) -> dict[str, Any]:
    short = {"limit": DEFAULT_PAGE_ROWS} if is_list(one) else {}
    context = sample_harness().context
    if is_destructive(one):
        one(context, {**example, "dry_run": True})
    return one(context, {**short, **example})


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_example_gives_the_answer_of_the_operation(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = call(harness.context, tool_name(one), example)
    assert not said.is_error
    assert said.structured_content == as_json(expected(one, example))
    assert json.loads(said.content[0].text) == said.structured_content  # type: ignore[union-attr]


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_error_equals_that_of_the_operation(
    harness: OperationsHarness, one: Operation[Any], example: Mapping[str, Any]
) -> None:
    said = call(harness.in_namespace().context, tool_name(one), example)
    refusal = error_of(one, example)
    assert said.is_error is (refusal is not None)
    if refusal is not None:
        assert said.structured_content == {"error": as_json(refusal.problem())}
        assert refusal.message in said.content[0].text  # type: ignore[union-attr]


def error_of(one: Operation[Any], example: Mapping[str, Any]) -> TimewrightError | None:
    """Return the error that a caller of another namespace gets."""
    try:
        one(sample_harness().in_namespace().context, example)
    except TimewrightError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("one", EVERY)
def test_an_unknown_field_gets_a_suggestion(harness: OperationsHarness, one: Operation[Any]) -> None:
    said = call(harness.context, tool_name(one), {**one.examples[0], "dry_rum": True})
    assert said.is_error
    assert said.structured_content is not None
    assert said.structured_content["error"]["code"] == "unknown_field"


def listed(context: OperationContext) -> dict[str, Any]:
    async def listing() -> dict[str, Any]:
        async with Client(make_server(lambda _: context, tools="all")) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    return asyncio.run(listing())


def test_every_operation_is_a_tool_with_a_description(harness: OperationsHarness) -> None:
    tools = listed(harness.context)
    assert set(tools) == {FIND_OPERATION, *(tool_name(one) for one in operations if one.name not in PERSONS)}
    for one in (one for one in operations if one.name not in PERSONS):
        tool = tools[tool_name(one)]
        assert tool.description.startswith(one.summary)
        assert tool.annotations.read_only_hint is one.read_only
        assert tool.annotations.destructive_hint is is_destructive(one)


@pytest.mark.parametrize("role", ROLES)
def test_a_caller_sees_only_the_tools_of_its_scopes(harness: OperationsHarness, role: Any) -> None:
    caller = replace(harness.context.caller, scopes=ROLES[role])
    tools = listed(replace(harness.context, caller=caller))
    seen = [one for one in operations if one.scope in ROLES[role] and one.name not in PERSONS]
    assert set(tools) == {FIND_OPERATION, *(tool_name(one) for one in seen)}


def test_a_read_only_caller_gets_the_missing_scope(harness: OperationsHarness) -> None:
    caller = replace(harness.context.caller, scopes=ROLES["viewer"])
    before = harness.ask("schedule get", schedule="nightly-report")
    said = call(replace(harness.context, caller=caller), "schedule_pause", {"schedule": "nightly-report"})
    assert said.is_error
    assert "needs the scope write" in said.content[0].text  # type: ignore[union-attr]
    assert harness.ask("schedule get", schedule="nightly-report") == before


def test_lists_are_short_by_default(harness: OperationsHarness) -> None:
    tool = listed(harness.context)["run_list"]
    assert tool.input_schema["properties"]["limit"]["default"] == DEFAULT_PAGE_ROWS
    for number in range(DEFAULT_PAGE_ROWS):
        harness.ask("queue add", queue="long", payload=number)
    few = call(harness.context, "run_list", {}).structured_content
    many = call(harness.context, "run_list", {"limit": 50}).structured_content
    assert few is not None
    assert many is not None
    assert len(few["runs"]) == DEFAULT_PAGE_ROWS < len(many["runs"])
    assert few["cursor"]
