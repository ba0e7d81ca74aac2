"""Rules for agents that write schedules: an end, no duplicates, and approval by a person."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.moments import format_duration, format_instant
from timewright.core.recurrence.triggers import Manual, Once
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.errors import NotAllowed, OverQuota
from timewright.ledger.approvals import hold_for_approval
from timewright.ledger.records.namespaces import Namespace, read_namespace
from timewright.operations.access.agent_permissions import is_agent, needs_approval
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext
from timewright.ports import ScheduleRecord


def apply_agent_end(context: OperationContext, schedule: Schedule, *, now: datetime) -> Schedule:
    """Return an agent's schedule with an end: if it has none, creation plus the longest allowed lifetime."""
    if not is_agent(context) or isinstance(schedule.trigger, Once | Manual):
        return schedule
    longest = _quotas(context).agent_longest_life
    if longest is None:
        return schedule
    begins = schedule.start_at or schedule.created_at
    if schedule.end_at is None:
        return replace(schedule, end_at=max(begins, schedule.created_at) + longest)
    latest = max(begins, now) + longest
    if schedule.end_at > latest:
        raise OverQuota(
            f"end_at {format_instant(schedule.end_at)} is too far ahead",
            field="end_at",
            value=format_instant(schedule.end_at),
            rule=f"an agent's schedule lives at most {format_duration(longest)}",
            fix=f"end_at: {format_instant(latest)}, or leave it out",
        )
    return schedule


def keep_agent_end(
    context: OperationContext, before: Schedule, after: Schedule, *, now: datetime
) -> Schedule:
    """Check an agent's edit: its own schedules keep an end, and no end may be later than allowed."""
    if before.origin != AGENT_ORIGIN and before.end_at == after.end_at:
        return after
    return apply_agent_end(context, after, now=now)


def hold_for_approval_if_required(context: OperationContext, schedule: Schedule, *, now: datetime) -> None:
    """Hold an agent's new schedule for approval, if the namespace requires that."""
    if needs_approval(context):
        by = context.actor_with_reason("created by an agent")
        context.notify(hold_for_approval(context.store, schedule.id, by=by, now=now).facts)


def check_agent_edit(context: OperationContext, record: ScheduleRecord) -> None:
    """Reject an agent's edit of an approved schedule, if the namespace requires approval."""
    if record.progress.state is not ScheduleState.PENDING_APPROVAL and needs_approval(context):
        raise NotAllowed(
            f"schedule {record.schedule.name} is approved, and an agent may not edit it",
            field="schedule",
            value=record.schedule.name,
            rule="in this namespace, a person approves schedules created by agents",
            fix="create another schedule, which waits for approval, or ask a person to edit this one",
        )


def check_approved(record: ScheduleRecord) -> None:
    """Reject a start, also a test, of a schedule that waits for approval."""
    if record.progress.state is ScheduleState.PENDING_APPROVAL:
        raise NotAllowed(
            f"schedule {record.schedule.name} waits for approval",
            field="state",
            value=record.progress.state.value,
            rule="a schedule created by an agent runs after a person approves it",
            fix=f"approval approve {record.schedule.name}",
        )


def check_hint_interval(context: OperationContext, interval: timedelta) -> None:
    """Reject an agent's hint for an interval outside the limits of the namespace."""
    if not is_agent(context):
        return
    quotas = _quotas(context)
    shortest, longest = quotas.interval_for(AGENT_ORIGIN), quotas.agent_longest_hint
    if not shortest <= interval <= max(longest, shortest):
        raise OverQuota(
            f"hint.interval {format_duration(interval)} is out of the range for agents",
            field="hint.interval",
            value=format_duration(interval),
            rule=f"{format_duration(shortest)} to {format_duration(longest)} in namespace {quotas.name}",
            fix=f"interval: {format_duration(shortest if interval < shortest else longest)}",
        )


def _quotas(context: OperationContext) -> Namespace:
    return context.store.read(lambda tx: read_namespace(tx, context.namespace))
