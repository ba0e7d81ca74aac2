"""Calls one tool through the official MCP client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from timewright.interfaces.mcp.server import make_server
from timewright.interfaces.mcp.tools import is_destructive
from timewright.operations import OperationContext, operations


def confirmation_token(preview: CallToolResult) -> str:
    """Return the confirmation token of a dry run."""
    text = preview.content[-1].text  # type: ignore[union-attr]
    return str(text).partition("confirm: ")[2].split()[0]


def call(context: OperationContext, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """Call a tool; a destructive one is confirmed with a dry run."""

    async def run() -> CallToolResult:
        async with Client(make_server(lambda _: context, tools="all")) as client:
            operation = operations[tool.replace("_", " ")]
            request = dict(arguments)
            if is_destructive(operation) and not request.get("dry_run"):
                preview = await client.call_tool(tool, {**request, "dry_run": True})
                if preview.is_error:
                    return preview
                request["confirm"] = confirmation_token(preview)
            return await client.call_tool(tool, request)

    return asyncio.run(run())
