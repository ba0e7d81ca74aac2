"""Forecast what is not decided yet, add manual runs and notes, and warn if calendars exclude everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import Calendar, allowed_after
from timewright.core.calendars.occurrences import NO_CALENDARS
from timewright.core.schedule.forecast import MAX_PREVIEWS, Preview, forecast, preview_run
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ledger.lookups import load_calendars
from timewright.ledger.records.notes import occurrence_notes
from timewright.ledger.schedule_progress import pass_decided
from timewright.ports import ScheduleRecord, Transaction

MAX_MANUAL_RUNS = 1_000

_MICROSECOND = timedelta(microseconds=1)


def forecast_undecided(
    tx: Transaction,
    schedule: Schedule,
    progress: ScheduleProgress,
    *,
    now: datetime,
    count: int,
    until: datetime | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> tuple[Preview, ...]:
    """Return the forecast without occurrences that have a row already.

    After an edit the cursor may lie before occurrences that were skipped by hand.
    """
    found = forecast(schedule, progress, now=now, count=count, until=until, calendars=calendars)
    if not any(one.planned_at and one.planned_at > now for one in tx.list_adjustments(schedule.id)):
        return found
    decided = sum(tx.find_occurrence(schedule.id, one.planned_at) is not None for one in found)
    if not decided:
        return found
    wider = min(count + decided, MAX_PREVIEWS)
    found = forecast(schedule, progress, now=now, count=wider, until=until, calendars=calendars)
    return tuple(one for one in found if tx.find_occurrence(schedule.id, one.planned_at) is None)


def without_skipped(
    tx: Transaction, record: ScheduleRecord, *, now: datetime, count: int
) -> tuple[ScheduleRecord, tuple[Preview, ...]]:
    """Return a schedule and its forecast without occurrences that were skipped by hand before an edit."""
    schedule, calendars = record.schedule, load_calendars(tx, [record.schedule])
    progress = pass_decided(tx, schedule, record.progress, calendars)
    named = calendars.for_schedule(schedule)
    found = forecast_undecided(tx, schedule, progress, now=now, count=count, calendars=named)
    return replace(record, progress=progress), found


def add_manual_runs_and_notes(
    tx: Transaction,
    schedule: Schedule,
    previews: Sequence[Preview],
    *,
    now: datetime,
    count: int,
    until: datetime | None = None,
) -> tuple[Preview, ...]:
    """Return the forecast with moved and manually added runs in order, and with notes."""
    manual_runs = [
        run for run in tx.future_manual_runs([schedule.id], limit=MAX_MANUAL_RUNS) if not run.fence
    ]
    manual = [
        preview_run(schedule, run)
        for run in manual_runs
        if run.fire_at > now and (until is None or run.planned_at <= until)
    ]
    upcoming = tuple(previews)
    if manual:
        upcoming = tuple(sorted([*previews, *manual], key=lambda one: one.planned_at)[:count])
    notes = occurrence_notes(
        tx, schedule.id, {one.planned_at for one in upcoming}, namespace=schedule.namespace
    )
    if not notes:
        return upcoming
    return tuple(
        replace(one, note=notes[one.planned_at].text) if one.planned_at in notes else one for one in upcoming
    )


def fully_excluded_warning(tx: Transaction, record: ScheduleRecord) -> tuple[str, ...]:
    """Return a warning if calendars exclude every future occurrence of a schedule, else nothing."""
    schedule, progress = record.schedule, record.progress
    if schedule.calendar is None or progress.state is not ScheduleState.ACTIVE or progress.next_at is None:
        return ()
    before, calendars = progress.next_at - _MICROSECOND, load_calendars(tx, [schedule]).for_schedule(schedule)
    if allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars) is not None:
        return ()
    names = ", ".join(schedule.calendar.names)
    return (f"{schedule.name} will not run again: {names} exclude every future occurrence",)
