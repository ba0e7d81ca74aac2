"""Write schedules: create, put and update."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.input.decode import decode_changes, decode_schedule, describe_phrase
from timewright.core.input.input_errors import check_name, missing_field
from timewright.core.input.struct_decoder import canonical_fields
from timewright.core.recurrence.triggers import Manual, zone_of
from timewright.core.schedule.likely_mistakes import check_new_schedule, likely_mistakes
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.target import Handoff
from timewright.errors import Conflict, InvalidInput
from timewright.ledger.dependencies.links import upstream_names
from timewright.ledger.replan import ChangeResult, create, revise
from timewright.operations.access.secret_checks import check_secret_use, reject_plain_secrets, secret_warnings
from timewright.operations.calendars.calendars import check_schedule_zones
from timewright.operations.context import OperationContext, in_transaction
from timewright.operations.health.start_warnings import function_warnings, run_warnings
from timewright.operations.lookup import check_own_namespace, find_editable_schedule
from timewright.operations.queues.policies import register_queues
from timewright.operations.registry import ObjectName, WriteRequest, operations
from timewright.operations.schedules.agent_rules import (
    apply_agent_end,
    check_agent_creation,
    check_agent_edit,
    check_edit_by_hand,
    hold_for_approval_if_required,
    keep_agent_end,
)
from timewright.operations.views import ScheduleDetail, build_schedule_detail
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.schedules import SchedulesNamed, ScheduleSnapshot

Revision = Annotated[int, Meta(ge=1)]

_TIMING_FIELDS = ("trigger", "start_at", "end_at", "deadline")


class CreateSchedule(WriteRequest, frozen=True, kw_only=True):
    """A new schedule: name, trigger, target and policies; with `force`, an agent may create a duplicate."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    force: bool = False
    draft: dict[str, Any] = field(default_factory=dict)


class PutSchedule(WriteRequest, frozen=True, kw_only=True):
    """A complete schedule, by its name; with `revision`, only if that is still the current one."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    revision: Revision | None = None
    force: bool = False
    draft: dict[str, Any] = field(default_factory=dict)


class PutScheduleResult(Struct, frozen=True, kw_only=True):
    """The schedule that was put, and whether it was created, updated or unchanged."""

    change: Literal["created", "updated", "unchanged"]
    detail: ScheduleDetail


class UpdateSchedule(WriteRequest, frozen=True, kw_only=True):
    """The fields to change; others stay. With `revision`, only if that is still the current one."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("changes", Schedule)

    schedule: ObjectName
    revision: Revision | None = None
    changes: dict[str, Any] = field(default_factory=dict)


@operations.add(
    "schedule create",
    scope="write",
    examples=(
        {"name": "morning", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "call": "reports.morning"},
        {"name": "heartbeat", "every": "30s", "http": "GET https://example.com/up", "overlap": "skip"},
    ),
)
def create_schedule(context: OperationContext, request: CreateSchedule) -> ScheduleDetail:
    """Create a schedule and decide its first occurrence; a name in use is a conflict."""
    now = context.now()
    schedule_id = context.ids.new("schedule", now=now)
    schedule = build_schedule(context, request.draft, schedule_id=schedule_id, now=now)
    schedule = apply_agent_end(context, schedule, now=now)
    detail = in_transaction(context, lambda nested: _create(nested, schedule, now=now, force=request.force))
    return _with_reading(context, detail, request.draft)


@operations.write(
    "schedule put",
    scope="write",
    examples=(
        {"name": "nightly-report", "cron": "30 3 * * *", "http": "POST https://example.com/report"},
        {"name": "weekly", "cron": "0 8 * * 1", "note": "time to plan the week"},
    ),
)
def put_schedule(context: OperationContext, tx: Transaction, request: PutSchedule) -> PutScheduleResult:
    """Create a schedule or replace it completely, by its name; the same definition again changes nothing."""
    now = context.now()
    name = canonical_fields(request.draft, Schedule).get("name")
    if name is None:
        raise missing_field("name", rule="put identifies a schedule by its name", fix="name: nightly-report")
    name = check_name(name)
    record = _find_by_name(tx, context.namespace, name)
    if record is None or record.progress.state is ScheduleState.ARCHIVED:
        _reject_revision(request, name)
        schedule_id = context.ids.new("schedule", now=now)
        new = build_schedule(context, request.draft, schedule_id=schedule_id, now=now)
        new = apply_agent_end(context, new, now=now)
        put = PutScheduleResult(change="created", detail=_create(context, new, now=now, force=request.force))
    else:
        put = _replace(context, record, request, now=now)
    return replace(put, detail=_with_reading(context, put.detail, request.draft))


@operations.write(
    "schedule update",
    scope="write",
    examples=(
        {"schedule": "nightly-report", "overlap": "queue", "grace": "5m"},
        {"schedule": "nightly-report", "zone": "Europe/Berlin", "revision": 1, "reason": "the team moved"},
    ),
)
def update_schedule(context: OperationContext, tx: Transaction, request: UpdateSchedule) -> ScheduleDetail:
    """Change some fields of a schedule; its next occurrence is decided again, past decisions stay."""
    now = context.now()
    record = find_editable_schedule(tx, context.namespace, request.schedule)
    if not request.changes:
        raise InvalidInput(
            f"no field of {request.schedule} is to be changed",
            field="schedule",
            value=request.schedule,
            rule="an update has at least one field of a schedule",
            fix=f"schedule update {shlex.quote(request.schedule)} with every: 5m",
        )
    _check_revision(record.schedule, request.revision)
    check_agent_edit(context, record)
    changed = decode_changes(
        request.changes,
        of=record.schedule,
        now=now,
        floor=context.settings.interval_floor,
        zone=context.default_zone,
    )
    changed = keep_agent_end(context, record.schedule, changed, now=now)
    check_schedule(context, changed, before=record.schedule)
    detail = _revise_by_hand(context, changed, record.schedule, now=now)
    return _with_reading(context, detail, request.changes)


def build_schedule(
    context: OperationContext,
    draft: Mapping[str, Any],
    *,
    schedule_id: str,
    now: datetime,
    before: Schedule | None = None,
    zone: str | None = None,
) -> Schedule:
    """Decode a schedule of this namespace, and reject what may not be written."""
    schedule = decode_schedule(
        draft,
        id=schedule_id,
        now=now,
        floor=context.settings.interval_floor,
        defaults=context.settings.schedule_defaults,
        zone=zone or context.default_zone,
        namespace=context.namespace,
        created_by=context.by.name,
        origin=context.by.origin,
        before=before,
    )
    check_schedule(context, schedule, before=before)
    return schedule


def check_schedule(context: OperationContext, schedule: Schedule, *, before: Schedule | None) -> None:
    """Reject a schedule that may not be written: its zone, secrets, its target, another namespace."""
    check_schedule_zones(context.settings, schedule)
    earlier = [one for one in (before.target, before.check) if one is not None] if before is not None else []
    for target in (schedule.target, schedule.check):
        if target is not None:
            reject_plain_secrets(context.caller, target)
            check_secret_use(context, target, before=earlier)
            if context.check_target is not None:
                context.check_target(target, args_later=isinstance(schedule.trigger, Manual))
    check_own_namespace(context.namespace, schedule.namespace)
    if isinstance(schedule.target, Handoff) and schedule.queue is None and schedule.expect is None:
        raise InvalidInput(
            "a handoff target needs a queue",
            field="queue",
            rule="external workers lease handoff runs from a queue",
            fix=f"queue: {schedule.name}",
        )


def _create(context: OperationContext, schedule: Schedule, *, now: datetime, force: bool) -> ScheduleDetail:
    check_agent_creation(context, schedule, now=now, force=force)
    release_archived_name(context, schedule.name, now=now)
    save_new_schedules(context, [schedule], now=now)
    return _with_warnings(context, context.store.read(lambda tx: _new_detail(tx, schedule, now=now)), now=now)


def save_new_schedules(context: OperationContext, schedules: Sequence[Schedule], *, now: datetime) -> None:
    """Store checked new schedules; those of an agent wait for approval where that is required."""
    for made in create(context.store, schedules, by=context.by, now=now):
        context.notify(made.facts)
        hold_for_approval_if_required(context, made.schedule, now=now)
    register_queues(context, {one.queue for one in schedules if one.queue}, now=now)


def _new_detail(tx: Transaction, schedule: Schedule, *, now: datetime) -> ScheduleDetail:
    """Return the detail of a new schedule: it has no notes or manual runs, and nothing else depends on it."""
    record = tx.get_schedules([schedule.id])[schedule.id]
    own = bool(upstream_names(schedule))
    snapshot = ScheduleSnapshot(
        record, has_downstream=own, has_manual_runs=False, has_notes=False, has_skips=False
    )
    return build_schedule_detail(tx, snapshot, now=now, is_new=True)


def release_archived_name(context: OperationContext, name: str, *, now: datetime) -> None:
    """Rename an archived schedule that has this name, so that a new one can use it."""
    record = context.store.read(lambda tx: _find_by_name(tx, context.namespace, name))
    if record is None or record.progress.state is not ScheduleState.ARCHIVED:
        return
    renamed = replace(record.schedule, name=f"{name[:200]} ({record.schedule.id})")
    by = context.with_reason("a new schedule reused its name").by
    context.notify(revise(context.store, renamed, ids=context.ids, by=by, now=now).facts)


def _replace(
    context: OperationContext, record: ScheduleRecord, request: PutSchedule, *, now: datetime
) -> PutScheduleResult:
    old = record.schedule
    _check_revision(old, request.revision)
    wanted = checked_replacement(context, record, request.draft, now=now)
    if wanted == old:
        return PutScheduleResult(change="unchanged", detail=read_schedule_detail(context, old.id, now=now))
    return PutScheduleResult(change="updated", detail=_revise_by_hand(context, wanted, old, now=now))


def checked_replacement(
    context: OperationContext,
    record: ScheduleRecord,
    draft: Mapping[str, Any],
    *,
    now: datetime,
    owner: str = "",
) -> Schedule:
    """Return a schedule with a new definition that may be written, or as it is if nothing changes."""
    old = record.schedule
    zone = zone_of(old.trigger)
    # Built as of the creation of the old one, with its zone: so the same definition has the same anchor and
    # compares equal, also where the default zone differs.
    build = partial(build_schedule, context, draft, schedule_id=old.id, now=old.created_at, before=old)
    wanted = build(zone=zone)
    if zone is not None and wanted.trigger != old.trigger:
        wanted = build()
    wanted = replace(
        wanted,
        revision=old.revision,
        created_at=old.created_at,
        created_by=old.created_by,
        origin=old.origin,
        owner=owner or old.owner,
    )
    wanted = keep_agent_end(context, old, wanted, now=now)
    if wanted == old:
        return old
    check_agent_edit(context, record)
    if any(getattr(wanted, field) != getattr(old, field) for field in _TIMING_FIELDS):
        given = canonical_fields(draft, Schedule)
        check_new_schedule(wanted, now=now, catch_up_given="catch_up" in given)
    return wanted


def _revise_by_hand(
    context: OperationContext, schedule: Schedule, old: Schedule, *, now: datetime
) -> ScheduleDetail:
    by_hand = check_edit_by_hand(context, old)
    save_revision(context, schedule, replaces=old.revision, now=now)
    detail = _with_warnings(context, read_schedule_detail(context, schedule.id, now=now), now=now)
    return replace(detail, warnings=(*detail.warnings, *by_hand))


def save_revision(context: OperationContext, schedule: Schedule, *, replaces: int, now: datetime) -> Schedule:
    """Store a checked revision of a schedule that is still at revision `replaces`."""
    changed = revise(context.store, schedule, ids=context.ids, by=context.by, now=now, replaces=replaces)
    context.notify(changed.facts)
    register_queues(context, {schedule.queue} if schedule.queue else (), now=now)
    return changed.schedule


def _with_warnings(context: OperationContext, detail: ScheduleDetail, *, now: datetime) -> ScheduleDetail:
    found = (
        *likely_mistakes(detail.schedule, [preview.planned_at for preview in detail.next]),
        *function_warnings(context, detail.schedule.target, now=now),
        *run_warnings(context, detail.schedule, now=now),
        *secret_warnings(context, detail.schedule.target),
    )
    return replace(detail, warnings=found) if found else detail


def _with_reading(
    context: OperationContext, detail: ScheduleDetail, draft: Mapping[str, Any]
) -> ScheduleDetail:
    """Add how the text of the trigger was read."""
    read_as = describe_phrase(draft, detail.schedule, zone=context.default_zone)
    return replace(detail, read_as=read_as) if read_as else detail


def _check_revision(schedule: Schedule, expected: int | None) -> None:
    if expected is not None and expected != schedule.revision:
        raise Conflict(
            f"schedule {schedule.name} is at revision {schedule.revision}, not {expected}",
            field="revision",
            value=expected,
            rule="`revision` must be the current revision",
            fix=f"read the schedule again and update revision {schedule.revision}",
        )


def _reject_revision(request: PutSchedule, name: str) -> None:
    if request.revision is not None:
        raise Conflict(
            f"schedule {name} does not exist, so it has no revision {request.revision}",
            field="revision",
            value=request.revision,
            rule="`revision` is only for an existing schedule",
            fix="leave revision out to create it",
        )


def _find_by_name(tx: Transaction, namespace: str, name: str) -> ScheduleRecord | None:
    """Return the schedule with this name, in any state."""
    heads = tx.select(SchedulesNamed(namespace, [name]))
    return tx.get_schedules([heads[0].id])[heads[0].id] if heads else None


def read_schedule_detail(context: OperationContext, schedule_id: str, *, now: datetime) -> ScheduleDetail:
    """Return the current detail of a schedule by its id."""
    return context.store.read(
        lambda tx: build_schedule_detail(
            tx, ScheduleSnapshot(tx.get_schedules([schedule_id])[schedule_id]), now=now
        )
    )


def answer_change(context: OperationContext, changed: ChangeResult) -> ScheduleDetail:
    """Send the facts of a change, and return the detail of the schedule after it."""
    context.notify(changed.facts)
    return read_schedule_detail(context, changed.schedule.id, now=context.now())
