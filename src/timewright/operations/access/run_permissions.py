"""What the token of a run may do: pause, finish, snooze its own schedule, and set its state; nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from timewright.errors import Forbidden, NotFound
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_schedule

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
