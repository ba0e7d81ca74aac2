"""Why a schedule stands still: paused, parked, over, or only run by hand."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from timewright.core.following import follows
from timewright.core.forecast import forecast
from timewright.core.moments import spell_instant
from timewright.core.schedule import ScheduleState
from timewright.core.triggers import Manual
from timewright.ledger.shelf import calendars_for
from timewright.operations.dependencies import tell_awaited
from timewright.operations.reasons import Remedy, last_change, remedy, said_by
from timewright.ports import Due, Transaction


class Unwritten(Struct, frozen=True, kw_only=True):
    """What an instant without a row is, in words, and why."""

    at: datetime | None
    fate: str
    words: str
    reason: str = ""
    because: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    previous_at: datetime | None = None
    next_at: datetime | None = None


def nothing_planned(tx: Transaction, due: Due, *, now: datetime) -> Unwritten:
    """Why a schedule has no next time: paused, parked, over, or only by hand."""
    schedule, standing = due.schedule, due.standing
    name = ("schedule", schedule.name)
    if standing.state is ScheduleState.PAUSED:
        line = last_change(tx, schedule.namespace, schedule.id, "schedule.pause", by=now)
        return Unwritten(
            at=None,
            fate="paused",
            words="nothing is planned: it is paused until someone resumes it",
            reason=standing.reason,
            because=(f"it was paused{said_by(line)}",),
            remedies=(remedy("schedule resume", name),),
        )
    if standing.state is ScheduleState.PARKED:
        return _parked(due)
    if isinstance(schedule.trigger, Manual):
        why = ("its trigger is manual, so it runs only when asked",)
        asks = (remedy("schedule run", name),)
        return Unwritten(at=None, fate="over", words="nothing is planned", because=why, remedies=asks)
    if standing.state is ScheduleState.ACTIVE and follows(schedule.trigger):
        told = tell_awaited(tx, schedule)
        words = f"nothing is planned yet: it runs {schedule.trigger.describe()}"
        return Unwritten(at=None, fate="undecided", words=words, because=told, policy=("trigger",))
    why = (standing.reason or f"{schedule.trigger.describe()} has nothing further",)
    words = f"nothing is planned: it is {standing.state.value}"
    return Unwritten(
        at=None, fate="over", words=words, reason=standing.reason, because=why, policy=("end_at", "max_runs")
    )


def paused_for_now(tx: Transaction, due: Due, *, now: datetime) -> Unwritten:
    """A pause that ends by itself: until when, who asked for it, and what comes first after it."""
    schedule, standing = due.schedule, due.standing
    by_hand = standing.state is ScheduleState.PAUSED
    action = "schedule.pause" if by_hand else "schedule.hint"
    line = last_change(tx, schedule.namespace, schedule.id, action, by=now)
    calendars = calendars_for(tx, [schedule]).of(schedule)
    ahead = forecast(schedule, standing, now=now, count=1000, calendars=calendars)
    until = spell_instant(standing.next_at) if standing.next_at is not None else "its end"
    return Unwritten(
        at=standing.next_at,
        fate="paused",
        words=f"nothing runs before: it is paused until {until}",
        reason=standing.reason,
        because=(f"it was paused{said_by(line)}", "what lies inside a pause is never caught up"),
        remedies=(remedy("schedule resume" if by_hand else "hint clear", ("schedule", schedule.name)),),
        next_at=next((one.planned_at for one in ahead if one.fire_at is not None), None),
    )


def _parked(due: Due) -> Unwritten:
    reason = due.standing.reason
    return Unwritten(
        at=None,
        fate="parked",
        words="nothing is planned: it stopped by itself and waits for a person",
        reason=reason,
        because=(reason or "no reason was recorded",),
        policy=("disable_after",),
        remedies=(remedy("schedule resume", ("schedule", due.schedule.name)),),
    )
