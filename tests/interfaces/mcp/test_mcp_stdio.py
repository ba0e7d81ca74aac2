"""MCP over stdio: the official client, and invalid messages."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.interfaces.mcp.mcp_client import confirmation_token

COMMAND = [sys.executable, "-m", "timewright"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def timewright(*words: str) -> Any:
    said = subprocess.run([*COMMAND, *words, "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


@pytest.fixture
def store(here: Path) -> Path:
    timewright("schedule", "create", "hello", "--every", "1h", "--note", "hello")
    return here / "timewright.db"


def by_client(
    store: Path, *options: str, calls: list[tuple[str, dict[str, Any]]]
) -> tuple[set[str], list[Any]]:
    """Return the names of all tools and the answers to some calls."""

    async def asking() -> tuple[set[str], list[Any]]:
        server = StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], "mcp", "--store", str(store), *options],
            env={**os.environ},
        )
        async with Client(stdio_client(server)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(asking())


def test_mcp_without_write_is_read_only(store: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("schedule_get", {"schedule": "hello"}),
        ("schedule_pause", {"schedule": "hello"}),
    ]
    tools, (read, refused) = by_client(store, calls=calls)
    assert "schedule_get" in tools
    assert "schedule_pause" not in tools
    assert read.structured_content["schedule"] == timewright("schedule", "get", "hello")["schedule"]
    assert refused.is_error
    assert "--write" in refused.content[0].text


def test_writes_over_mcp_are_recorded_as_agent(store: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("schedule_create", {"name": "mine", "every": "2h", "note": "from an agent"}),
        ("schedule_pause", {"schedule": "hello", "reason": "too loud"}),
    ]
    tools, answers = by_client(store, "--write", calls=calls)
    assert not any(answer.is_error for answer in answers)
    assert timewright("schedule", "get", "mine")["schedule"]["origin"] == "agent"
    assert timewright("audit", "list")["entries"][0]["origin"] == "agent"
    assert not {"key_create", "secret_set"} & tools


def test_a_confirmation_outlives_the_server_that_gave_it(store: Path) -> None:
    request = {"schedule": "hello"}
    _, (preview,) = by_client(store, "--write", calls=[("schedule_archive", {**request, "dry_run": True})])
    confirmed = {**request, "confirm": confirmation_token(preview)}
    _, answers = by_client(store, "--write", calls=[("schedule_archive", confirmed)] * 2)
    assert [one.is_error for one in answers] == [False, True]
    assert "used already" in answers[1].content[0].text
    assert timewright("schedule", "get", "hello")["progress"]["state"] == "archived"


ODD_LINES = [
    "not json at all",
    "[]",
    "{}",
    '{"jsonrpc":"2.0","id":7,"method":"tools/call"}',
    '{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":5,"arguments":[]}}',
    '{"jsonrpc":"2.0","id":9,"method":"no/such/method","params":{}}',
    '{"jsonrpc":"1.0","id":10,"method":"tools/list"}',
    '{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{"cursor":{"a":[1]}}}',
    '{"jsonrpc":"2.0","id":11,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}',
    '{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"schedule_get","arguments":{"schedule":"\\u0000"}}}',
    "x" * 100_000,
    '{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"schedule_list","arguments":'
    + "[" * 500,
]


def test_invalid_messages_do_not_stop_the_server(store: Path) -> None:
    lines = [json.dumps(HELLO), '{"jsonrpc":"2.0","method":"notifications/initialized"}', *ODD_LINES]
    last = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "health", "arguments": {}}}
    given = "\n".join([*lines, json.dumps(last), ""])
    command = [*COMMAND, "mcp", "--tools", "all", "--store", str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(given)
        server.stdin.flush()
        answers: dict[Any, Any] = {}
        for line in server.stdout:
            answer = json.loads(line)
            answers[answer.get("id")] = answer
            if answer.get("id") == 99:
                break
        server.stdin.close()
        assert server.wait(60) == 0
    assert answers[99]["result"]["structuredContent"]["instances"] == 0
    assert "error" in answers[9]
    assert "error" in answers[11]


def test_mcp_without_a_store_suggests_how_to_create_one(here: Path) -> None:
    said = subprocess.run([*COMMAND, "mcp"], capture_output=True, text=True, check=False, input="")
    assert said.returncode == 0
    assert said.stdout == ""
    assert "timewright up creates one" in said.stderr
    assert "\n  rule " in said.stderr


def test_a_client_without_a_store_is_told_what_to_start_and_goes_on_when_it_is_there(here: Path) -> None:
    missing = here / "later.db"

    async def asking() -> list[Any]:
        server = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], "mcp", "--store", str(missing)]
        )
        async with Client(stdio_client(server)) as client:
            assert "schedule_list" in {tool.name for tool in (await client.list_tools()).tools}
            refused = await client.call_tool("schedule_list", {})
            timewright("schedule", "create", "a", "--every", "1h", "--note", "b", "--store", str(missing))
            return [refused, await client.call_tool("schedule_list", {})]

    refused, found = asyncio.run(asking())
    assert refused.is_error
    assert "timewright up" in refused.content[0].text
    assert [row["name"] for row in found.structured_content["schedules"]] == ["a"]
