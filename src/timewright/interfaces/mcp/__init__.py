"""Operations as tools for agents: the MCP server over stdio and HTTP, and tools in the same process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from timewright.errors import MissingExtra


def import_server(module: str) -> Any:
    """Import a module of the server, which needs the extra `mcp`; it is slow to import and rarely needed."""
    try:
        return import_module(f"timewright.interfaces.mcp.{module}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise MissingExtra(
            "the MCP server is not installed",
            field="mcp",
            rule="requires the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from missing
