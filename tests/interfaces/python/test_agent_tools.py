"""Tools for agents in the same process: the definitions, and the same checks as over MCP."""

from __future__ import annotations

import json

import pytest

from timewright import Scheduler
from timewright.errors import InvalidInput
from timewright.interfaces.python.agent_tools import AgentTools


@pytest.fixture
def tools() -> AgentTools:
    return Scheduler(":memory:").tools(agent="helper")


def test_each_format_has_the_same_tools_in_the_same_order() -> None:
    app = Scheduler(":memory:")
    openai = [one["function"] for one in app.tools(agent="a", format="openai")]
    anthropic = list(app.tools(agent="a", format="anthropic"))
    plain = list(app.tools(agent="a", format="json"))
    assert [one["name"] for one in openai] == [one["name"] for one in anthropic] == [p["name"] for p in plain]
    assert openai[1]["parameters"] == anthropic[1]["input_schema"]
    assert len(openai) <= 15


def test_a_tool_runs_as_its_agent(tools: AgentTools) -> None:
    made = tools.call("schedule_create", '{"name": "a", "every": "1h", "note": "hello"}')
    schedule = json.loads(made.splitlines()[0])["schedule"]
    assert (schedule["created_by"], schedule["origin"]) == ("helper", "agent")


def test_a_destructive_tool_needs_its_confirmation(tools: AgentTools) -> None:
    tools.call("schedule_create", {"name": "a", "every": "1h", "note": "hello"})
    assert "needs a confirmation" in tools.call("schedule_archive", {"schedule": "a"})
    preview = tools.call("schedule_archive", {"schedule": "a", "dry_run": True})
    token = preview.partition("confirm: ")[2].split()[0]
    assert '"archived"' in tools.call("schedule_archive", {"schedule": "a", "confirm": token})


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("schedule_create", "{", "not a JSON object"),
        ("schedule_create", "[]", "not a JSON object"),
        ("schedule_create", {"name": "a", "evry": "1h"}, "did you mean"),
        ("schedule_delete", {"schedule": "a"}, "toolset"),
        ("no_such_tool", {}, "unknown tool"),
    ],
)
def test_a_wrong_call_is_answered_with_what_to_do(
    tools: AgentTools, name: str, arguments: str, says: str
) -> None:
    assert says in tools.call(name, arguments)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInput, match="format"):
        Scheduler(":memory:").tools(agent="a", format="yaml")  # type: ignore[arg-type]
