"""What operations answer about schedules and runs: the one shape of each, whatever the door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct

from timewright.core.decision import Candidate, Decision, Source
from timewright.core.forecast import Preview, forecast
from timewright.core.run import Attempt, Run, RunState, run_key
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import AnyTrigger
from timewright.errors import UnreadableRow
from timewright.ledger.shelf import calendars_for
from timewright.ports import Due, Transaction

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


def schedule_row(due: Due) -> ScheduleRow:
    """A schedule as a list shows it."""
    schedule, standing = due.schedule, due.standing
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


def schedule_detail(tx: Transaction, due: Due, *, now: datetime) -> ScheduleDetail:
    """A schedule with its next occurrences, as admission would decide them."""
    schedule, standing = due.schedule, due.standing
    calendars = calendars_for(tx, [schedule]).of(schedule)
    return ScheduleDetail(
        schedule=schedule,
        standing=standing,
        trigger=_described(schedule.trigger),
        decision=_decision(standing),
        in_flight=due.flight.live,
        held=due.flight.held,
        next=forecast(schedule, standing, now=now, count=NEXT_SHOWN, calendars=calendars),
    )


def run_row(run: Run, *, schedule: str) -> RunRow:
    """A run as a list shows it."""
    own = {name: getattr(run, name) for name in RunRow.__struct_fields__ if name != "schedule"}
    return RunRow(schedule=schedule, **own)


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
    )


def names_of_schedules(tx: Transaction, runs: Iterable[Run]) -> Mapping[str, str]:
    """The names that the schedules of runs have today, by id."""
    ids = sorted({run.schedule_id for run in runs if run.schedule_id})
    return {i: due.schedule.name for i, due in readable_schedules(tx, ids).items()}


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


def _decision(standing: Standing) -> str:
    if standing.source is None:
        return standing.reason or "nothing is decided yet"
    return Decision(standing.next_at, standing.source, standing.trail).explain()
