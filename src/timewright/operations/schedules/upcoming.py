"""What starts next: occurrences of all schedules in order, and runs planned by hand; as rows and a feed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.moments import DAY, check_storable, format_instant
from timewright.core.recurrence.triggers import zone_of
from timewright.core.run.run import occurrence_key
from timewright.core.schedule.decision import Source
from timewright.core.schedule.forecast import Preview, preview_run, previews
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.core.zones import check_zone, local_time
from timewright.errors import InvalidInput
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import PauseLookup, load_pauses
from timewright.ledger.records.notes import notes_of_schedules
from timewright.operations.context import OperationContext
from timewright.operations.explain.idle import MAX_MANUAL_RUNS, has_decided_ahead
from timewright.operations.lookup import readable_schedules
from timewright.operations.registry import OperationRequest, operations
from timewright.ports import ScheduleFilter, ScheduleRecord, Transaction
from timewright.ports.rows import FutureManualRunsIn
from timewright.ports.schedules import OrderedSchedules

DEFAULT_WINDOW = DAY
MAX_WINDOW = 366 * DAY
MAX_LIMIT = 1_000
# The work of one answer: schedules read, and occurrences computed. One that a calendar excludes takes 0.1 ms.
MAX_SCHEDULES = 10_000
MAX_COMPUTED = 20_000
MAX_COMPUTED_EACH = 5_000
PAGE_SCHEDULES = 100
MAX_FEED_EVENTS = 1000
MAX_EVENTS_PER_SCHEDULE = 200
# RFC 5545: a longer line of a feed is folded.
MAX_FEED_LINE_BYTES = 75


class GetUpcoming(OperationRequest, frozen=True, kw_only=True):
    """Until when (24 hours ahead by default), which schedules, and in which zone times are shown.

    With `each`, at most this many occurrences of one schedule: a frequent one does not hide the others.
    """

    until: datetime | None = None
    tag: str | None = None
    group: str | None = None
    zone: str | None = None
    each: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 50


class UpcomingOccurrence(Struct, frozen=True, kw_only=True):
    """One occurrence: when it is planned, when it may start, its local time, and its note.

    `local` is the planned time in `zone`: the zone that was asked for, else that of its trigger, if it has
    one. While a pause of its group, or of another scope, holds it back, `verdict` is `paused` and `reason`
    says which.
    """

    schedule: str
    planned_at: datetime
    fire_at: datetime | None
    zone: str
    local: str
    source: Source
    verdict: str
    reason: str = ""
    note: str = ""


class Upcoming(Struct, frozen=True, kw_only=True):
    """What starts until an instant, by time and name. With `more`, there is more after the last one.

    What calendars or pauses of a schedule leave out is not listed, nor what runs after another schedule.
    """

    now: datetime
    until: datetime
    zone: str
    occurrences: tuple[UpcomingOccurrence, ...]
    more: bool


class PlannedStart(Struct, frozen=True):
    """An occurrence of a schedule that will start, or a run that is planned by hand."""

    schedule: Schedule
    preview: Preview


class UpcomingFilter(Struct, frozen=True, kw_only=True):
    """Which occurrences: of a namespace until an instant, with a tag or of a group, at most `limit`."""

    namespace: str
    until: datetime
    limit: int
    limit_each: int = MAX_LIMIT
    tag: str | None = None
    group: str | None = None

    def matches(self, schedule: Schedule) -> bool:
        """Whether the occurrences of a schedule are wanted."""
        return (self.tag is None or self.tag in schedule.tags) and self.group in (None, schedule.group)


@operations.read(
    "schedule upcoming",
    scope="read",
    examples=(
        {},
        {"until": "2026-03-12T00:00:00Z", "zone": "Asia/Tokyo", "tag": "daily", "limit": 10},
    ),
)
def show_upcoming(context: OperationContext, tx: Transaction, request: GetUpcoming) -> Upcoming:
    """Show what starts next, of all schedules, in order of time."""
    now = context.now()
    zone = check_zone(request.zone) if request.zone is not None else ""
    until = _check_until(request.until, now=now)
    which = UpcomingFilter(
        namespace=context.namespace,
        until=until,
        limit=request.limit,
        limit_each=request.each or MAX_LIMIT,
        tag=request.tag,
        group=request.group,
    )
    starts, more = find_upcoming(tx, which, now=now)
    pauses = load_pauses(tx, now=now)
    return Upcoming(
        now=now,
        until=until,
        zone=zone,
        occurrences=tuple(_describe(one, zone=zone, pauses=pauses) for one in starts),
        more=more,
    )


def find_upcoming(
    tx: Transaction, which: UpcomingFilter, *, now: datetime
) -> tuple[list[PlannedStart], bool]:
    """Return the next starts by time and name, with their notes, and whether there are more.

    The list is complete up to its last row: where it reaches a limit, it ends.
    """
    merge = _Merge(tx, which, now=now)
    merge.add_manual_runs()
    # A schedule that is paused until an instant goes on after it.
    for record, calendars in _schedules(tx, which, ScheduleState.PAUSED):
        merge.add_schedule(record, calendars)
    for number, (record, calendars) in enumerate(_schedules(tx, which, ScheduleState.ACTIVE)):
        next_at = record.progress.next_at
        if next_at is None or next_at > merge.until:
            break
        if number == MAX_SCHEDULES:
            merge.cut(next_at)
            break
        merge.add_schedule(record, calendars)
    return _with_notes(tx, which.namespace, merge.starts()), merge.more


class _Merge:
    """Merges the occurrences of schedules; a full list shortens the window for the schedules after it.

    So `limit` rows of any number of schedules need little more than `limit` occurrences.
    """

    def __init__(self, tx: Transaction, which: UpcomingFilter, *, now: datetime) -> None:
        self._tx = tx
        self._which = which
        self._now = now
        self._starts: list[PlannedStart] = []
        self._computed = 0
        self.until = which.until
        self.more = False

    def starts(self) -> list[PlannedStart]:
        """The starts in the window that is left."""
        return [one for one in self._starts if one.preview.planned_at <= self.until]

    def cut(self, at: datetime) -> None:
        """End the list after an instant, because what follows is not known."""
        self.more = True
        self.until = min(self.until, at)

    def add_manual_runs(self) -> None:
        """Add the runs that are planned by hand, of schedules in any state."""
        which = FutureManualRunsIn(namespace=self._which.namespace, until=self.until, limit=MAX_MANUAL_RUNS)
        runs = list(self._tx.select(which))
        found = readable_schedules(self._tx, sorted({run.schedule_id for run in runs}))
        if len(runs) == MAX_MANUAL_RUNS:
            self.cut(runs[-1].fire_at)
        for run in runs:
            record = found.get(run.schedule_id)
            if record is not None and self._which.matches(record.schedule) and not run.fence:
                self._add(record.schedule, preview_run(record.schedule, run))

    def add_schedule(self, record: ScheduleRecord, calendars: Mapping[str, Calendar]) -> None:
        """Add the occurrences of a schedule that will start in the window."""
        schedule, progress = record.schedule, record.progress
        if progress.next_at is None or progress.next_at > self.until or not self._which.matches(schedule):
            return
        decided_ahead = has_decided_ahead(self._tx, schedule, now=self._now)
        found = previews(schedule, progress, now=self._now, until=self.until, calendars=calendars)
        started = 0
        for number, one in enumerate(found):
            self._computed += 1
            if one.planned_at > self.until:
                break
            if number == MAX_COMPUTED_EACH or self._computed > MAX_COMPUTED:
                # The schedules after this one begin at its next instant or later.
                self.cut(one.planned_at if number == MAX_COMPUTED_EACH else progress.next_at)
                break
            if one.fire_at is None or (decided_ahead and self._has_row(schedule, one)):
                continue
            if started == self._which.limit_each:
                self.more = True
                break
            self._add(schedule, one)
            started += 1

    def _has_row(self, schedule: Schedule, one: Preview) -> bool:
        return self._tx.find_occurrence(schedule.id, one.planned_at) is not None

    def _add(self, schedule: Schedule, one: Preview) -> None:
        if one.planned_at > self.until:
            return
        insort(self._starts, PlannedStart(schedule, one), key=_order)
        if len(self._starts) > self._which.limit:
            self._starts.pop()
            self.cut(self._starts[-1].preview.planned_at)


def _order(one: PlannedStart) -> tuple[datetime, str]:
    return one.preview.planned_at, one.schedule.name


def _schedules(
    tx: Transaction, which: UpcomingFilter, state: ScheduleState
) -> Iterator[tuple[ScheduleRecord, Mapping[str, Calendar]]]:
    """Yield schedules by their next instants with the calendars that they name; reads only what is used."""
    wanted = ScheduleFilter(
        namespace=which.namespace, state=state, group=which.group, order="next", limit=MAX_SCHEDULES + 1
    )
    ids = [head.id for head in tx.select(OrderedSchedules(wanted))]
    for first in range(0, len(ids), PAGE_SCHEDULES):
        page = ids[first : first + PAGE_SCHEDULES]
        found = readable_schedules(tx, page)
        records = [found[one] for one in page if one in found]
        calendars = load_calendars(tx, [record.schedule for record in records])
        yield from ((record, calendars.for_schedule(record.schedule)) for record in records)


def _with_notes(tx: Transaction, namespace: str, starts: list[PlannedStart]) -> list[PlannedStart]:
    places = [(one.schedule.id, one.preview.planned_at) for one in starts]
    notes = notes_of_schedules(tx, places, namespace=namespace)
    return [
        PlannedStart(one.schedule, replace(one.preview, note=notes[place].text)) if place in notes else one
        for one, place in zip(starts, places, strict=True)
    ]


def _check_until(until: datetime | None, *, now: datetime) -> datetime:
    if until is None:
        return now + DEFAULT_WINDOW
    until = check_storable(until, field="until")
    if not now < until <= now + MAX_WINDOW:
        raise InvalidInput(
            f"until {format_instant(until)} is {'too far ahead' if until > now else 'not in the future'}",
            field="until",
            value=format_instant(until),
            rule=f"an instant in the next {MAX_WINDOW.days} days",
            fix="until: tomorrow 18:00",
        )
    return until


def _describe(one: PlannedStart, *, zone: str, pauses: PauseLookup) -> UpcomingOccurrence:
    """Return the row of a start: with its time in the zone, and marked while a pause holds it back."""
    schedule, preview = one.schedule, one.preview
    pause = pauses.active_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
    is_held = pause is not None and (pause.end is None or preview.planned_at < pause.end)
    shown = zone or (preview.zone if zone_of(schedule.trigger) else "")
    return UpcomingOccurrence(
        schedule=schedule.name,
        planned_at=preview.planned_at,
        fire_at=None if is_held else preview.fire_at,
        zone=shown,
        local=local_time(preview.planned_at, shown),
        source=preview.source,
        verdict="paused" if is_held else preview.verdict,
        reason=pauses.describe(schedule) if is_held else preview.reason,
        note=preview.note,
    )


class GetScheduleFeed(OperationRequest, frozen=True, kw_only=True):
    """Which schedules: all, with a tag, or of a group; and how many days ahead."""

    tag: str | None = None
    group: str | None = None
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class ScheduleFeed(Struct, frozen=True, kw_only=True):
    """The feed as text, how many events of how many schedules it has, and whether there are more."""

    text: str
    content_type: str
    schedules: int
    events: int
    until: datetime
    more: bool


@operations.read("schedule feed", scope="read", examples=({"tag": "daily", "days": 7},))
def schedule_feed(context: OperationContext, tx: Transaction, request: GetScheduleFeed) -> ScheduleFeed:
    """Return the next occurrences of schedules as an iCalendar text, for calendar programs."""
    now = context.now()
    which = UpcomingFilter(
        namespace=context.namespace,
        until=now + request.days * DAY,
        limit=MAX_FEED_EVENTS,
        limit_each=MAX_EVENTS_PER_SCHEDULE,
        tag=request.tag,
        group=request.group,
    )
    events, more = find_upcoming(tx, which, now=now)
    name = request.tag or request.group or context.namespace
    return ScheduleFeed(
        text=_to_ical(events, name=name, now=now),
        content_type="text/calendar; charset=utf-8",
        schedules=len({event.schedule.id for event in events}),
        events=len(events),
        until=which.until,
        more=more,
    )


def _to_ical(events: list[PlannedStart], *, name: str, now: datetime) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Timewright//schedule feed//EN", "METHOD:PUBLISH"]
    lines.append(f"X-WR-CALNAME:{_escape(name)}")
    for event in events:
        lines += _event(event.preview, event.schedule, now=now)
    lines.append("END:VCALENDAR")
    # Lines end with \n here; the HTTP interface converts them to \r\n.
    return "".join(f"{part}\n" for line in lines for part in _fold(line))


def _event(event: Preview, schedule: Schedule, *, now: datetime) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    # The key of an occurrence never changes, so a calendar program recognises it.
    yield f"UID:{occurrence_key(schedule.id, event.planned_at)}@timewright"
    yield f"DTSTAMP:{_stamp(now)}"
    yield f"DTSTART:{_stamp(event.fire_at or event.planned_at)}"
    yield f"DURATION:PT{max(int(_shown_duration(schedule).total_seconds()) // 60, 1)}M"
    yield f"SUMMARY:{_escape(schedule.name)}"
    parts = (event.note, schedule.trigger.describe(), schedule.description)
    description = "\n".join(part for part in parts if part)
    yield f"DESCRIPTION:{_escape(description)}"
    if schedule.tags:
        yield f"CATEGORIES:{','.join(map(_escape, schedule.tags))}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _shown_duration(schedule: Schedule) -> timedelta:
    """Return the displayed duration: the time limit, else 5 minutes, as the real one is unknown."""
    return min(schedule.lease.time_limit or timedelta(minutes=5), timedelta(minutes=15))


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}"


def _escape(text: str) -> str:
    plain = "".join(c for c in text if c == "\n" or c >= " ")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace(",", "\\,").replace(";", "\\;")


def _fold(line: str) -> Iterator[str]:
    """Fold a line into pieces of at most 75 bytes, without splitting a character."""
    piece = ""
    for letter in line:
        if len((piece + letter).encode()) > MAX_FEED_LINE_BYTES:
            yield piece
            piece = " "
        piece += letter
    yield piece
