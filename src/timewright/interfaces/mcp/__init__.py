"""Operations as tools for agents: the MCP server over stdio and HTTP, and tools in the same process.

The server needs the extra `mcp`; it is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timewright.interfaces.mcp.server import ContextProvider, make_server
    from timewright.interfaces.mcp.stdio import serve_stdio

__all__ = ["ContextProvider", "make_server", "serve_stdio"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    module = "stdio" if name == "serve_stdio" else "server"
    return getattr(import_module(f"timewright.interfaces.mcp.{module}"), name)
