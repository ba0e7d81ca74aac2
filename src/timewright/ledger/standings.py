"""Where a schedule stands after someone changed something about it; decides, and writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from timewright.core.admission import Flight
from timewright.core.calendars import check_rule
from timewright.core.decision import Decision, Source
from timewright.core.governor import is_steady, nudged, paused_until, plan_next
from timewright.core.hints import Hints, IntervalHint, OneShotHint, PauseHint
from timewright.core.policies import JitterSide
from timewright.core.schedule import (
    Schedule,
    ScheduleEvent,
    ScheduleState,
    Standing,
    decided,
    opening,
    schedule_after,
)
from timewright.core.triggers import After, Manual
from timewright.errors import NotAllowed
from timewright.ledger.shelf import Calendars
from timewright.ports import Due

_TICK = timedelta(microseconds=1)
# The words that say when a schedule runs.
_PLAN = ("trigger", "start_at", "end_at", "calendar")

Wish = IntervalHint | OneShotHint | PauseHint


def opened(schedule: Schedule, calendars: Calendars, *, now: datetime) -> Standing:
    """A new schedule, with its first decision."""
    _check_calendar(schedule, calendars, now=now)
    standing = opening(schedule)
    # From the cursor on: that is when it was made, or before if a past instant was asked for on purpose.
    standing = _decided(schedule, standing, calendars, now=min(now, standing.cursor))
    return finished_if_over(schedule, standing, flight=Flight())


def revised(due: Due, schedule: Schedule, calendars: Calendars, *, now: datetime) -> Standing:
    """After an edit: what is decided stays so, and the new words hold from the first instant still open."""
    _check_calendar(schedule, calendars, now=now)
    standing = due.standing
    if standing.state is ScheduleState.FINISHED:
        standing = replace(standing, state=schedule_after(standing.state, ScheduleEvent.REVIVE), reason="")
    if standing.state is not ScheduleState.ACTIVE:
        begins = _begins_anew(due, schedule, now=now)
        return standing if begins is None else replace(standing, cursor=begins)
    looks_from = now if standing.next_at is None else min(now, standing.next_at - _TICK)
    standing = replace(standing, cursor=_taken_over(due, schedule, at=looks_from, now=now))
    standing = _decided(schedule, standing, calendars, now=looks_from)
    return finished_if_over(schedule, standing, flight=due.flight)


def owes_a_decision(due: Due, schedule: Schedule, *, now: datetime) -> bool:
    """Whether an instant has come that the new words cannot plan again, because they count from elsewhere."""
    standing = due.standing
    waits = standing.wake_at is not None and standing.wake_at <= now
    is_active = standing.state is ScheduleState.ACTIVE
    return is_active and waits and _is_due(standing, now=now) and not is_steady(schedule, standing)


def _taken_over(due: Due, schedule: Schedule, *, at: datetime, now: datetime) -> datetime:
    """From where on new words hold.

    In a pause that was wished nothing is passed over: its end records it all.
    """
    begins, cursor = _begins_anew(due, schedule, now=now), due.standing.cursor
    if begins is not None:
        return begins
    return cursor if due.standing.source is Source.PAUSED else max(cursor, at)


def _begins_anew(due: Due, schedule: Schedule, *, now: datetime) -> datetime | None:
    """Where a plan begins that takes the place of one of which instants ahead were left out by hand.

    The cursor stands behind those; another plan may have others before, also for one that is paused.
    """
    is_ahead = due.standing.cursor > now + _early(due.schedule)
    differs = any(getattr(schedule, field) != getattr(due.schedule, field) for field in _PLAN)
    return max(now, opening(schedule).cursor) if is_ahead and differs else None


def _early(schedule: Schedule) -> timedelta:
    """How long before its instant an occurrence may be admitted."""
    return schedule.jitter if schedule.jitter_side is JitterSide.BOTH else timedelta(0)


def paused(due: Due, calendars: Calendars, *, until: datetime | None, reason: str, now: datetime) -> Standing:
    """After a pause by hand; a second one goes on from the beginning of a first that is not over."""
    before = due.standing
    state = before.state
    if state is not ScheduleState.PAUSED:
        state = schedule_after(state, ScheduleEvent.PAUSE)
    # Over is what has ended and was decided: until then its instants must not be taken for missed ones.
    is_over = before.paused_until is not None and before.paused_until <= min(now, before.cursor)
    began = now if before.paused_at is None or is_over else before.paused_at
    standing = replace(before, state=state, reason=reason, paused_at=began, paused_until=until)
    if until is None:
        return decided(due.schedule, standing, Decision(None, Source.PAUSED))
    return _decided(due.schedule, standing, calendars, now=now)


def held_back(standing: Standing, *, now: datetime) -> Standing:
    """A schedule that may be resumed, as one that is paused; any other is refused.

    While it was parked nothing was decided: to its instants that was a pause, and they get their rows.
    """
    if standing.state is ScheduleState.ACTIVE and paused_until(standing, now=now) is not None:
        return standing
    schedule_after(standing.state, ScheduleEvent.RESUME)
    began = standing.paused_at or standing.cursor
    return replace(standing, state=ScheduleState.PAUSED, paused_at=began)


def check_adaptive(schedule: Schedule) -> None:
    """Refuse a hint for a schedule that takes none."""
    if not schedule.adaptive:
        raise NotAllowed(
            f"schedule {schedule.name} does not take hints",
            field="adaptive",
            value=False,
            rule="hints are off until a schedule turns them on",
            fix=f"schedule update {schedule.name} --adaptive",
        )


def wished(due: Due, wish: Wish, calendars: Calendars, *, now: datetime) -> Standing:
    """After a hint: the next time may come nearer at once, and a pause moves it to its end."""
    schedule = due.schedule
    check_adaptive(schedule)
    standing = replace(due.standing, hints=_with_wish(due.standing.hints, wish, now=now))
    if standing.state is not ScheduleState.ACTIVE:
        return standing
    proposal = plan_next(schedule, standing, now=now, calendars=calendars.of(schedule))
    if not isinstance(wish, PauseHint):
        current = Decision(standing.next_at, standing.source or proposal.source, standing.trail)
        proposal = nudged(current, proposal)
    return decided(schedule, standing, proposal)


def without_hints(due: Due, calendars: Calendars, *, now: datetime) -> Standing:
    """After every wish is forgotten; a pause that was wished is over now."""
    pause = due.standing.hints.pause
    over = replace(pause, until=min(pause.until, now)) if pause is not None else None
    standing = replace(due.standing, hints=Hints(pause=over))
    if standing.state is not ScheduleState.ACTIVE or _is_due(standing, now=now):
        return standing
    if over is not None:
        # At the end of a pause the next admission records what it held back, and decides.
        return decided(due.schedule, standing, Decision(now, Source.PAUSED))
    return _decided(due.schedule, standing, calendars, now=now)


def finished_if_over(schedule: Schedule, standing: Standing, *, flight: Flight) -> Standing:
    """A schedule with nothing ahead and nothing under way is finished."""
    waits = standing.next_at is not None or isinstance(schedule.trigger, Manual | After)
    if waits or flight != Flight() or standing.state is not ScheduleState.ACTIVE:
        return standing
    return replace(standing, state=ScheduleState.FINISHED, reason="nothing further is planned")


def _decided(schedule: Schedule, standing: Standing, calendars: Calendars, *, now: datetime) -> Standing:
    decision = plan_next(schedule, standing, now=now, calendars=calendars.of(schedule))
    return decided(schedule, standing, decision)


def _is_due(standing: Standing, *, now: datetime) -> bool:
    """Whether an instant has come that nobody has decided yet: it stays due, whatever changes."""
    return standing.next_at is not None and standing.next_at <= now


def _check_calendar(schedule: Schedule, calendars: Calendars, *, now: datetime) -> None:
    if schedule.calendar is not None:
        check_rule(schedule.trigger, schedule.calendar, calendars=calendars.of(schedule), now=now)


def _with_wish(hints: Hints, wish: Wish, *, now: datetime) -> Hints:
    if isinstance(wish, IntervalHint):
        return replace(hints, interval=wish)
    if isinstance(wish, OneShotHint):
        return replace(hints, one_shot=wish)
    # A pause that follows another without a gap goes on from its beginning.
    began = hints.pause.created_at if hints.pause is not None else None
    return replace(hints, pause=replace(wish, created_at=began or wish.created_at or now))
