"""Writing schedules: create, put, update."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.decoding import names_of
from timewright.core.refusals import missing
from timewright.core.schedule import Schedule, ScheduleState, check_new
from timewright.core.target import Handoff
from timewright.core.vocabulary import check_name, decode_changes, decode_schedule
from timewright.errors import Conflict, InvalidInput
from timewright.ledger.links import upstream_names
from timewright.ledger.replan import create, revise
from timewright.operations.agent_rules import check_edit, hold_if_asked, is_agent, keeps_its_end, with_an_end
from timewright.operations.allowed_zones import check_zones
from timewright.operations.context import Context, together
from timewright.operations.duplicates import refuse_duplicate
from timewright.operations.find import find_living
from timewright.operations.known_functions import doubts
from timewright.operations.plain_secrets import check_named
from timewright.operations.queue_policies import keep_queue
from timewright.operations.registry import Named, Write, operations
from timewright.operations.views import ScheduleDetail, schedule_detail
from timewright.ports import Due, Transaction
from timewright.ports.looks import Look

Revision = Annotated[int, Meta(ge=1)]

_WHEN = ("trigger", "start_at", "end_at", "deadline")


class Create(Write, frozen=True, kw_only=True):
    """A new schedule: a name, when, what, and any policy; an agent says `force` to have the same twice."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    force: bool = False
    draft: dict[str, Any] = field(default_factory=dict)


class Put(Write, frozen=True, kw_only=True):
    """A schedule as it shall be, whole, by its name; with a revision, only if it is still at that one."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    revision: Revision | None = None
    force: bool = False
    draft: dict[str, Any] = field(default_factory=dict)


class Kept(Struct, frozen=True, kw_only=True):
    """A schedule that was put, and what that changed."""

    change: Literal["created", "updated", "unchanged"]
    kept: ScheduleDetail


class Update(Write, frozen=True, kw_only=True):
    """The fields to change; what is left out stays. With a revision, only if it is still at that one."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("changes", Schedule)

    schedule: Named
    revision: Revision | None = None
    changes: dict[str, Any] = field(default_factory=dict)


@operations.add(
    "schedule",
    "create",
    Create,
    scope="write",
    examples=(
        {"name": "morning", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "call": "reports.morning"},
        {"name": "heartbeat", "every": "30s", "http": "GET https://example.com/up", "overlap": "skip"},
    ),
)
def create_schedule(context: Context, ask: Create) -> ScheduleDetail:
    """Keep a new schedule and decide its first time; a name that is taken is refused."""
    now = context.now()
    schedule_id = context.ids.new("schedule", now=now)
    schedule = _drafted(context, ask.draft, schedule_id=schedule_id, now=now)
    schedule = with_an_end(context, schedule, now=now)
    return together(context, lambda inside: _created(inside, schedule, ask, now=now))


@operations.add(
    "schedule",
    "put",
    Put,
    scope="write",
    examples=(
        {"name": "nightly-report", "cron": "30 3 * * *", "http": "POST https://example.com/report"},
        {"name": "weekly", "cron": "0 8 * * 1", "note": "time to plan the week"},
    ),
)
def put_schedule(context: Context, ask: Put) -> Kept:
    """Create a schedule or replace all of it, by its name; the same words again change nothing."""
    now = context.now()
    name = names_of(ask.draft, Schedule).get("name")
    if name is None:
        raise missing("name", rule="a schedule is put under its name", fix="name: nightly-report")
    name = check_name(name)

    def work(inside: Context) -> Kept:
        due = inside.store.read(lambda tx: _holder(tx, inside.namespace, name))
        if due is None or due.standing.state is ScheduleState.ARCHIVED:
            _refuse_revision(ask, name)
            fresh = _drafted(inside, ask.draft, schedule_id=inside.ids.new("schedule", now=now), now=now)
            fresh = with_an_end(inside, fresh, now=now)
            return Kept(change="created", kept=_created(inside, fresh, ask, now=now))
        return _replaced(inside, due, ask, now=now)

    return together(context, work)


@operations.add(
    "schedule",
    "update",
    Update,
    scope="write",
    examples=(
        {"schedule": "nightly-report", "overlap": "queue", "grace": "5m"},
        {"schedule": "nightly-report", "zone": "Europe/Berlin", "revision": 1, "reason": "the team moved"},
    ),
)
def update_schedule(context: Context, ask: Update) -> ScheduleDetail:
    """Change some fields of a schedule; what was decided stays decided, its next time is decided again."""
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        due = inside.store.read(lambda tx: find_living(tx, inside.namespace, ask.schedule))
        _check_revision(due.schedule, ask.revision)
        check_edit(inside, due)
        changed = decode_changes(ask.changes, of=due.schedule, now=now, floor=inside.settings.interval_floor)
        changed = keeps_its_end(inside, due.schedule, changed, now=now)
        _check_ours(inside, changed)
        return _revised(inside, changed, replaces=due.schedule.revision, reason=ask.reason, now=now)

    return together(context, work)


def _drafted(context: Context, draft: Mapping[str, Any], *, schedule_id: str, now: datetime) -> Schedule:
    schedule = decode_schedule(
        draft,
        id=schedule_id,
        now=now,
        floor=context.settings.interval_floor,
        defaults=context.settings.for_schedules,
        namespace=context.namespace,
        created_by=context.by.actor,
        origin=context.by.origin,
    )
    _check_ours(context, schedule)
    return schedule


def _check_ours(context: Context, schedule: Schedule) -> None:
    check_zones(context.settings, schedule)
    check_named(context.caller, schedule)
    if context.check is not None:
        context.check(schedule.target)
    if schedule.namespace != context.namespace:
        raise InvalidInput(
            f"namespace {schedule.namespace!r} is not the one this request speaks for",
            field="namespace",
            value=schedule.namespace,
            rule="a request writes into its own namespace",
            fix="leave it out",
        )
    if isinstance(schedule.target, Handoff) and schedule.queue is None:
        raise InvalidInput(
            "a handoff without a queue would wait for ever",
            field="queue",
            rule="what someone outside leases waits in a queue",
            fix=f"queue: {schedule.name}",
        )


def _created(context: Context, schedule: Schedule, ask: Create | Put, *, now: datetime) -> ScheduleDetail:
    by = context.because(ask.reason)
    if is_agent(context) and not ask.force:
        refuse_duplicate(context, schedule)
    _free_the_name(context, schedule.name, now=now)
    (made,) = create(context.store, [schedule], by=by, now=now)
    context.tell(made.facts)
    hold_if_asked(context, schedule, now=now)
    if schedule.queue is not None:
        keep_queue(context, schedule.queue, now=now)
    return _doubted(context, context.store.read(lambda tx: _new_detail(tx, schedule, now=now)), now=now)


def _new_detail(tx: Transaction, schedule: Schedule, *, now: datetime) -> ScheduleDetail:
    """A schedule that was just made: nobody has written beside it, and only itself may ask for its ends."""
    due = tx.get_schedules([schedule.id])[schedule.id]
    own = bool(upstream_names(schedule))
    return schedule_detail(tx, Look(due, is_asked_for=own, has_made=False, has_notes=False), now=now)


def _free_the_name(context: Context, name: str, *, now: datetime) -> None:
    """A name belongs to the living: an archived schedule that has it gives it up and keeps its history."""
    due = context.store.read(lambda tx: _holder(tx, context.namespace, name))
    if due is None or due.standing.state is not ScheduleState.ARCHIVED:
        return
    renamed = replace(due.schedule, name=f"{name[:200]} ({due.schedule.id})")
    by = context.because("a new schedule took its name")
    context.tell(revise(context.store, renamed, ids=context.ids, by=by, now=now).facts)


def _replaced(context: Context, due: Due, ask: Put, *, now: datetime) -> Kept:
    old = due.schedule
    _check_revision(old, ask.revision)
    # Read as of its creation, so that the same words give the same anchor, and thus the same schedule.
    wanted = _drafted(context, ask.draft, schedule_id=old.id, now=old.created_at)
    wanted = replace(
        wanted, revision=old.revision, created_at=old.created_at, created_by=old.created_by, origin=old.origin
    )
    wanted = keeps_its_end(context, old, wanted, now=now)
    if wanted == old:
        return Kept(change="unchanged", kept=detail_of(context, old.id, now=now))
    check_edit(context, due)
    if any(getattr(wanted, field) != getattr(old, field) for field in _WHEN):
        check_new(wanted, now=now, catch_up_asked="catch_up" in names_of(ask.draft, Schedule))
    kept = _revised(context, wanted, replaces=old.revision, reason=ask.reason, now=now)
    return Kept(change="updated", kept=kept)


def _revised(
    context: Context, schedule: Schedule, *, replaces: int, reason: str, now: datetime
) -> ScheduleDetail:
    by = context.because(reason)
    changed = revise(context.store, schedule, ids=context.ids, by=by, now=now, replaces=replaces)
    context.tell(changed.facts)
    if schedule.queue is not None:
        keep_queue(context, schedule.queue, now=now)
    return _doubted(context, detail_of(context, schedule.id, now=now), now=now)


def _doubted(context: Context, detail: ScheduleDetail, *, now: datetime) -> ScheduleDetail:
    found = doubts(context, detail.schedule.target, now=now)
    return replace(detail, warnings=found) if found else detail


def _check_revision(schedule: Schedule, asked: int | None) -> None:
    if asked is not None and asked != schedule.revision:
        raise Conflict(
            f"schedule {schedule.name} is at revision {schedule.revision}, not {asked}",
            field="revision",
            value=asked,
            rule="an edit names the revision it replaces",
            fix=f"read it again and replace revision {schedule.revision}",
        )


def _refuse_revision(ask: Put, name: str) -> None:
    if ask.revision is not None:
        raise Conflict(
            f"there is no schedule {name} to replace revision {ask.revision} of",
            field="revision",
            value=ask.revision,
            rule="only a schedule that exists has a revision to replace",
            fix="leave revision out to create it",
        )


def _holder(tx: Transaction, namespace: str, name: str) -> Due | None:
    """The schedule that has a name, in whatever state."""
    found = tx.find_schedule(namespace, name)
    return tx.get_schedules([found])[found] if found is not None else None


def detail_of(context: Context, schedule_id: str, *, now: datetime) -> ScheduleDetail:
    """A schedule by its id, as it is now."""
    return context.store.read(
        lambda tx: schedule_detail(tx, Look(tx.get_schedules([schedule_id])[schedule_id]), now=now)
    )
