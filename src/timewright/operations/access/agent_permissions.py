"""What an agent may do in a namespace that requires approval, operation by operation.

A person approves work before it runs, whatever way an agent uses to start it. The rules bind only where the
namespace has `agent_approval`; scopes and quotas bind always.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from timewright.errors import Forbidden
from timewright.ledger.records.namespaces import read_namespace
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext


class AgentRule(StrEnum):
    """What an agent may do with an operation where approval is required."""

    ALLOWED = "allowed"
    HELD = "waits for approval"
    APPROVED_WORK = "only for approved work"
    REFUSED = "refused"


# Operations that only read are allowed. Every operation that writes is listed here; a test checks that.
AGENT_RULES: Mapping[str, AgentRule] = MappingProxyType(
    dict.fromkeys(
        ("schedule create", "schedule put", "schedule put-many", "workflow put", "reminder set"),
        AgentRule.HELD,
    )
    | dict.fromkeys(
        (
            "reminder snooze",
            "run reset",
            "run retry",
            "run retry-failures",
            "schedule backfill",
            "schedule move",
            "schedule restore",
            "schedule run",
            "schedule run-many",
            "schedule test",
            "schedule update",
            "workflow resume",
            "workflow run",
        ),
        AgentRule.APPROVED_WORK,
    )
    | dict.fromkeys(
        (
            # They decide for a person.
            "approval approve",
            "approval reject",
            "workflow approve",
            "workflow reject",
            # They change when, where or how much approved work runs.
            "apply",
            "budget delete",
            "budget set",
            "calendar delete",
            "calendar put",
            "calendar refresh",
            "backfill resume",
            "group resume",
            "limit delete",
            "limit set",
            "provider open",
            "queue import",
            "queue policy set",
            "queue purge",
            "clock accept",
            "resume",
            "schedule resume",
            "schedule set-state",
            # They decide who is told what, and send it out.
            "alert set",
            "channel create",
            "channel delete",
            "channel test",
            # Only a person answers, and gives others the right to.
            "run answer",
            "run link",
            # They give access.
            "ping create",
            "ping delete",
            "key create",
            "key revoke",
            "key rotate",
            "namespace create",
            "namespace set",
            "secret bind",
            "secret delete",
            "secret rotate",
            "secret set",
            "session end",
        ),
        AgentRule.REFUSED,
    )
    | dict.fromkeys(
        (
            # They propose within the bounds of the namespace, or start nothing.
            "analysis submit",
            "backfill cancel",
            "backfill pause",
            "group pause",
            "hint clear",
            "hint interval",
            "hint once",
            "hint pause",
            "incident acknowledge",
            "incident snooze",
            "pause",
            "provider close",
            "reminder cancel",
            "run cancel",
            "schedule archive",
            "schedule delete",
            "schedule finish",
            "schedule note",
            "schedule pause",
            "schedule skip",
            "workflow delete",
            "workflow pause",
            # The work behind these runs outside, where the agent leases it.
            "ping send",
            "queue add",
            "queue complete",
            "queue drain",
            "queue lease",
            "queue reclaim",
            "queue release",
            "queue renew",
            "queue reset",
            "run report",
            # It continues workflows that are approved.
            "workflow signal",
        ),
        AgentRule.ALLOWED,
    )
)


def is_agent(context: OperationContext) -> bool:
    """Return whether the caller is an agent."""
    return context.by.origin == AGENT_ORIGIN


def needs_approval(context: OperationContext) -> bool:
    """Return whether the caller is an agent in a namespace where a person approves its work."""
    return is_agent(context) and (
        context.store.read(lambda tx: read_namespace(tx, context.namespace)).agent_approval
    )


def check_agent_permission(context: OperationContext, operation: str) -> None:
    """Raise Forbidden if an agent may not use an operation where approval is required."""
    if AGENT_RULES.get(operation, AgentRule.REFUSED) is AgentRule.REFUSED and needs_approval(context):
        raise Forbidden(
            f"an agent may not use {operation} here",
            field="operation",
            value=operation,
            rule="a person approves the work of agents in this namespace, and this could release work",
            fix=f"ask a person to use {operation}",
        )
