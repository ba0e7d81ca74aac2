"""What operations answer about schedules and runs: the one shape of each, whatever the door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.decision import Candidate, Decision, Source
from timewright.core.forecast import Preview, forecast, forecast_on_time
from timewright.core.governor import is_steady
from timewright.core.hints import NO_HINTS
from timewright.core.run import Attempt, Run, RunState, run_key
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import AnyTrigger
from timewright.errors import UnreadableRow
from timewright.ledger.notes import notes_of
from timewright.ledger.shelf import calendars_for
from timewright.operations.ahead import with_additions
from timewright.operations.charges import ChargeRow, charges_of
from timewright.operations.dependencies import Downstream, Upstream, downstreams, upstreams
from timewright.operations.identity import once_for_each
from timewright.ports import Due, Transaction
from timewright.ports.looks import Look, Shown

NEXT_SHOWN = 5


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule as a list shows it."""

    id: str
    name: str
    group: str | None
    state: ScheduleState
    reason: str
    trigger: str
    target: str
    next_at: datetime | None
    source: Source | None
    paused_until: datetime | None
    last_finished_at: datetime | None
    failures: int
    runs: int
    revision: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]


class ScheduleDetail(Struct, frozen=True, kw_only=True):
    """A schedule with everything it says, where it stands, and what comes next."""

    schedule: Schedule
    standing: Standing
    trigger: str
    decision: str
    in_flight: int
    held: int
    next: tuple[Preview, ...]
    upstream: tuple[Upstream, ...] = ()
    downstream: tuple[Downstream, ...] = ()
    warnings: tuple[str, ...] = ()
    """What may not have been meant; told when it is written."""


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as a list shows it; an entry of a queue has no schedule."""

    id: str
    schedule: str
    schedule_id: str
    planned_at: datetime
    fire_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: RunState
    reason: str
    source: Source
    attempts: int
    fence: int
    queue: str
    priority: int
    holder: str
    lease_until: datetime | None
    cancel_at: datetime | None
    missed: int
    dropped: int
    last_of: datetime | None
    word: str
    error: str


_OF_A_RUN = tuple(name for name in RunRow.__struct_fields__ if name != "schedule")
_taken = attrgetter(*_OF_A_RUN)


class RunDetail(Struct, frozen=True, kw_only=True):
    """A run with its identity, why it came to be, and every ended lease."""

    run: RunRow
    key: str
    lane: str
    lease_id: str
    revision: int
    created_at: datetime
    backfill_of: str
    parent: str
    payload: Any
    trail: tuple[Candidate, ...]
    attempts: tuple[Attempt, ...]
    charges: tuple[ChargeRow, ...] = ()
    note: str = ""


def schedule_detail(tx: Transaction, look: Look, *, now: datetime) -> ScheduleDetail:
    """A schedule with its next occurrences, as admission would decide them, and who waits for whom."""
    due = look.due
    plan = _plan(due)
    if plan is not None and now < plan.until:
        detail = plan.detail
    else:
        calendars = calendars_for(tx, [due.schedule]).of(due.schedule)
        ahead = forecast(due.schedule, due.standing, now=now, count=NEXT_SHOWN, calendars=calendars)
        detail = _detail(due, ahead)
    ahead = detail.next
    if look.has_made or look.has_notes:
        ahead = with_additions(tx, due.schedule, ahead, now=now, count=NEXT_SHOWN)
    before = upstreams(tx, due.schedule)
    after = downstreams(tx, due.schedule) if look.is_asked_for else ()
    if ahead is detail.next and not before and not after:
        return detail
    return replace(detail, next=ahead, upstream=before, downstream=after)


def goes_on_as_planned(due: Due, *, now: datetime) -> bool:
    """Whether what comes next is the same at every instant until then: nothing is late, paused or moved."""
    plan = _plan(due)
    return plan is not None and now < plan.until


class _Plan(Struct, frozen=True, gc=False):
    """What a schedule shows as long as it goes on as planned."""

    until: datetime
    detail: ScheduleDetail


@once_for_each
def _plan(due: Due) -> _Plan | None:
    until = planned_until(due)
    return _Plan(until, _planned_detail(due)) if until is not None else None


def planned_until(due: Due) -> datetime | None:
    """The next instant of a schedule that its trigger alone decides; nothing if anything else has a say."""
    schedule, standing = due.schedule, due.standing
    ordinary = (
        standing.state is ScheduleState.ACTIVE
        and standing.next_at is not None
        and standing.next_at == standing.wake_at
        and standing.paused_at is None
        and standing.paused_until is None
        and standing.hints is NO_HINTS
        and schedule.calendar is None
        and not schedule.jitter
        and is_steady(schedule, standing)
    )
    if ordinary and schedule.trigger.next_after(standing.cursor) == standing.next_at:
        return standing.next_at
    return None


def _detail(due: Due, ahead: tuple[Preview, ...]) -> ScheduleDetail:
    schedule, standing = due.schedule, due.standing
    return ScheduleDetail(
        schedule=schedule,
        standing=standing,
        trigger=_described(schedule.trigger),
        decision=_decision(schedule, standing),
        in_flight=due.flight.live,
        held=due.flight.held,
        next=ahead,
    )


def _planned_detail(due: Due) -> ScheduleDetail:
    schedule, standing = due.schedule, due.standing
    ahead = forecast_on_time(schedule, standing, count=NEXT_SHOWN)
    if ahead is None:
        ahead = forecast(schedule, standing, now=standing.cursor, count=NEXT_SHOWN)
    return _detail(due, ahead)


@partial(once_for_each, most=256)
def schedule_rows(found: Sequence[Shown]) -> tuple[ScheduleRow, ...]:
    """Schedules as a list shows them."""
    return tuple(schedule_row(shown) for shown in found)


@once_for_each
def schedule_row(shown: Shown | Due) -> ScheduleRow:
    """A schedule as a list shows it."""
    schedule, standing = shown.schedule, shown.standing
    return ScheduleRow(
        id=schedule.id,
        name=schedule.name,
        group=schedule.group,
        state=standing.state,
        reason=standing.reason,
        trigger=_described(schedule.trigger),
        target=str(type(schedule.target).__struct_config__.tag),
        next_at=standing.next_at,
        source=standing.source,
        paused_until=standing.paused_until,
        last_finished_at=standing.last_finished_at,
        failures=standing.failures,
        runs=standing.runs,
        revision=schedule.revision,
        tags=schedule.tags,
        metadata=schedule.metadata,
    )


def run_row(run: Run, *, schedule: str) -> RunRow:
    """A run as a list shows it."""
    return RunRow(schedule=schedule, **dict(zip(_OF_A_RUN, _taken(run), strict=True)))


def run_detail(tx: Transaction, run: Run) -> RunDetail:
    """A run with its attempts."""
    return RunDetail(
        run=run_row(run, schedule=names_of_schedules(tx, [run]).get(run.schedule_id, "")),
        key=run_key(run),
        lane=run.lane,
        lease_id=run.lease_id,
        revision=run.revision,
        created_at=run.created_at,
        backfill_of=run.backfill_of,
        parent=run.parent,
        payload=run.payload,
        trail=run.trail,
        attempts=tx.get_attempts([run.id]).get(run.id, ()),
        charges=charges_of(tx, run),
        note=_note(tx, run),
    )


def _note(tx: Transaction, run: Run) -> str:
    """What someone wrote beside its occurrence."""
    if not run.schedule_id:
        return ""
    found = notes_of(tx, run.schedule_id, [run.planned_at], namespace=run.namespace)
    return found[run.planned_at].text if found else ""


def names_of_schedules(tx: Transaction, runs: Iterable[Run]) -> Mapping[str, str]:
    """The names that the schedules of runs have today, by id."""
    return tx.schedule_names({run.schedule_id for run in runs if run.schedule_id})


def readable_schedules(tx: Transaction, ids: Sequence[str]) -> dict[str, Due]:
    """Schedules by id; one that cannot be read keeps nobody from seeing the others."""
    if not ids:
        return {}
    try:
        return tx.get_schedules(ids)
    except UnreadableRow:
        if len(ids) == 1:
            return {}
        half = len(ids) // 2
        return {**readable_schedules(tx, ids[:half]), **readable_schedules(tx, ids[half:])}


@lru_cache(maxsize=4096)
def _described(trigger: AnyTrigger) -> str:
    """A trigger in words, which it is asked for with every list."""
    return trigger.describe()


def _decision(schedule: Schedule, standing: Standing) -> str:
    if standing.next_at is None and standing.source is Source.BASELINE_AFTER:
        return f"it runs {_described(schedule.trigger)}, and none has ended so since"
    if standing.source is None:
        return standing.reason or "nothing is decided yet"
    return Decision(standing.next_at, standing.source, standing.trail).explain()
