"""Read schedules: get, list, next occurrences and health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.input.aliases import snake_case
from timewright.core.input.decode import decode_schedule
from timewright.core.input.instant_text import ZONE_FIELDS, zone_in
from timewright.core.moments import HOUR, ZERO, check_storable
from timewright.core.recurrence.triggers import Cron, zone_of
from timewright.core.run.history_stats import HistoryStats, RunSample, compute_stats
from timewright.core.run.run import RunState
from timewright.core.schedule.forecast import MAX_PREVIEWS, Preview
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    initial_progress,
)
from timewright.core.target import Note
from timewright.core.zones import check_zone, local_time
from timewright.errors import InvalidInput
from timewright.ledger.dependencies.links import upstream_names
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import describe_pauses
from timewright.operations.context import OperationContext, check_may_block
from timewright.operations.explain.idle import (
    add_manual_runs_and_notes,
    forecast_undecided,
    fully_excluded_warning,
)
from timewright.operations.identity_cache import cache_by_identity
from timewright.operations.lookup import find_schedule, find_schedule_snapshot, readable_schedules
from timewright.operations.pagination import paginate
from timewright.operations.registry import GetSchedule, ListRequest, OperationRequest, operations
from timewright.operations.views import (
    ScheduleDetail,
    ScheduleSummary,
    add_last_runs,
    build_schedule_detail,
    first_starts_of,
    is_on_plan,
    summarize_schedule,
)
from timewright.ports import Page, RunFilter, ScheduleFilter, Transaction, Unreadable
from timewright.ports.rows import ScheduleOrder
from timewright.ports.schedules import OrderedSchedules, ScheduleListRow

HEALTH_WINDOWS = (HOUR, 4 * HOUR, 24 * HOUR)
MAX_PAGES = 10

# A window includes the current instant: a run that ends now belongs to it.
_TICK = timedelta(microseconds=1)
_UNFINISHED = frozenset({RunState.READY, RunState.HELD, RunState.LEASED})


class ListSchedules(ListRequest, frozen=True, kw_only=True):
    """Filters of schedules, combined with AND."""

    state: ScheduleState | None = None
    group: str | None = None
    tag: str | None = None
    name_starts: str = ""
    name_contains: Annotated[str, Meta(max_length=255)] = ""
    order: ScheduleOrder = "name"
    count: bool = False
    """Whether `total` is answered: how many there are with this state, group and name."""
    waits_for: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class ScheduleList(Struct, frozen=True, kw_only=True):
    """A page of schedules. `total` is how many there are, if it was asked for."""

    schedules: tuple[ScheduleSummary, ...]
    cursor: str = ""
    total: int | None = None
    unreadable: tuple[Unreadable, ...] = ()


class GetNextOccurrences(OperationRequest, frozen=True, kw_only=True):
    """A stored schedule, or the fields of one that is not stored, such as `cron` and `zone`.

    `zone` beside a stored schedule is the zone in which its times are shown.
    """

    flattens: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    schedule: str = ""
    count: Annotated[int, Meta(ge=1, le=MAX_PREVIEWS)] = 5
    after: datetime | None = None
    until: datetime | None = None
    draft: dict[str, Any] = field(default_factory=dict)


class NextOccurrences(Struct, frozen=True, kw_only=True):
    """The next occurrences, a description of the trigger, and warnings about likely mistakes."""

    schedule: str
    trigger: str
    zone: str
    after: datetime
    next: tuple[Preview, ...]
    warnings: tuple[str, ...] = ()


class GetScheduleHealth(GetSchedule, frozen=True, kw_only=True):
    """Which schedule; with `since`, also statistics from that instant on."""

    since: datetime | None = None


class ScheduleHealth(Struct, frozen=True, kw_only=True):
    """The health of a schedule: consecutive failures, and statistics over 1, 4 and 24 hours, and `since`."""

    schedule: str
    state: ScheduleState
    reason: str
    failures: int
    next_at: datetime | None
    late_by: timedelta
    in_flight: int
    windows: dict[str, HistoryStats]


@operations.read("schedule get", scope="read", examples=({"schedule": "nightly-report"},))
def get_schedule(context: OperationContext, tx: Transaction, request: GetSchedule) -> ScheduleDetail:
    """Show one schedule: its definition, its progress and its next five occurrences."""
    now = context.now()
    may_block = partial(check_may_block, context)
    snapshot = find_schedule_snapshot(tx, context.namespace, request.schedule, before_suggesting=may_block)
    if snapshot.has_skips or not is_on_plan(snapshot.record, now=now):
        may_block()
    return build_schedule_detail(tx, snapshot, now=now)


@operations.read(
    "schedule list",
    scope="read",
    examples=({}, {"state": "active", "metadata": {"team": "finance"}, "limit": 10}),
)
def list_schedules(context: OperationContext, tx: Transaction, request: ListSchedules) -> ScheduleList:
    """List schedules by name or in another order; archived ones only with `state: archived`."""
    is_ordered = request.order != "name" or bool(request.name_contains)
    if is_ordered or request.count:
        check_may_block(context)
    which = ScheduleFilter(
        namespace=context.namespace,
        state=request.state,
        group=request.group,
        name_prefix=request.name_starts,
        name_contains=request.name_contains,
        order=request.order,
    )
    unreadable: dict[str, Unreadable] = {}

    def find(limit: int, place: str) -> Page:
        if is_ordered:
            return _ordered_page(tx, replace(which, limit=limit, offset=int(place or 0)))
        page = tx.list_schedules(replace(which, limit=limit, cursor=place))
        unreadable.update({one.id: one for one in page.unreadable})
        return page

    rows, cursor = paginate(context, request, find, matches=partial(_matching, request))
    summaries = [summarize_schedule(row) for row in rows]
    return ScheduleList(
        schedules=_add_pauses(tx, rows, add_last_runs(tx, summaries), now=context.now()),
        cursor=cursor,
        total=tx.count(which)["schedules"] if request.count else None,
        unreadable=tuple(unreadable.values()),
    )


def _ordered_page(tx: Transaction, which: ScheduleFilter) -> Page:
    ids = [head.id for head in tx.select(OrderedSchedules(which))]
    found = readable_schedules(tx, ids)
    end = which.offset + len(ids)
    rows = tuple(ScheduleListRow(found[i].schedule, found[i].progress) for i in ids if i in found)
    return Page(rows, str(end) if ids and end < tx.count(which)["schedules"] else "")


def _add_pauses(
    tx: Transaction, found: Sequence[ScheduleListRow], rows: Sequence[ScheduleSummary], *, now: datetime
) -> tuple[ScheduleSummary, ...]:
    """Add who paused each schedule, and which pause of a scope holds for it."""
    paused = describe_pauses(tx, found, now=now)
    return tuple(replace(row, paused_by=by) if by else row for row, by in zip(rows, paused, strict=True))


@operations.add(
    "schedule next",
    scope="read",
    examples=(
        {"schedule": "nightly-report", "count": 3},
        {"cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 4, "after": "2026-03-28T00:00:00Z"},
        {"every": "90m", "count": 2},
    ),
)
def next_times(context: OperationContext, request: GetNextOccurrences) -> NextOccurrences:
    """Show the next occurrences of a schedule, or of a trigger that is not stored."""
    now = context.now()
    shown_in = _zone_to_show(request)
    if bool(request.schedule) is bool(request.draft) and not shown_in:
        both = f"schedule and {', '.join(map(str, request.draft))}" if request.schedule else "neither of them"
        raise InvalidInput(
            f"give a stored schedule or a trigger, not {both}",
            field="schedule",
            rule="either `schedule`, with `zone` to see its times there, or the fields of a trigger",
            fix="schedule: nightly-report, or cron: '0 9 * * 1-5'",
        )

    drafted = _preview_schedule(context, request, now=now) if not request.schedule else None

    def work(tx: Transaction) -> NextOccurrences:
        record = find_schedule(tx, context.namespace, request.schedule) if request.schedule else None
        if record is not None:
            schedule, progress = record.schedule, record.progress
        else:
            assert drafted is not None
            schedule, progress = drafted, initial_progress(drafted)
        calendars = load_calendars(tx, [schedule]).for_schedule(schedule)
        start = check_storable(request.after, field="after") if request.after is not None else now
        if request.after is not None or not request.schedule:
            progress = _progress_from(schedule, progress, start, calendars)
        return NextOccurrences(
            schedule=schedule.name if request.schedule else "",
            trigger=schedule.trigger.describe(),
            zone=shown_in or zone_of(schedule.trigger) or "UTC",
            after=start,
            next=_shown_in(
                shown_in,
                add_manual_runs_and_notes(
                    tx,
                    schedule,
                    forecast_undecided(
                        tx,
                        schedule,
                        progress,
                        now=start,
                        count=request.count,
                        until=request.until,
                        calendars=calendars,
                    ),
                    now=start,
                    count=request.count,
                    until=request.until,
                ),
            ),
            warnings=(
                *(schedule.trigger.warnings() if isinstance(schedule.trigger, Cron) else ()),
                *(fully_excluded_warning(tx, record) if record is not None else ()),
            ),
        )

    return context.store.read(work)


@operations.read(
    "schedule health",
    scope="read",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "since": "2026-03-01T00:00:00Z"},
    ),
)
def schedule_health(context: OperationContext, tx: Transaction, request: GetScheduleHealth) -> ScheduleHealth:
    """Show the health of a schedule: consecutive failures, rates and durations over 1, 4 and 24 hours.

    With `since`, also from that instant on, over the newest 10,000 runs.
    """
    now = context.now()
    starts = {f"{window // HOUR}h": now - window for window in HEALTH_WINDOWS}
    if request.since is not None:
        starts["since"] = check_storable(request.since, field="since")
    record = find_schedule(tx, context.namespace, request.schedule)
    progress = record.progress
    samples = _samples(tx, record.schedule, since=min(starts.values()))
    late = progress.wake_at is not None and progress.wake_at < now
    return ScheduleHealth(
        schedule=record.schedule.name,
        state=progress.state,
        reason=progress.reason,
        failures=progress.failures,
        next_at=progress.next_at,
        late_by=now - progress.wake_at if late and progress.wake_at else ZERO,
        in_flight=record.in_flight.live,
        windows={
            name: compute_stats(samples, since=start, until=now + _TICK) for name, start in starts.items()
        },
    )


def _matching(request: ListSchedules, found: Sequence[ScheduleListRow]) -> list[bool]:
    if request.state is None and request.tag is None and request.waits_for is None and not request.metadata:
        return _not_archived(found)
    return [_matches(shown, request) for shown in found]


@partial(cache_by_identity, max_entries=256)
def _not_archived(found: Sequence[ScheduleListRow]) -> list[bool]:
    return [shown.progress.state is not ScheduleState.ARCHIVED for shown in found]


def _matches(shown: ScheduleListRow, request: ListSchedules) -> bool:
    schedule = shown.schedule
    hidden = request.state is None and shown.progress.state is ScheduleState.ARCHIVED
    return (
        not hidden
        and (request.tag is None or request.tag in schedule.tags)
        and (request.waits_for is None or request.waits_for in upstream_names(schedule).values())
        and has_metadata(schedule.metadata, request.metadata)
    )


def has_metadata(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether every wanted key is present with exactly that value."""
    return not wanted or all(name in metadata and metadata[name] == value for name, value in wanted.items())


def _zone_to_show(request: GetNextOccurrences) -> str:
    """Return the zone beside a stored schedule, if nothing else is beside it."""
    names = {snake_case(name) for name in request.draft}
    if not request.schedule or not names or not names <= set(ZONE_FIELDS):
        return ""
    return check_zone(zone_in(request.draft) or "")


def _shown_in(zone: str, found: Sequence[Preview]) -> tuple[Preview, ...]:
    """Return occurrences with their local times in a zone, if one is wanted."""
    if not zone:
        return tuple(found)
    return tuple(replace(one, zone=zone, local=local_time(one.planned_at, zone)) for one in found)


def _preview_schedule(context: OperationContext, request: GetNextOccurrences, *, now: datetime) -> Schedule:
    """Build a schedule that is not stored from the request's fields, to preview its trigger."""
    draft = {"name": "preview", "target": Note(text="preview"), **request.draft}
    made_at = min(now, request.after) if request.after is not None else now
    return decode_schedule(
        draft,
        id="sch_preview",
        now=made_at,
        defaults=context.settings.schedule_defaults,
        floor=context.settings.interval_floor,
        zone=context.default_zone,
        namespace=context.namespace,
    )


def _progress_from(
    schedule: Schedule, progress: ScheduleProgress, start: datetime, calendars: Mapping[str, Calendar]
) -> ScheduleProgress:
    """Return the progress the schedule would have if everything up to an instant were decided."""
    moved = replace(progress, cursor=max(progress.cursor, start))
    return apply_decision(schedule, moved, plan_next(schedule, moved, now=start, calendars=calendars))


def _samples(tx: Transaction, schedule: Schedule, *, since: datetime) -> Sequence[RunSample]:
    """Return the ended runs of a schedule since an instant, at most its newest 10,000."""
    samples: list[RunSample] = []
    cursor = ""
    for _ in range(MAX_PAGES):
        page = tx.find(RunFilter(schedule_id=schedule.id, limit=1000, cursor=cursor))
        ended = [run for run in page.rows if run.state not in _UNFINISHED]
        starts = first_starts_of(tx, ended)
        samples += [
            RunSample(run.planned_at, starts.get(run.id, run.started_at), run.finished_at, run.state.value)
            for run in ended
        ]
        cursor = page.cursor
        if not cursor or (page.rows and page.rows[-1].created_at < since):
            break
    return samples
