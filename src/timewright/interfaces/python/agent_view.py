"""The operations of a scheduler as an agent in the same process may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timewright.core.input.names import check_name
from timewright.interfaces.python.answers import own_copy
from timewright.interfaces.python.resources import Resources
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext


class AgentView(Resources):
    """The operations of a scheduler, called by an agent: its limits and approvals bind, keys are closed."""

    def __init__(self, new_context: Callable[[], OperationContext], name: str) -> None:
        self._new_context = new_context
        actor = check_name(name, field="agent")
        self._caller = Caller(actor=actor, origin=AGENT_ORIGIN, scopes=ROLES["editor"])
        super().__init__(self.call)

    def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation by its name; see `Scheduler.call`."""
        context = context_for(self._new_context(), self._caller)
        return own_copy(operations[operation].perform_payload(context, request))
