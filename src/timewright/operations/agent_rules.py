"""What a namespace asks of agents that write schedules: an end, no twins, and a person who looks first."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.moments import spell_duration, spell_instant
from timewright.core.schedule import Schedule, ScheduleState
from timewright.core.triggers import Manual, Once
from timewright.errors import NotAllowed, OverQuota
from timewright.ledger.approvals import hold_for_approval
from timewright.ledger.namespaces import Namespace, namespace_of
from timewright.operations.context import Context
from timewright.ports import Due

AGENT = "agent"


def is_agent(context: Context) -> bool:
    """Whether an agent asks."""
    return context.by.origin == AGENT


def with_an_end(context: Context, schedule: Schedule, *, now: datetime) -> Schedule:
    """The schedule as an agent may have it: one without an end is given one, counted from its creation."""
    if not is_agent(context) or isinstance(schedule.trigger, Once | Manual):
        return schedule
    longest = _terms(context).agent_longest_life
    if longest is None:
        return schedule
    begins = schedule.start_at or schedule.created_at
    if schedule.end_at is None:
        return replace(schedule, end_at=max(begins, schedule.created_at) + longest)
    latest = max(begins, now) + longest
    if schedule.end_at > latest:
        raise OverQuota(
            f"end_at {spell_instant(schedule.end_at)} is too far ahead",
            field="end_at",
            value=spell_instant(schedule.end_at),
            rule=f"what an agent schedules lives at most {spell_duration(longest)}",
            fix=f"end_at: {spell_instant(latest)}, or leave it out",
        )
    return schedule


def keeps_its_end(context: Context, before: Schedule, after: Schedule, *, now: datetime) -> Schedule:
    """An edit by an agent: its own schedules keep an end, and nobody's gets a later one than is allowed."""
    if before.origin != AGENT and before.end_at == after.end_at:
        return after
    return with_an_end(context, after, now=now)


def hold_if_asked(context: Context, schedule: Schedule, *, now: datetime) -> None:
    """Let a schedule that an agent made wait for a person, where the namespace asks for that."""
    if is_agent(context) and _terms(context).agent_approval:
        by = context.because("made by an agent")
        context.tell(hold_for_approval(context.store, schedule.id, by=by, now=now).facts)


def check_edit(context: Context, due: Due) -> None:
    """Refuse an agent that edits what a person approved or made, where a person is to look first."""
    if due.standing.state is ScheduleState.PENDING_APPROVAL or not is_agent(context):
        return
    if _terms(context).agent_approval:
        raise NotAllowed(
            f"schedule {due.schedule.name} is approved, and an agent's edit is not",
            field="schedule",
            value=due.schedule.name,
            rule="in this namespace a person approves what agents schedule",
            fix="schedule create another, which waits for approval, or ask a person to edit it",
        )


def check_approved(due: Due) -> None:
    """Refuse to start, even for a try, what waits for a person."""
    if due.standing.state is ScheduleState.PENDING_APPROVAL:
        raise NotAllowed(
            f"schedule {due.schedule.name} waits for approval",
            field="state",
            value=due.standing.state.value,
            rule="what an agent scheduled runs when a person has approved it",
            fix=f"approval approve {due.schedule.name}",
        )


def check_hint_interval(context: Context, interval: timedelta) -> None:
    """Refuse an agent's wish for an interval outside what the namespace allows to agents."""
    if not is_agent(context):
        return
    terms = _terms(context)
    shortest, longest = terms.interval_for(AGENT), terms.agent_longest_hint
    if not shortest <= interval <= max(longest, shortest):
        raise OverQuota(
            f"hint.interval {spell_duration(interval)} is out of an agent's range",
            field="hint.interval",
            value=spell_duration(interval),
            rule=f"{spell_duration(shortest)} to {spell_duration(longest)} in namespace {terms.name}",
            fix=f"interval: {spell_duration(shortest if interval < shortest else longest)}",
        )


def _terms(context: Context) -> Namespace:
    return context.store.read(lambda tx: namespace_of(tx, context.namespace))
