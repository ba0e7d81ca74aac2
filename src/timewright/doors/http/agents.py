"""The agents' door behind the same gate: `/mcp` asks who is there as every other path does."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from timewright.doors.http.probes import acting_in
from timewright.doors.http.visits import Receive, Scope, Send, Visit
from timewright.errors import MissingExtra
from timewright.operations import Context

PATH = ("mcp",)


class Answering(Protocol):
    """Answers agents in a context that has been decided."""

    async def answer(self, context: Context, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        ...


class Agents:
    """Makes the agents' door when the first of them comes: it is large, and most servers never see one."""

    def __init__(self) -> None:
        self._made: Answering | None = None

    async def answered(self, visit: Visit) -> Any:
        """`POST /mcp`: whatever the protocol asks, as this caller."""
        agents = self._made = self._made or _made()
        # Whoever's key it is, what comes through this door is an agent's doing.
        caller = replace(visit.context.caller, origin="agent")
        visit.context = replace(visit.context, caller=caller)
        context = acting_in(visit)

        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            await agents.answer(context, scope, receive, send)

        return answering


def _made() -> Answering:
    try:
        from timewright.doors.mcp.http import McpOverHttp
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            "the door for agents is not installed",
            field="mcp",
            rule="it needs the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from missing
    return McpOverHttp()
