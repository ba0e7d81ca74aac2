"""Approvals: what agents scheduled and a person has not looked at yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from timewright.core.schedule import ScheduleState
from timewright.core.target import AnyTarget
from timewright.errors import Forbidden
from timewright.ledger.approvals import approve, approved, reject
from timewright.ledger.replan import Changed
from timewright.ledger.shelf import calendars_for
from timewright.operations.agent_rules import is_agent
from timewright.operations.context import Context, together
from timewright.operations.drafts import detail_of
from timewright.operations.find import find_schedule
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.operations.views import ScheduleDetail
from timewright.ports import Due, Page, ScheduleFilter, Transaction


class List(Listing, frozen=True, kw_only=True):
    """Which schedules wait for a person: all of the namespace."""


class Answer(Write, frozen=True, kw_only=True):
    """Which schedule, and why."""

    schedule: Named


class Pending(Struct, frozen=True, kw_only=True):
    """A schedule that waits: who made it, when it would run, what it would do, and its first time."""

    id: str
    name: str
    description: str
    created_by: str
    created_at: datetime
    trigger: str
    target: AnyTarget
    end_at: datetime | None
    first_at: datetime | None


class Approvals(Struct, frozen=True, kw_only=True):
    """A page of schedules that wait for a person, by name."""

    approvals: tuple[Pending, ...]
    cursor: str = ""


@operations.add("approval", "list", List, scope="read", examples=({},))
def list_approvals(context: Context, ask: List) -> Approvals:
    """List what agents scheduled and nobody has approved yet; none of it runs."""
    now = context.now()

    def work(tx: Transaction) -> Approvals:
        def find(limit: int, place: str) -> Page:
            which = ScheduleFilter(
                namespace=context.namespace, state=ScheduleState.PENDING_APPROVAL, limit=limit, cursor=place
            )
            return tx.find_schedules(which)

        rows, cursor = paged(context, ask, find)
        return Approvals(approvals=tuple(_pending(tx, due, now=now) for due in rows), cursor=cursor)

    return context.store.read(work)


@operations.add(
    "approval", "approve", Answer, scope="write", examples=({"schedule": "digest", "reason": "looks right"},)
)
def approve_schedule(context: Context, ask: Answer) -> ScheduleDetail:
    """Let a schedule begin from now on; only a person can."""
    return _answered(context, ask, approve)


@operations.add(
    "approval", "reject", Answer, scope="write", examples=({"schedule": "digest", "reason": "not needed"},)
)
def reject_schedule(context: Context, ask: Answer) -> ScheduleDetail:
    """Turn a schedule away before it ever ran: it is archived with the reason; only a person can."""
    return _answered(context, ask, reject)


def _answered(context: Context, ask: Answer, change: Callable[..., Changed]) -> ScheduleDetail:
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        due = inside.store.read(lambda tx: find_schedule(tx, inside.namespace, ask.schedule))
        if is_agent(inside):
            raise Forbidden(
                "an agent approves nothing",
                field="schedule",
                value=due.schedule.name,
                rule="a person looks at what agents schedule",
                fix=f"ask a person: approval approve {due.schedule.name}",
            )
        by = inside.because(ask.reason)
        inside.tell(change(inside.store, due.schedule.id, by=by, now=now).facts)
        return detail_of(inside, due.schedule.id, now=now)

    return together(context, work)


def _pending(tx: Transaction, due: Due, *, now: datetime) -> Pending:
    schedule = due.schedule
    return Pending(
        id=schedule.id,
        name=schedule.name,
        description=schedule.description,
        created_by=schedule.created_by,
        created_at=schedule.created_at,
        trigger=schedule.trigger.describe(),
        target=schedule.target,
        end_at=schedule.end_at,
        first_at=approved(due, calendars_for(tx, [schedule]), now=now).next_at,
    )
