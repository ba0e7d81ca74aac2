"""The MCP server: every operation as a tool, over stdio and HTTP."""

from __future__ import annotations

from timewright.interfaces.mcp.server import ContextProvider, make_server
from timewright.interfaces.mcp.stdio import serve_stdio

__all__ = ["ContextProvider", "make_server", "serve_stdio"]
