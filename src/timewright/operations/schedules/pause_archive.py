"""Pause, resume, finish, archive and delete schedules, set their state, and pause groups of them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct

from timewright.core.schedule.schedule import ScheduleState
from timewright.ledger.records.schedule_states import change_state
from timewright.ledger.replan import archive, pause, resume, schedule_audit_entry
from timewright.operations.access.callers import AGENT_ORIGIN
from timewright.operations.context import OperationContext, check_may_block, in_transaction
from timewright.operations.definitions.edits import check_edit_by_hand
from timewright.operations.explain.reasons import last_audit_entry
from timewright.operations.health.pauses import (
    PauseRequest,
    PauseState,
    ResumeRequest,
    check_may_lift,
    pause_scope,
    resume_scope,
)
from timewright.operations.lookup import find_schedule
from timewright.operations.pagination import paginate
from timewright.operations.registry import ListRequest, ObjectName, WriteRequest, operations
from timewright.operations.schedules.agent_rules import remember_removal
from timewright.operations.schedules.writes import read_schedule_detail
from timewright.operations.views import ScheduleDetail
from timewright.ports import Page, Transaction
from timewright.ports.overview import GroupCounts


class PauseSchedule(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, and until when; without `until`, until someone resumes it."""

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


class ScheduleAction(WriteRequest, frozen=True, kw_only=True):
    """Which schedule."""

    schedule: ObjectName


@operations.add(
    "schedule pause",
    scope="write",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "until": "2026-03-11T08:00:00Z", "reason": "audit"},
    ),
)
def pause_schedule(context: OperationContext, request: PauseSchedule) -> ScheduleDetail:
    """Pause a schedule until an instant, or until someone resumes it; active runs continue."""
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        schedule_id = _find_id(nested, request.schedule)
        by = nested.actor_with_reason(request.reason)
        nested.notify(pause(nested.store, schedule_id, by=by, now=now, until=request.until).facts)
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


@operations.add("schedule resume", scope="write", examples=({"schedule": "paused-export"},))
def resume_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Resume a paused or parked schedule: reset its failures, skip occurrences within the pause.

    An agent resumes no schedule that a person paused.
    """
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        schedule_id = nested.store.read(lambda tx: _find_resumable(nested, tx, request.schedule, now=now))
        by = nested.actor_with_reason(request.reason)
        nested.notify(resume(nested.store, schedule_id, ids=nested.ids, by=by, now=now).facts)
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


@operations.add(
    "schedule finish", scope="write", examples=({"schedule": "nightly-report", "reason": "all is loaded"},)
)
def finish_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Finish a schedule: it plans nothing more; its name stays in use, and an edit can revive it."""
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        schedule_id = _find_id(nested, request.schedule)
        by = nested.actor_with_reason(request.reason or f"finished by {nested.by.name}")
        nested.notify(archive(nested.store, schedule_id, by=by, now=now, finish=True).facts)
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


@operations.add(
    "schedule set-state", scope="write", examples=({"schedule": "paused-export", "state": {"page": 12}},)
)
def set_schedule_state(context: OperationContext, request: SetScheduleState) -> ScheduleStateValue:
    """Set what a schedule with `keep_state` keeps; a run under way fails if it sets it too."""
    now = context.now()

    def work(nested: OperationContext) -> ScheduleStateValue:
        def write(tx: Transaction) -> ScheduleStateValue:
            schedule = find_schedule(tx, nested.namespace, request.schedule).schedule
            after = change_state(tx, schedule, request.state, version=request.version, now=now)
            entry = schedule_audit_entry(
                schedule,
                "set_state",
                by=nested.actor_with_reason(request.reason),
                now=now,
                before=f"version {after.version - 1}",
                after=f"version {after.version}",
            )
            tx.add_audit([entry])
            return ScheduleStateValue(schedule=schedule.name, state=after.value, version=after.version)

        return nested.store.write(write)

    return in_transaction(context, work)


@operations.add("schedule archive", scope="write", examples=({"schedule": "nightly-report"},))
def archive_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Archive a schedule for good; its history stays, and its name can be used again."""
    return _archive(context, request)


@operations.add("schedule delete", scope="write", examples=({"schedule": "nightly-report"},))
def delete_schedule(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    """Delete a schedule, which is the same as archiving it: its history stays."""
    return _archive(context, request)


def _find_resumable(context: OperationContext, tx: Transaction, wanted: str, *, now: datetime) -> str:
    """The id of a schedule, if the caller may end its pause."""
    record = find_schedule(tx, context.namespace, wanted)
    schedule = record.schedule
    if context.by.origin == AGENT_ORIGIN and record.progress.state is ScheduleState.PAUSED:
        entry = last_audit_entry(tx, schedule.namespace, schedule.id, "schedule.pause", by=now)
        if entry is not None:
            check_may_lift(context, entry.origin, what=f"{schedule.name} was paused by {entry.actor}")
    return schedule.id


def _find_id(context: OperationContext, wanted: str) -> str:
    return context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted)).schedule.id


def _archive(context: OperationContext, request: ScheduleAction) -> ScheduleDetail:
    now = context.now()

    def work(nested: OperationContext) -> ScheduleDetail:
        record = nested.store.read(lambda tx: find_schedule(tx, nested.namespace, request.schedule))
        check_edit_by_hand(nested, record.schedule)
        schedule_id = record.schedule.id
        remember_removal(nested, record.schedule, reason=request.reason, now=now)
        nested.notify(
            archive(nested.store, schedule_id, by=nested.actor_with_reason(request.reason), now=now).facts
        )
        return read_schedule_detail(nested, schedule_id, now=now)

    return in_transaction(context, work)


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


@operations.add("group list", scope="read", examples=({},))
def list_groups(context: OperationContext, request: ListGroups) -> GroupList:
    """List the groups that schedules belong to."""

    def find(tx: Transaction, limit: int, place: str) -> Page:
        found = tx.list_groups(context.namespace, after=place, limit=limit + 1)
        return Page(tuple(found[:limit]), found[limit - 1].name if len(found) > limit else "")

    check_may_block(context)
    rows, cursor = context.store.read(lambda tx: paginate(context, request, partial(find, tx)))
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
