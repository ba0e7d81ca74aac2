"""Groups of schedules: list, pause and resume."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from msgspec import Struct

from timewright.core.input.decode import check_name
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import OverQuota
from timewright.ledger.replan import pause, resume
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.lookup import MAX_NAMES_COMPARED, not_found
from timewright.operations.non_blocking import check_may_block
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.operations.views import ScheduleSummary, add_last_runs, summarize_schedule
from timewright.ports import Page, ScheduleFilter, ScheduleRecord, Transaction
from timewright.ports.overview import GroupCounts

MAX_GROUP_SCHEDULES = 5000


class ListGroups(ListRequest, frozen=True, kw_only=True):
    """List the groups."""


class GroupList(Struct, frozen=True, kw_only=True):
    """Groups by name, with the number of schedules in each state."""

    groups: tuple[GroupCounts, ...]
    cursor: str = ""


class PauseGroup(WriteRequest, frozen=True, kw_only=True):
    """Which group, and until when; without `until`, until someone resumes it."""

    group: ObjectName
    until: datetime | None = None


class ResumeGroup(WriteRequest, frozen=True, kw_only=True):
    """Which group."""

    group: ObjectName


class GroupChange(Struct, frozen=True, kw_only=True):
    """The schedules of a group that were changed, and those that were not."""

    group: str
    changed: tuple[ScheduleSummary, ...]
    left: tuple[ScheduleSummary, ...]


@operations.add("group", "list", ListGroups, scope="read", examples=({},))
def list_groups(context: OperationContext, request: ListGroups) -> GroupList:
    """List the groups that schedules belong to."""

    def find(tx: Transaction, limit: int, place: str) -> Page:
        found = tx.list_groups(context.namespace, after=place, limit=limit + 1)
        return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else "")

    check_may_block(context)
    rows, cursor = context.store.read(lambda tx: paginate(context, request, partial(find, tx)))
    return GroupList(groups=tuple(rows), cursor=cursor)


@operations.add(
    "group", "pause", PauseGroup, scope="write", examples=({"group": "reports", "reason": "audit"},)
)
def pause_group(context: OperationContext, request: PauseGroup) -> GroupChange:
    """Pause every active schedule of a group; others are not changed."""
    now = context.now()

    def work(nested: OperationContext) -> GroupChange:
        rows = nested.store.read(lambda tx: _find_members(tx, nested.namespace, request.group))
        by = nested.actor_with_reason(_reason_prefix(request.group) + request.reason)
        active = [record for record in rows if record.progress.state is ScheduleState.ACTIVE]
        for record in active:
            nested.notify(pause(nested.store, record.schedule.id, by=by, now=now, until=request.until).facts)
        return _answer(nested, request.group, rows, active)

    return in_transaction(context, work)


@operations.add("group", "resume", ResumeGroup, scope="write", examples=({"group": "exports"},))
def resume_group(context: OperationContext, request: ResumeGroup) -> GroupChange:
    """Resume the schedules that a group pause stopped; those paused or parked on their own stay so."""
    now = context.now()

    def work(nested: OperationContext) -> GroupChange:
        rows = nested.store.read(lambda tx: _find_members(tx, nested.namespace, request.group))
        by = nested.actor_with_reason(request.reason)
        waiting = [record for record in rows if _paused_with_group(record, request.group)]
        for record in waiting:
            nested.notify(resume(nested.store, record.schedule.id, ids=nested.ids, by=by, now=now).facts)
        return _answer(nested, request.group, rows, waiting)

    return in_transaction(context, work)


def _find_members(tx: Transaction, namespace: str, group: str) -> list[ScheduleRecord]:
    group = check_name(group, field="group")
    found: list[ScheduleRecord] = []
    cursor = ""
    while True:
        which = ScheduleFilter(namespace=namespace, group=group, limit=MAX_NAMES_COMPARED, cursor=cursor)
        page = tx.find_schedules(which)
        found += page.rows
        cursor = page.cursor
        if len(found) > MAX_GROUP_SCHEDULES:
            raise _too_many(group)
        if not cursor:
            break
    if not found:
        known = [one.name for one in tx.list_groups(namespace, after="", limit=MAX_NAMES_COMPARED)]
        raise not_found("group", group, known, list_command="group list")
    return found


def _too_many(group: str) -> OverQuota:
    return OverQuota(
        f"group {group} has more than {MAX_GROUP_SCHEDULES} schedules",
        field="group",
        value=group,
        rule=f"at most {MAX_GROUP_SCHEDULES} can be changed in one request",
        fix="split the group",
    )


def _reason_prefix(group: str) -> str:
    """Return the prefix of the pause reason that marks a pause of the whole group."""
    return f"group {group}: "


def _paused_with_group(record: ScheduleRecord, group: str) -> bool:
    return record.progress.state is ScheduleState.PAUSED and record.progress.reason.startswith(
        _reason_prefix(group)
    )


def _answer(
    context: OperationContext, group: str, rows: list[ScheduleRecord], changed: list[ScheduleRecord]
) -> GroupChange:
    ids = {record.schedule.id for record in changed}

    def work(tx: Transaction) -> GroupChange:
        after = tx.get_schedules(sorted(ids)) if ids else {}
        moved = [summarize_schedule(after[record.schedule.id]) for record in changed]
        left = [summarize_schedule(record) for record in rows if record.schedule.id not in ids]
        return GroupChange(group=group, changed=add_last_runs(tx, moved), left=add_last_runs(tx, left))

    return context.store.read(work)
