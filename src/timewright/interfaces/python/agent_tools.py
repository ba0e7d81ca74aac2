"""Operations as function tools of an agent framework in the same process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from timewright.core.input.input_errors import check_name
from timewright.core.input.strict_json import read_json
from timewright.errors import InvalidInput, TimewrightError
from timewright.interfaces.mcp.calls import ToolCalls
from timewright.interfaces.mcp.tools import ToolDescription, tools_for
from timewright.interfaces.mcp.toolsets import parse_toolsets
from timewright.interfaces.python.resources import Resources, own_copy
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext
from timewright.operations.text_safety import sanitize

ToolFormat = Literal["openai", "anthropic", "json"]


class AgentMethods:
    """The methods of a scheduler for agents in its process."""

    def _context(self) -> OperationContext:
        raise NotImplementedError

    def as_agent(self, name: str) -> AgentView:
        """Return the operations as an agent may use them: `app.as_agent("planner").schedules.create(…)`."""
        return AgentView(self._context, name)

    def tools(
        self,
        *,
        agent: str,
        format: ToolFormat = "openai",  # noqa: A002 - the word that a caller writes
        toolset: str = "core",
    ) -> AgentTools:
        """Return function tools for an agent: their definitions, and `call(name, arguments)`."""
        return AgentTools(self._context, format=format, toolset=toolset, agent=agent)


def _agent(name: str) -> Caller:
    return Caller(actor=check_name(name, field="agent"), origin=AGENT_ORIGIN, scopes=ROLES["editor"])


class AgentTools(list[dict[str, Any]]):
    """The definitions of function tools, and `call`, which runs one as its agent.

    Limits, approvals and confirmations are those of the MCP server.
    """

    def __init__(
        self,
        new_context: Callable[[], OperationContext],
        *,
        format: ToolFormat,  # noqa: A002 - the word that a caller writes
        toolset: str,
        agent: str,
    ) -> None:
        build = _FORMATS.get(format)
        if build is None:
            raise InvalidInput(
                f"unknown format {str(format)[:40]!r}",
                field="format",
                value=str(format)[:40],
                rule=f"one of {', '.join(_FORMATS)}",
                fix="format='openai'",
            )
        self._new_context = new_context
        self._toolsets = parse_toolsets(toolset)
        self._caller = _agent(agent)
        self._calls = ToolCalls()
        super().__init__(build(one) for one in tools_for(self._caller, self._toolsets))

    def call(self, name: str, arguments: Mapping[str, Any] | str = "") -> str:
        """Run a tool; arguments are a mapping, or JSON as a model wrote it. Errors are told as text."""
        try:
            given = read_json(arguments or "{}") if isinstance(arguments, str) else arguments
            if not isinstance(given, Mapping):
                raise TypeError("not an object")
        except (ValueError, TypeError, RecursionError) as error:
            return f"the arguments of {name} are not a JSON object: {error}"
        try:
            context = context_for(self._new_context(), self._caller)
            answer = self._calls.call(context, name, given, toolsets=self._toolsets)
        except TimewrightError as error:
            return str(sanitize(error.explain()))
        return "\n".join(answer.texts)


def _openai(one: ToolDescription) -> dict[str, Any]:
    function = {"name": one.name, "description": one.description, "parameters": one.input_schema}
    return {"type": "function", "function": function}


def _anthropic(one: ToolDescription) -> dict[str, Any]:
    return {"name": one.name, "description": one.description, "input_schema": one.input_schema}


def _json(one: ToolDescription) -> dict[str, Any]:
    return {**_anthropic(one), "read_only": one.read_only, "destructive": one.destructive}


_FORMATS: dict[str, Callable[[ToolDescription], dict[str, Any]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "json": _json,
}


class AgentView(Resources):
    """The operations of a scheduler, called by an agent: its limits and approvals bind, keys are closed."""

    def __init__(self, new_context: Callable[[], OperationContext], name: str) -> None:
        self._new_context = new_context
        self._caller = _agent(name)
        super().__init__(self.call)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name; see `Scheduler.call`."""
        context = context_for(self._new_context(), self._caller)
        return own_copy(operations[operation].perform_payload(context, request))
