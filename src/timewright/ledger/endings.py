"""What the end of runs means for their schedules, and for whoever was held behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from timewright.core.admission import Flight
from timewright.core.backoff import Steady
from timewright.core.decision import Decision
from timewright.core.facts import Fact, RunFreed
from timewright.core.lifecycle import RunEvent, run_after, settle_schedule
from timewright.core.policies import Align
from timewright.core.run import Outcome, Run, RunState, Succeeded
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import Cron, Every
from timewright.ledger.following import pass_on
from timewright.ledger.shelf import Calendars, calendars_for, readable_schedules
from timewright.ledger.telling import about, schedule_moved, schedule_stopped
from timewright.ports import Change, Due, Stood, Transaction

MOST_FREED = 100

Ended = tuple[Run, Schedule | None]

_PERIODIC = (Cron, Every)


def hold_schedules(tx: Transaction, outcomes: Iterable[tuple[Schedule | None, Outcome]]) -> dict[str, Due]:
    """Lock the schedules whose standing these outcomes may move: before the runs, as everyone else does."""
    is_plain: dict[int, bool] = {}  # most runs of a batch have the same few schedules
    moved: list[str] = []
    for schedule, outcome in outcomes:
        if schedule is None:
            continue
        if id(schedule) not in is_plain:
            is_plain[id(schedule)] = _is_plain(schedule)
        if not (is_plain[id(schedule)] and isinstance(outcome, Succeeded)):
            moved.append(schedule.id)
    return readable_schedules(tx, moved)


def end_runs(
    tx: Transaction, ended: Sequence[Ended], *, now: datetime, held: Mapping[str, Due] | None = None
) -> list[Fact]:
    """Apply finished runs to their schedules, let go whoever waited for them, and tell who asked for an end.

    Most schedules only need their streak cleared; the others are in `held`, or are locked now.
    """
    mine = [(run, schedule) for run, schedule in ended if schedule is not None]
    if not mine:
        return []
    plain: list[str] = []
    moved: list[Run] = []
    for run, schedule in mine:
        known = held is not None and schedule.id not in held
        if run.state is RunState.SUCCEEDED and (known or _is_plain(schedule)):
            plain.append(schedule.id)
        else:
            moved.append(run)
    waits = tx.what_waits()
    if waits.failing:
        tx.clear_streaks(plain)
    if held is None:
        held = readable_schedules(tx, [run.schedule_id for run in moved])
    facts = _settle_schedules(tx, moved, held, now=now)
    if waits.held:
        ids = list({run.schedule_id for run, _ in mine})
        facts += let_go(tx, schedule_ids=ids, limit=len(ids), now=now)
    if waits.linked:
        facts += pass_on(tx, [run for run, _ in mine], now=now)
    return facts


def let_go(
    tx: Transaction, *, now: datetime, limit: int = MOST_FREED, schedule_ids: Sequence[str] | None = None
) -> list[Fact]:
    """The first held run of each schedule that has nothing under way becomes ready.

    It may fire from now on: until now it waited for its predecessor, and nobody was late with it.
    """
    first = tx.freeable_runs(limit=limit, schedule_ids=schedule_ids)
    freed = tx.change_runs([_freed(run, now=now) for run in first])
    return [RunFreed(**about(run, now=now)) for run in first if run.id in freed]


def _freed(run: Run, *, now: datetime) -> Change:
    after = replace(run, state=run_after(run.state, RunEvent.FREE), fire_at=max(run.fire_at, now))
    return Change(after, run.state, run.fence)


def _settle_schedules(
    tx: Transaction, moved: Sequence[Run], held: Mapping[str, Due], *, now: datetime
) -> list[Fact]:
    concerned = [run for run in moved if run.schedule_id in held]
    if not concerned:
        return []
    flights = tx.in_flight({run.schedule_id for run in concerned})
    calendars = calendars_for(tx, [due.schedule for due in held.values()])
    facts: list[Fact] = []
    stood: dict[str, Standing] = {}
    for run in concerned:
        due = held[run.schedule_id]
        before = stood.get(run.schedule_id, due.standing)
        idle = flights.get(run.schedule_id, Flight()) == Flight()
        after, told = _after(run, due, before, idle=idle, calendars=calendars, now=now)
        stood[run.schedule_id] = after
        facts += told
    tx.stand([Stood(schedule_id, standing) for schedule_id, standing in stood.items()])
    return facts


def _after(
    run: Run, due: Due, before: Standing, *, idle: bool, calendars: Calendars, now: datetime
) -> tuple[Standing, list[Fact]]:
    """Where a schedule stands after one of its runs; one that never started leaves a planned time alone."""
    if run.state in (RunState.CANCELLED, RunState.SKIPPED) and not run.started_at and before.next_at:
        return before, []
    schedule = due.schedule
    try:
        standing, decision = settle_schedule(
            schedule, before, run, now=now, alone=idle, calendars=calendars.of(schedule)
        )
    except Exception as error:  # noqa: BLE001 - one schedule's error stops that schedule and no other
        standing, decision = parked(before, str(error)), None
    return standing, _told(schedule, before, standing, decision, now=now)


def parked(standing: Standing, reason: str) -> Standing:
    """The standing of a schedule that cannot be decided; it is kept, and waits for a person."""
    return replace(standing, state=ScheduleState.PARKED, reason=reason[:2000], next_at=None, wake_at=None)


def _told(
    schedule: Schedule, before: Standing, after: Standing, decision: Decision | None, *, now: datetime
) -> list[Fact]:
    if after.state is not before.state:
        return [schedule_stopped(schedule, after, now=now)]
    if decision is None:
        return []
    return [schedule_moved(schedule, decision, now=now)]


def _is_plain(schedule: Schedule) -> bool:
    """Whether a success can change nothing about the schedule but its streak."""
    return (
        isinstance(schedule.trigger, _PERIODIC)
        and schedule.align is Align.GRID
        and isinstance(schedule.cadence, Steady)
        and not schedule.adaptive
        and schedule.end_at is None
        and schedule.max_runs is None
        and schedule.calendar is None
    )
