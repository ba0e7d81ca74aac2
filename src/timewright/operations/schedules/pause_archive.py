"""Pause, resume, finish, archive, delete and restore schedules, set their state, and pause groups of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.input.instant_text import describe_instant
from timewright.core.moments import check_storable
from timewright.core.schedule.schedule import Schedule
from timewright.ledger.records.schedule_states import change_state
from timewright.ledger.replan import archive, pause, restore, resume, schedule_audit_entry
from timewright.operations.context import OperationContext, check_may_block
from timewright.operations.health.pauses import (
    PauseRequest,
    PauseState,
    ResumeRequest,
    check_may_end_pause,
    pause_scope,
    resume_scope,
)
from timewright.operations.lookup import find_editable_schedule, find_schedule
from timewright.operations.pagination import paginate, paginate_rows
from timewright.operations.registry import ListRequest, ObjectName, ScheduleAction, WriteRequest, operations
from timewright.operations.schedules.agent_rules import check_agent_edit, check_edit_by_hand, remember_removal
from timewright.operations.schedules.writes import answer_change
from timewright.operations.views import ScheduleDetail
from timewright.ports import Page, Transaction
from timewright.ports.overview import GroupCounts, ScheduleGroups
from timewright.ports.schedules import RevisionsOf

MAX_REVISIONS = 1000


class PauseSchedule(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, and until when; without `until`, until someone resumes it."""

    keeps_zones: ClassVar[bool] = True

    schedule: ObjectName
    until: datetime | None = None


class SetScheduleState(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, its new state as JSON data, and the version that it replaces; without it, any."""

    schedule: ObjectName
    state: Any
    version: int | None = None


class ScheduleStateValue(Struct, frozen=True, kw_only=True):
    """The state of a schedule; its version rises with every change."""

    schedule: str
    state: Any
    version: int


@operations.write(
    "schedule pause",
    scope="write",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "until": "2026-03-11T08:00:00Z", "reason": "audit"},
    ),
)
def pause_schedule(context: OperationContext, tx: Transaction, request: PauseSchedule) -> ScheduleDetail:
    """Pause a schedule until an instant, or until someone resumes it; active runs continue.

    A second pause replaces the first, so an agent pauses no schedule that a person paused.
    """
    now = context.now()
    record = find_schedule(tx, context.namespace, request.schedule)
    check_may_end_pause(context, tx, record, now=now)
    until = check_storable(request.until, field="until") if request.until is not None else None
    paused = pause(context.store, record.schedule.id, ids=context.ids, by=context.by, now=now, until=until)
    detail = answer_change(context, paused)
    if request.until is None:
        return detail
    zone = getattr(request.until.tzinfo, "key", "") or context.default_zone
    return replace(detail, read_as=f"until {describe_instant(request.until, zone=zone)}")


@operations.write("schedule resume", scope="write", examples=({"schedule": "paused-export"},))
def resume_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Resume a paused or parked schedule: reset its failures, skip occurrences within the pause.

    An agent resumes no schedule that a person paused.
    """
    now = context.now()
    record = find_schedule(tx, context.namespace, request.schedule)
    check_may_end_pause(context, tx, record, now=now)
    resumed = resume(context.store, record.schedule.id, ids=context.ids, by=context.by, now=now)
    return answer_change(context, resumed)


@operations.write(
    "schedule finish", scope="write", examples=({"schedule": "nightly-report", "reason": "all is loaded"},)
)
def finish_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Finish a schedule: it plans nothing more; its name stays in use, and an edit can revive it."""
    schedule_id = find_schedule(tx, context.namespace, request.schedule).schedule.id
    by = context.with_reason(request.reason or f"finished by {context.by.name}").by
    return answer_change(context, archive(context.store, schedule_id, by=by, now=context.now(), finish=True))


@operations.write(
    "schedule set-state", scope="write", examples=({"schedule": "paused-export", "state": {"page": 12}},)
)
def set_schedule_state(
    context: OperationContext, tx: Transaction, request: SetScheduleState
) -> ScheduleStateValue:
    """Set what a schedule with `keep_state` keeps; a run under way fails if it sets it too."""
    now = context.now()
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    after = change_state(tx, schedule, request.state, version=request.version, now=now)
    entry = schedule_audit_entry(
        schedule,
        "set_state",
        by=context.by,
        now=now,
        before=f"version {after.version - 1}",
        after=f"version {after.version}",
    )
    tx.add_audit([entry])
    return ScheduleStateValue(schedule=schedule.name, state=after.value, version=after.version)


@operations.write("schedule archive", scope="write", examples=({"schedule": "nightly-report"},))
def archive_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Archive a schedule for good; its history stays, and its name can be used again."""
    return _archive(context, tx, request)


@operations.write("schedule delete", scope="write", examples=({"schedule": "nightly-report"},))
def delete_schedule(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    """Delete a schedule, which is the same as archiving it: its history stays."""
    return _archive(context, tx, request)


def _archive(context: OperationContext, tx: Transaction, request: ScheduleAction) -> ScheduleDetail:
    now = context.now()
    schedule = find_schedule(tx, context.namespace, request.schedule).schedule
    check_edit_by_hand(context, schedule)
    remember_removal(context, schedule, now=now)
    return answer_change(context, archive(context.store, schedule.id, by=context.by, now=now))


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


@operations.read("group list", scope="read", examples=({},))
def list_groups(context: OperationContext, tx: Transaction, request: ListGroups) -> GroupList:
    """List the groups that schedules belong to."""
    check_may_block(context)

    def find(limit: int, place: str) -> Page:
        found = tx.select(ScheduleGroups(namespace=context.namespace, after=place, limit=limit + 1))
        return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else "")

    rows, cursor = paginate(context, request, find)
    return GroupList(groups=tuple(rows), cursor=cursor)


@operations.add("group pause", scope="write", examples=({"group": "reports", "reason": "audit"},))
def pause_group(context: OperationContext, request: PauseGroup) -> PauseState:
    """Pause a group; occurrences that come due are skipped, as those of a paused schedule. See `pause`."""
    wanted = PauseRequest(scope="group", name=request.group, until=request.until, reason=request.reason)
    return pause_scope(context, wanted)


@operations.add("group resume", scope="write", examples=({"group": "exports"},))
def resume_group(context: OperationContext, request: ResumeGroup) -> PauseState:
    """End the pauses of a group; its schedules that are paused or parked on their own stay so."""
    wanted = ResumeRequest(scope="group", name=request.group, reason=request.reason)
    return resume_scope(context, wanted)


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
    # Newest first: a key of twelve digits that falls while the revision rises.
    found, cursor = paginate_rows(context, request, rows, key=lambda row: f"{10**12 - row.revision}")
    return RevisionList(revisions=tuple(found), cursor=cursor)


@operations.write("schedule restore", scope="write", examples=({"schedule": "nightly-report", "to": 1},))
def restore_schedule(context: OperationContext, tx: Transaction, request: RestoreRevision) -> ScheduleDetail:
    """Restore an earlier revision of a schedule, as a new revision."""
    now = context.now()
    record = find_editable_schedule(tx, context.namespace, request.schedule)
    check_agent_edit(context, record)
    warnings = check_edit_by_hand(context, record.schedule)
    changed = restore(context.store, record.schedule.id, request.to, ids=context.ids, by=context.by, now=now)
    return replace(answer_change(context, changed), warnings=warnings)


def _revision_rows(tx: Transaction, schedule_id: str) -> list[RevisionSummary]:
    found = tx.select(RevisionsOf(schedule_id, limit=MAX_REVISIONS))
    older = [*(one.schedule for one in found[1:]), None]
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
