"""Why a schedule stands still: paused, parked, over, or only run by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from timewright.core.following import follows
from timewright.core.forecast import forecast
from timewright.core.moments import spell_instant
from timewright.core.schedule import ScheduleState
from timewright.core.triggers import Manual
from timewright.ledger.shelf import calendars_for
from timewright.operations.dependencies import tell_awaited
from timewright.operations.reasons import Remedy, last_change, remedy, said_by, update
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
            remedies=(*_with_its_group(due), remedy("schedule resume", name)),
        )
    if standing.state in _STANDS:
        return _STANDS[standing.state](tx, due, now)
    if isinstance(schedule.trigger, Manual):
        why = ("its trigger is manual, so it runs only when asked",)
        asks = (remedy("schedule run", name),)
        return Unwritten(at=None, fate="over", words="nothing is planned", because=why, remedies=asks)
    if standing.state is ScheduleState.ACTIVE and follows(schedule.trigger):
        told = tell_awaited(tx, schedule)
        words = f"nothing is planned yet: it runs {schedule.trigger.describe()}"
        return Unwritten(at=None, fate="undecided", words=words, because=told, policy=("trigger",))
    return _over(tx, due, now)


def _with_its_group(due: Due) -> tuple[Remedy, ...]:
    """The way out for all that stand still with it, where the whole group was paused."""
    group = due.schedule.group
    together = group is not None and due.standing.reason.startswith(f"group {group}: ")
    return (remedy("group resume", ("group", group)),) if group is not None and together else ()


def _over(_tx: Transaction, due: Due, now: datetime) -> Unwritten:
    """Nothing further: because it has had its runs, because its end has passed, or by its trigger."""
    schedule, standing = due.schedule, due.standing
    why = standing.reason or f"{schedule.trigger.describe()} has nothing further"
    remedies: tuple[Remedy, ...] = ()
    if schedule.max_runs is not None and standing.runs >= schedule.max_runs:
        why = f"it has had all its runs: max_runs is {schedule.max_runs}"
        remedies = (update(schedule, max_runs=standing.runs + 1),)
    elif schedule.end_at is not None and schedule.end_at <= now:
        why = f"its end_at, {spell_instant(schedule.end_at)}, has passed"
        remedies = (update(schedule, end_at=None),)
    return Unwritten(
        at=None,
        fate="over",
        words=f"nothing is planned: it is {standing.state.value}",
        reason=standing.reason,
        because=(why,),
        policy=("end_at", "max_runs"),
        remedies=remedies,
    )


def _archived(tx: Transaction, due: Due, now: datetime) -> Unwritten:
    schedule = due.schedule
    lines = [last_change(tx, schedule.namespace, schedule.id, action, by=now) for action in _ARCHIVING]
    who = max((line for line in lines if line is not None), key=lambda line: line.at, default=None)
    return Unwritten(
        at=None,
        fate="over",
        words="nothing is planned: it is archived",
        reason=due.standing.reason,
        because=(f"it was archived{said_by(who)}", "its history stays, and another may take its name"),
    )


def _pending(_tx: Transaction, due: Due, _now: datetime) -> Unwritten:
    schedule = due.schedule
    name = ("schedule", schedule.name)
    return Unwritten(
        at=None,
        fate="pending_approval",
        words="nothing is planned: it waits for approval",
        reason=due.standing.reason,
        because=(f"{schedule.created_by} made it as {schedule.origin}, and nobody has approved it yet",),
        remedies=(remedy("approval approve", name), remedy("approval reject", name)),
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


def _parked(_tx: Transaction, due: Due, _now: datetime) -> Unwritten:
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


_ARCHIVING = ("schedule.archive", "schedule.delete")
_STANDS: Mapping[ScheduleState, Callable[[Transaction, Due, datetime], Unwritten]] = {
    ScheduleState.PARKED: _parked,
    ScheduleState.FINISHED: _over,
    ScheduleState.ARCHIVED: _archived,
    ScheduleState.PENDING_APPROVAL: _pending,
}
