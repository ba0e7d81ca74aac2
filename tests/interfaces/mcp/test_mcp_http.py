"""MCP over HTTP with the official client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interfaces.mcp.mcp_client import confirmation_token


class Running(NamedTuple):
    """A server and an API key."""

    url: str
    key: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "timewright", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("ready"):
                break
        where = json.loads((folder / "timewright.db.server").read_text())
        yield Running(where["url"], (folder / "timewright.db.admin").read_text().strip())
        process.terminate()
        assert process.wait(60) == 0, lines


def with_key(
    server: Running, key: str, calls: list[tuple[str, dict[str, Any]]]
) -> tuple[set[str], list[Any]]:
    async def asking() -> tuple[set[str], list[Any]]:
        headers = {"authorization": f"Bearer {key}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{server.url}/mcp?tools=all", http_client=http)) as client,
        ):
            tools = {tool.name for tool in (await client.list_tools()).tools}
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(asking())


def ask(server: Running, path: str, key: str = "") -> Any:
    request = urllib.request.Request(f"{server.url}{path}")
    request.add_header("authorization", f"Bearer {key or server.key}")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_mcp_over_http_returns_the_same_answers(server: Running) -> None:
    created = ("schedule_create", {"name": "served", "every": "1h", "note": "hello"})
    tools, (made, read) = with_key(server, server.key, [created, ("schedule_get", {"schedule": "served"})])
    assert {"schedule_create", "key_create"} <= tools
    assert not made.is_error
    same = ask(server, "/api/v1/schedules/served")
    assert read.structured_content["schedule"] == same["schedule"]
    assert same["schedule"]["origin"] == "agent"


def test_a_client_on_stdio_is_an_agent_also_to_a_server(server: Running) -> None:
    async def asking() -> tuple[Any, list[Any]]:
        used = {"TIMEWRIGHT_SERVER": server.url, "TIMEWRIGHT_KEY": server.key}
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "timewright", "mcp", "--write"], env={**os.environ, **used}
        )
        async with Client(stdio_client(command)) as client:
            made = await client.call_tool("schedule_create", {"name": "away", "every": "2h", "note": "x"})
            preview = await client.call_tool("schedule_archive", {"schedule": "away", "dry_run": True})
            confirmed = {"schedule": "away", "confirm": confirmation_token(preview)}
            return made, [await client.call_tool("schedule_archive", confirmed) for _ in range(2)]

    made, archived = asyncio.run(asking())
    assert made.structured_content["schedule"]["origin"] == "agent"
    assert [one.is_error for one in archived] == [False, True]
    assert "used already" in archived[1].content[0].text
    assert {one["origin"] for one in ask(server, "/api/v1/audit?schedule=away")["entries"]} == {"agent"}


def test_the_scopes_of_a_key_apply_to_mcp(server: Running) -> None:
    asked = {"key": "looker", "role": "viewer"}
    _, (made,) = with_key(server, server.key, [("key_create", asked)])
    tools, (refused,) = with_key(
        server, made.structured_content["token"], [("schedule_pause", {"schedule": "served"})]
    )
    assert "schedule_list" in tools
    assert "schedule_pause" not in tools
    assert refused.is_error


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer tw_nobody_nothing"},
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"host": "elsewhere.example"},
    ],
)
def test_mcp_over_http_needs_a_key_and_the_same_origin(server: Running, headers: dict[str, str]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    request = urllib.request.Request(f"{server.url}/mcp?tools=all", data=body, method="POST")
    request.add_header("content-type", "application/json")
    if set(headers) - {"authorization"}:
        request.add_header("authorization", f"Bearer {server.key}")
    for name, value in headers.items():
        request.add_header(name, value)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    refused.value.close()
    assert refused.value.code in (401, 403, 421)


def test_mcp_is_imported_on_demand(here: Path) -> None:
    modules = "timewright.interfaces.http.app, timewright.interfaces.cli"
    code = f"import sys, {modules}; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
