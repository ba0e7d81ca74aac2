"""Groups of schedules: list, pause and resume."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from msgspec import Struct

from timewright.operations.context import OperationContext
from timewright.operations.health.pauses import (
    PauseRequest,
    PauseState,
    ResumeRequest,
    pause_scope,
    resume_scope,
)
from timewright.operations.non_blocking import check_may_block
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.ports import Page, Transaction
from timewright.ports.overview import GroupCounts


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
def pause_group(context: OperationContext, request: PauseGroup) -> PauseState:
    """Pause a group; occurrences that come due are skipped, as those of a paused schedule. See `pause`."""
    wanted = PauseRequest(scope="group", name=request.group, until=request.until, reason=request.reason)
    return pause_scope(context, wanted)


@operations.add("group", "resume", ResumeGroup, scope="write", examples=({"group": "exports"},))
def resume_group(context: OperationContext, request: ResumeGroup) -> PauseState:
    """End the pauses of a group; its schedules that are paused or parked on their own stay so."""
    wanted = ResumeRequest(scope="group", name=request.group, reason=request.reason)
    return resume_scope(context, wanted)
