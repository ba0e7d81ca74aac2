"""Earlier revisions of schedules: list and restore."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.schedule.schedule import Schedule
from timewright.ledger.replan import restore
from timewright.operations.context import OperationContext
from timewright.operations.definitions.edits import check_edit_by_hand
from timewright.operations.lookup import find_editable_schedule, find_schedule
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.operations.schedules.agent_rules import check_agent_edit
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import ScheduleDetail
from timewright.ports import Page, Transaction

MAX_REVISIONS = 1000


class ListRevisions(ListRequest, frozen=True, kw_only=True):
    """Which schedule."""

    schedule: ObjectName


class RevisionSummary(Struct, frozen=True, kw_only=True):
    """One revision of a schedule: who wrote it, when and why, and which fields it changed."""

    revision: int
    at: datetime
    actor: str
    reason: str
    changed: tuple[str, ...]
    schedule: Schedule


class RevisionList(Struct, frozen=True, kw_only=True):
    """A page of revisions, newest first."""

    revisions: tuple[RevisionSummary, ...]
    cursor: str = ""


class RestoreRevision(WriteRequest, frozen=True, kw_only=True):
    """Which revision to restore; it becomes the newest."""

    schedule: ObjectName
    to: Annotated[int, Meta(ge=1)]


@operations.read("schedule revisions", scope="read", examples=({"schedule": "nightly-report"},))
def schedule_revisions(context: OperationContext, tx: Transaction, request: ListRevisions) -> RevisionList:
    """List the revisions of a schedule, newest first, with who changed what and why."""
    record = find_schedule(tx, context.namespace, request.schedule)
    rows = _revision_rows(tx, record.schedule.id)
    found, cursor = paginate(context, request, lambda limit, place: _page(rows, limit, place))
    return RevisionList(revisions=tuple(found), cursor=cursor)


@operations.write("schedule restore", scope="write", examples=({"schedule": "nightly-report", "to": 1},))
def restore_schedule(context: OperationContext, tx: Transaction, request: RestoreRevision) -> ScheduleDetail:
    """Restore an earlier revision of a schedule, as a new revision."""
    now = context.now()
    record = find_editable_schedule(tx, context.namespace, request.schedule)
    check_agent_edit(context, record)
    warnings = check_edit_by_hand(context, record.schedule)
    by = context.actor_with_reason(request.reason)
    changed = restore(context.store, record.schedule.id, request.to, ids=context.ids, by=by, now=now)
    context.notify(changed.facts)
    return replace(read_schedule_detail(context, changed.schedule.id, now=now), warnings=warnings)


def _revision_rows(tx: Transaction, schedule_id: str) -> list[RevisionSummary]:
    found = tx.list_revisions(schedule_id, limit=MAX_REVISIONS)
    older = [*(schedule for schedule, *_ in found[1:]), None]
    return [
        RevisionSummary(
            revision=schedule.revision,
            at=at,
            actor=actor,
            reason=reason,
            changed=_changed_fields(before, schedule) if before is not None else (),
            schedule=schedule,
        )
        for (schedule, at, actor, reason), before in zip(found, older, strict=True)
    ]


def _changed_fields(before: Schedule, after: Schedule) -> tuple[str, ...]:
    fields = (name for name in Schedule.__struct_fields__ if name != "revision")
    return tuple(name for name in fields if getattr(before, name) != getattr(after, name))


def _page(rows: list[RevisionSummary], limit: int, place: str) -> Page:
    """Return a page of revisions older than the last one shown."""
    below = [row for row in rows if not place.isdigit() or row.revision < int(place)]
    page = below[:limit]
    return Page(tuple(page), str(page[-1].revision) if len(below) > limit else "")
