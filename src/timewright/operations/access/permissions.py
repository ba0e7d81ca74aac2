"""What agents may do where a person approves their work, and what the token of a run may do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from timewright.errors import Forbidden, NotFound
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule


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
    return is_agent(context) and context.quotas().agent_approval


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


# Operation -> the field that names the schedule. A pause with `until` is a snooze.
RUN_TOKEN_OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "schedule pause": "schedule",
        "schedule finish": "schedule",
        "schedule set-state": "schedule",
        "reminder snooze": "reminder",
    }
)


def check_run_permission(context: OperationContext, operation: str, payload: Mapping[str, Any]) -> None:
    """Raise Forbidden if the token of a run may not do this."""
    field = RUN_TOKEN_OPERATIONS.get(operation)
    if field is None:
        raise Forbidden(
            f"the token of a run may not use {operation}",
            field="operation",
            value=operation,
            rule=f"it may use {', '.join(RUN_TOKEN_OPERATIONS)}, for its own schedule",
            fix="use an API key",
        )
    wanted = payload.get(field)
    if not isinstance(wanted, str) or not _is_own(context, wanted):
        raise Forbidden(
            "the token of a run may change only its own schedule",
            field=field,
            value=str(wanted)[:64],
            rule="the schedule that the run belongs to",
            fix="use TIMEWRIGHT_RUN_SCHEDULE, or ctx.schedule_name",
        )


def _is_own(context: OperationContext, wanted: str) -> bool:
    try:
        found = context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted))
    except NotFound:
        return False
    return found.schedule.id == context.caller.own_schedule
