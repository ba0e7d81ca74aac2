"""The door for agents: every operation as a tool, over stdio and HTTP; it only reads unless told to write."""

from __future__ import annotations

from timewright.doors.mcp.server import Opening, make_server
from timewright.doors.mcp.stdio import serve_stdio

__all__ = ["Opening", "make_server", "serve_stdio"]
