"""What schedules said before: to look at, or to bring back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from timewright.core.schedule import Schedule
from timewright.ledger.replan import restore
from timewright.operations.agent_rules import check_edit
from timewright.operations.context import Context, together
from timewright.operations.drafts import detail_of
from timewright.operations.find import find_living, find_schedule
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Write, operations
from timewright.operations.views import ScheduleDetail
from timewright.ports import Page, Transaction

MOST_REVISIONS = 1000


class Revisions(Listing, frozen=True, kw_only=True):
    """Whose revisions."""

    schedule: Named


class RevisionRow(Struct, frozen=True, kw_only=True):
    """What a schedule said at a revision, who wrote it, when and why, and which fields it changed."""

    revision: int
    at: datetime
    actor: str
    reason: str
    changed: tuple[str, ...]
    schedule: Schedule


class RevisionList(Struct, frozen=True, kw_only=True):
    """A page of revisions, newest first."""

    revisions: tuple[RevisionRow, ...]
    cursor: str = ""


class Restore(Write, frozen=True, kw_only=True):
    """Which revision to bring back; it becomes the newest."""

    schedule: Named
    to: Annotated[int, Meta(ge=1)]


@operations.add("schedule", "revisions", Revisions, scope="read", examples=({"schedule": "nightly-report"},))
def schedule_revisions(context: Context, ask: Revisions) -> RevisionList:
    """List what a schedule said, newest first, with who changed what and why."""

    def work(tx: Transaction) -> RevisionList:
        due = find_schedule(tx, context.namespace, ask.schedule)
        rows = _revision_rows(tx, due.schedule.id)
        found, cursor = paged(context, ask, lambda limit, place: _slice(rows, limit, place))
        return RevisionList(revisions=tuple(found), cursor=cursor)

    return context.store.read(work)


@operations.add(
    "schedule", "restore", Restore, scope="write", examples=({"schedule": "nightly-report", "to": 1},)
)
def restore_schedule(context: Context, ask: Restore) -> ScheduleDetail:
    """Bring back what a schedule said at an earlier revision, as a new one."""
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        due = inside.store.read(lambda tx: find_living(tx, inside.namespace, ask.schedule))
        check_edit(inside, due)
        by = inside.because(ask.reason)
        changed = restore(inside.store, due.schedule.id, ask.to, ids=inside.ids, by=by, now=now)
        inside.tell(changed.facts)
        return detail_of(inside, changed.schedule.id, now=now)

    return together(context, work)


def _revision_rows(tx: Transaction, schedule_id: str) -> list[RevisionRow]:
    found = tx.list_revisions(schedule_id, limit=MOST_REVISIONS)
    older = [*(schedule for schedule, *_ in found[1:]), None]
    return [
        RevisionRow(
            revision=schedule.revision,
            at=at,
            actor=actor,
            reason=reason,
            changed=_changed(before, schedule) if before is not None else (),
            schedule=schedule,
        )
        for (schedule, at, actor, reason), before in zip(found, older, strict=True)
    ]


def _changed(before: Schedule, after: Schedule) -> tuple[str, ...]:
    fields = (name for name in Schedule.__struct_fields__ if name != "revision")
    return tuple(name for name in fields if getattr(before, name) != getattr(after, name))


def _slice(rows: list[RevisionRow], limit: int, place: str) -> Page:
    """A page below a revision; the place is the last revision that was shown."""
    below = [row for row in rows if not place.isdigit() or row.revision < int(place)]
    page = below[:limit]
    return Page(tuple(page), str(page[-1].revision) if len(below) > limit else "")
