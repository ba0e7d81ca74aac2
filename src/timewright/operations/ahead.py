"""What comes next, with what people added to it: runs they made for an instant ahead, and their notes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.calendars import allowed_after
from timewright.core.forecast import Preview, preview_of
from timewright.core.schedule import Schedule, ScheduleState
from timewright.ledger.notes import notes_of
from timewright.ledger.shelf import calendars_for
from timewright.ports import Due, Transaction

MOST_MADE = 1_000

_TICK = timedelta(microseconds=1)


def with_additions(
    tx: Transaction,
    schedule: Schedule,
    previews: Sequence[Preview],
    *,
    now: datetime,
    count: int,
    until: datetime | None = None,
) -> tuple[Preview, ...]:
    """The occurrences ahead, with those that were moved or added by hand in their places, and every note."""
    made = [run for run in tx.runs_ahead([schedule.id], limit=MOST_MADE) if not run.fence]
    extra = [
        preview_of(schedule, run)
        for run in made
        if run.fire_at > now and (until is None or run.planned_at <= until)
    ]
    ahead = tuple(previews)
    if extra:
        ahead = tuple(sorted([*previews, *extra], key=lambda one: one.planned_at)[:count])
    notes = notes_of(tx, schedule.id, {one.planned_at for one in ahead}, namespace=schedule.namespace)
    if not notes:
        return ahead
    return tuple(
        replace(one, note=notes[one.planned_at].text) if one.planned_at in notes else one for one in ahead
    )


def nothing_left(tx: Transaction, due: Due) -> tuple[str, ...]:
    """That calendars, as they are now, leave a schedule nothing of what it has ahead."""
    schedule, standing = due.schedule, due.standing
    if schedule.calendar is None or standing.state is not ScheduleState.ACTIVE or standing.next_at is None:
        return ()
    before, calendars = standing.next_at - _TICK, calendars_for(tx, [schedule]).of(schedule)
    if allowed_after(schedule.trigger, before, rule=schedule.calendar, calendars=calendars) is not None:
        return ()
    names = ", ".join(schedule.calendar.names)
    return (f"{schedule.name} has nothing left to run: {names} exclude every occurrence to come",)
