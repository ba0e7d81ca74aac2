"""Looking at schedules: one, many, what comes next, how they do, and what they said before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.forecast import MOST_PREVIEWS, Preview, forecast
from timewright.core.governor import plan_next
from timewright.core.moments import HOUR, check_stored
from timewright.core.run import RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing, decided, opening
from timewright.core.tally import Sample, Tally, tally
from timewright.core.target import Note
from timewright.core.triggers import ZONED, Cron
from timewright.core.vocabulary import decode_schedule
from timewright.errors import InvalidInput
from timewright.ledger.links import upstream_names
from timewright.ledger.shelf import calendars_for
from timewright.operations.ahead import nothing_left, with_additions
from timewright.operations.at_once import may_take_long
from timewright.operations.context import Context
from timewright.operations.find import find_schedule, look_for
from timewright.operations.identity import once_for_each
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, operations
from timewright.operations.views import (
    ScheduleDetail,
    ScheduleRow,
    goes_on_as_planned,
    schedule_detail,
    schedule_rows,
)
from timewright.ports import Page, RunFilter, ScheduleFilter, Transaction, Unreadable
from timewright.ports.looks import Shown

HEALTH_WINDOWS = (HOUR, 4 * HOUR, 24 * HOUR)
MOST_PAGES = 10

# A window ends with the instant that is asked at: what ended then belongs to it.
_TICK = timedelta(microseconds=1)
_UNFINISHED = frozenset({RunState.READY, RunState.HELD, RunState.LEASED})


class Get(Request, frozen=True, kw_only=True):
    """Which schedule, by name or id."""

    schedule: Named


class List(Listing, frozen=True, kw_only=True):
    """Which schedules; every filter that is given must fit."""

    state: ScheduleState | None = None
    group: str | None = None
    tag: str | None = None
    name_starts: str = ""
    waits_for: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Schedules(Struct, frozen=True, kw_only=True):
    """A page of schedules, by name."""

    schedules: tuple[ScheduleRow, ...]
    cursor: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class Next(Request, frozen=True, kw_only=True):
    """A stored schedule, or the fields of one that is not stored, such as `cron` and `zone`."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("draft", Schedule)

    schedule: str = ""
    count: Annotated[int, Meta(ge=1, le=MOST_PREVIEWS)] = 5
    after: datetime | None = None
    until: datetime | None = None
    draft: dict[str, Any] = field(default_factory=dict)


class Nexts(Struct, frozen=True, kw_only=True):
    """The next occurrences, the trigger in words, and what may not have been meant."""

    schedule: str
    trigger: str
    zone: str
    after: datetime
    next: tuple[Preview, ...]
    warnings: tuple[str, ...] = ()


class Health(Struct, frozen=True, kw_only=True):
    """How a schedule does: failures in a row, and its history over one, four and twenty-four hours."""

    schedule: str
    state: ScheduleState
    reason: str
    failures: int
    next_at: datetime | None
    late_by: timedelta
    in_flight: int
    windows: dict[str, Tally]


@operations.add("schedule", "get", Get, scope="read", examples=({"schedule": "nightly-report"},))
def get_schedule(context: Context, ask: Get) -> ScheduleDetail:
    """Show one schedule: what it says, where it stands, and its next five times."""
    now = context.now()
    lingers = partial(may_take_long, context)

    def work(tx: Transaction) -> ScheduleDetail:
        look = look_for(tx, context.namespace, ask.schedule, unless_known=lingers)
        if not goes_on_as_planned(look.due, now=now):
            lingers()
        return schedule_detail(tx, look, now=now)

    return context.store.read(work)


@operations.add(
    "schedule",
    "list",
    List,
    scope="read",
    examples=({}, {"state": "active", "metadata": {"team": "finance"}, "limit": 10}),
)
def list_schedules(context: Context, ask: List) -> Schedules:
    """List schedules by name; archived ones are listed only when asked for."""

    def work(tx: Transaction) -> Schedules:
        lost: dict[str, Unreadable] = {}

        def find(limit: int, place: str) -> Page:
            page = tx.list_shown(
                ScheduleFilter(
                    namespace=context.namespace,
                    state=ask.state,
                    group=ask.group,
                    name_starts=ask.name_starts,
                    limit=limit,
                    cursor=place,
                )
            )
            lost.update({one.id: one for one in page.unreadable})
            return page

        rows, cursor = paged(context, ask, find, fits=partial(_fitting, ask))
        return Schedules(schedules=schedule_rows(rows), cursor=cursor, unreadable=tuple(lost.values()))

    return context.store.read(work)


@operations.add(
    "schedule",
    "next",
    Next,
    scope="read",
    examples=(
        {"schedule": "nightly-report", "count": 3},
        {"cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 4, "after": "2026-03-28T00:00:00Z"},
        {"every": "90m", "count": 2},
    ),
)
def next_times(context: Context, ask: Next) -> Nexts:
    """Show the next occurrences of a schedule, or of a trigger that is not stored, and their fate."""
    now = context.now()
    if bool(ask.schedule) is bool(ask.draft):
        raise InvalidInput(
            "next of what?",
            field="schedule",
            rule="either a stored schedule, or the trigger of one that is not stored",
            fix="schedule: nightly-report, or cron: '0 9 * * 1-5'",
        )

    def work(tx: Transaction) -> Nexts:
        due = find_schedule(tx, context.namespace, ask.schedule) if ask.schedule else None
        if due is not None:
            schedule, standing = due.schedule, due.standing
        else:
            schedule = _imagined(context, ask, now=now)
            standing = opening(schedule)
        calendars = calendars_for(tx, [schedule]).of(schedule)
        start = check_stored(ask.after, field="after") if ask.after is not None else now
        if ask.after is not None or not ask.schedule:
            standing = _standing_from(schedule, standing, start, calendars)
        return Nexts(
            schedule=schedule.name if ask.schedule else "",
            trigger=schedule.trigger.describe(),
            zone=schedule.trigger.zone if isinstance(schedule.trigger, ZONED) else "UTC",
            after=start,
            next=with_additions(
                tx,
                schedule,
                forecast(
                    schedule, standing, now=start, count=ask.count, until=ask.until, calendars=calendars
                ),
                now=start,
                count=ask.count,
                until=ask.until,
            ),
            warnings=(
                *(schedule.trigger.warnings() if isinstance(schedule.trigger, Cron) else ()),
                *(nothing_left(tx, due) if due is not None else ()),
            ),
        )

    return context.store.read(work)


@operations.add("schedule", "health", Get, scope="read", examples=({"schedule": "nightly-report"},))
def schedule_health(context: Context, ask: Get) -> Health:
    """Show how a schedule does: failures in a row, rates and durations over 1, 4 and 24 hours."""
    now = context.now()

    def work(tx: Transaction) -> Health:
        due = find_schedule(tx, context.namespace, ask.schedule)
        standing = due.standing
        samples = _samples(tx, due.schedule, since=now - HEALTH_WINDOWS[-1])
        late = standing.wake_at is not None and standing.wake_at < now
        return Health(
            schedule=due.schedule.name,
            state=standing.state,
            reason=standing.reason,
            failures=standing.failures,
            next_at=standing.next_at,
            late_by=now - standing.wake_at if late and standing.wake_at else timedelta(0),
            in_flight=due.flight.live,
            windows={
                f"{window // HOUR}h": tally(samples, since=now - window, until=now + _TICK)
                for window in HEALTH_WINDOWS
            },
        )

    return context.store.read(work)


def _fitting(ask: List, found: Sequence[Shown]) -> list[bool]:
    if ask.state is None and ask.tag is None and ask.waits_for is None and not ask.metadata:
        return _living(found)
    return [_fits(shown, ask) for shown in found]


@partial(once_for_each, most=256)
def _living(found: Sequence[Shown]) -> list[bool]:
    return [shown.standing.state is not ScheduleState.ARCHIVED for shown in found]


def _fits(shown: Shown, ask: List) -> bool:
    schedule = shown.schedule
    hidden = ask.state is None and shown.standing.state is ScheduleState.ARCHIVED
    return (
        not hidden
        and (ask.tag is None or ask.tag in schedule.tags)
        and (ask.waits_for is None or ask.waits_for in upstream_names(schedule).values())
        and has_metadata(schedule.metadata, ask.metadata)
    )


def has_metadata(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether every wanted key is there with exactly that value."""
    return not wanted or all(name in metadata and metadata[name] == value for name, value in wanted.items())


def _imagined(context: Context, ask: Next, *, now: datetime) -> Schedule:
    """A schedule that is not kept, made of what the request says and of nothing that matters otherwise."""
    draft = {"name": "preview", "target": Note(text="preview"), **ask.draft}
    made_at = min(now, ask.after) if ask.after is not None else now
    return decode_schedule(
        draft,
        id="sch_preview",
        now=made_at,
        defaults=context.settings.for_schedules,
        floor=context.settings.interval_floor,
        namespace=context.namespace,
    )


def _standing_from(
    schedule: Schedule, standing: Standing, start: datetime, calendars: Mapping[str, Calendar]
) -> Standing:
    """Where the schedule would stand if everything up to an instant were decided."""
    moved = replace(standing, cursor=max(standing.cursor, start))
    return decided(schedule, moved, plan_next(schedule, moved, now=start, calendars=calendars))


def _samples(tx: Transaction, schedule: Schedule, *, since: datetime) -> Sequence[Sample]:
    """The ended runs of a schedule since an instant, and some before it; its newest ten thousand at most."""
    samples: list[Sample] = []
    cursor = ""
    for _ in range(MOST_PAGES):
        page = tx.find_runs(RunFilter(schedule_id=schedule.id, limit=1000, cursor=cursor))
        samples += [
            Sample(run.planned_at, run.started_at, run.finished_at, run.state.value)
            for run in page.rows
            if run.state not in _UNFINISHED
        ]
        cursor = page.cursor
        if not cursor or (page.rows and page.rows[-1].created_at < since):
            break
    return samples
