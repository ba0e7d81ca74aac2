"""What is known of an instant that has no row: ahead, not decided yet, or never meant to be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.backoff import Steady
from timewright.core.calendars import Calendar, Occurrence, occurrence_after, occurrence_before
from timewright.core.catch_up import Flight
from timewright.core.decision import Source
from timewright.core.due import open_from
from timewright.core.forecast import forecast
from timewright.core.governor import is_steady, paused_until
from timewright.core.moments import spell_duration, spell_instant
from timewright.core.policies import Overlap
from timewright.core.run import Run, RunState
from timewright.core.schedule import Schedule, ScheduleState, Standing
from timewright.core.triggers import After
from timewright.ledger.shelf import calendars_for
from timewright.operations.dependencies import tell_needs
from timewright.operations.reasons import SOURCES, excluded_by, remedy, who_is_there
from timewright.operations.standstill import Unwritten, nothing_planned, paused_for_now
from timewright.ports import Due, Transaction
from timewright.settings import Settings

MOST_REVISIONS = 1000
MOST_COUNTED = 1000

_TICK = timedelta(microseconds=1)
_NOW = {RunState.READY: "waits to start", RunState.HELD: "waits its turn", RunState.LEASED: "is under way"}


class _Asked(Struct, frozen=True, kw_only=True):
    """An instant of a schedule, with the words in force then and the calendars they name."""

    tx: Transaction
    schedule: Schedule
    standing: Standing
    calendars: Mapping[str, Calendar]
    at: datetime
    now: datetime

    @property
    def occurrence(self) -> Occurrence | None:
        """The occurrence that the trigger has at exactly this instant, if it has one."""
        found = occurrence_after(
            self.schedule.trigger, self.at - _TICK, rule=self.schedule.calendar, calendars=self.calendars
        )
        inside = self.schedule.window.contains(self.at)
        return found if found is not None and found.at == self.at and inside else None


def unwritten(
    tx: Transaction, due: Due, at: datetime | None, *, settings: Settings, now: datetime
) -> Unwritten:
    """What is known of an instant that has no row; without an instant, of the next."""
    if at is None and due.standing.next_at is None:
        return nothing_planned(tx, due, now=now)
    if at is None and due.standing.source is Source.PAUSED:
        return paused_for_now(tx, due, now=now)
    at = at or due.standing.next_at
    assert at is not None
    schedule = due.schedule if at > now else _in_force(tx, due, at)
    asked = _Asked(
        tx=tx,
        schedule=replace(schedule, name=due.schedule.name),
        standing=due.standing,
        calendars=calendars_for(tx, [schedule]).of(schedule),
        at=at,
        now=now,
    )
    found = _ahead(asked) if at > max(now, due.standing.cursor) else _behind(asked, settings=settings)
    return _with_neighbours(found, asked)


def _ahead(asked: _Asked) -> Unwritten:
    """An instant that is still to come."""
    schedule, standing, at = asked.schedule, asked.standing, asked.at
    if standing.state is not ScheduleState.ACTIVE and standing.paused_until is None:
        stopped = nothing_planned(asked.tx, Due(schedule, standing, Flight()), now=asked.now)
        return replace(stopped, at=at, words=stopped.words.replace("nothing is planned:", "will not run:"))
    if at == standing.next_at and standing.source is not Source.PAUSED:
        return _next(asked)
    if not is_steady(schedule, standing):
        return _depends(asked)
    found = asked.occurrence
    until = paused_until(standing, now=asked.now)
    if found is None:
        return _not_planned(asked)
    if until is not None and at < until:
        return _inside_pause(asked, until)
    if found.excluded:
        return _closed(asked, found)
    if schedule.max_runs is not None and not _reached(asked):
        why = (f"it may run {schedule.max_runs} times, and has or will have by then",)
        return Unwritten(at=at, fate="over", words="will not run", because=why, policy=("max_runs",))
    return _will_run(asked, f"its trigger says so: {schedule.trigger.describe()}")


def _inside_pause(asked: _Asked, until: datetime) -> Unwritten:
    return Unwritten(
        at=asked.at,
        fate="paused",
        words="will be skipped: paused",
        reason="paused",
        because=(f"it is paused until {spell_instant(until)}", "what lies inside a pause is never caught up"),
        remedies=(remedy("schedule resume", ("schedule", asked.schedule.name)),),
    )


def _next(asked: _Asked) -> Unwritten:
    """The instant that is decided to be next."""
    source = asked.standing.source
    because = [f"it is next because {SOURCES[source]}" if source is not None else "it is next"]
    for lost in asked.standing.trail:
        when = spell_instant(lost.at) if lost.at is not None else "nothing further"
        because.append(f"over {when} ({lost.source.value}): {lost.why}")
    if asked.standing.failures and not isinstance(asked.schedule.cadence, Steady):
        streak = f"{asked.standing.failures} in a row failed"
        because.append(f"{streak}: its cadence puts more time between them until one succeeds")
    found = asked.occurrence
    if found is not None and found.excluded:
        return _closed(asked, found)
    return _will_run(asked, *because)


def _will_run(asked: _Asked, *because: str) -> Unwritten:
    schedule = asked.schedule
    told = list(because)
    if schedule.jitter:
        told.append(f"jitter may move its start by up to {spell_duration(schedule.jitter)}")
    if schedule.start_at is not None and schedule.start_at > asked.now:
        told.append(f"nothing of it runs before its start_at, {spell_instant(schedule.start_at)}")
    first = _before_it(asked)
    if schedule.overlap is not Overlap.ALLOW:
        which = "a run before it is still under way then"
        if first is not None:
            which = f"{first.id}, which {_NOW[first.state]} now, is not over by then"
        told.append(f"if {which}, overlap: {schedule.overlap.value} decides")
    told += tell_needs(asked.tx, schedule, at=asked.at, now=asked.now)
    ways = [remedy("schedule skip", ("schedule", schedule.name))]
    if first is not None:
        ways.insert(0, remedy("run explain", ("run", first.id)))
    return Unwritten(
        at=asked.at,
        fate="planned",
        words="will run",
        because=tuple(told),
        policy=("overlap", "jitter", "catch_up"),
        remedies=tuple(ways) if asked.at == asked.standing.next_at else (),
    )


def _before_it(asked: _Asked) -> Run | None:
    """The run that is not over yet, if it is the next one that is asked about."""
    if asked.at != asked.standing.next_at:
        return None
    return next(iter(asked.tx.live_runs([asked.schedule.id])), None)


def _closed(asked: _Asked, found: Occurrence) -> Unwritten:
    return Unwritten(
        at=asked.at,
        fate="excluded",
        words="will be skipped: excluded",
        reason="excluded",
        because=(excluded_by(asked.calendars[found.excluded], asked.at),),
        policy=("calendar",),
        remedies=(remedy("calendar get", ("calendar", found.excluded)),),
    )


def _depends(asked: _Asked) -> Unwritten:
    """A schedule that hints, clamps, cadence or the end of runs may move decides one time after another."""
    following = asked.standing.next_at
    if following is not None and asked.at < following:
        return _not_planned(asked)
    because = (
        "hints, clamps, failures or the end of runs move this schedule: only its next time is decided",
    )
    policy = ("cadence", "clamp")
    return Unwritten(
        at=asked.at, fate="undecided", words="is not decided yet", because=because, policy=policy
    )


def _reached(asked: _Asked) -> bool:
    """Whether the schedule still has runs left at the instant, if nothing changes until then."""
    previews = forecast(
        asked.schedule,
        asked.standing,
        now=asked.now,
        count=MOST_COUNTED,
        until=asked.at,
        calendars=asked.calendars,
    )
    return any(one.planned_at == asked.at for one in previews) or len(previews) == MOST_COUNTED


def _not_planned(asked: _Asked) -> Unwritten:
    schedule, at = asked.schedule, asked.at
    if schedule.end_at is not None and at > schedule.end_at:
        why, policy = f"the schedule ends at {spell_instant(schedule.end_at)}", ("end_at",)
    elif schedule.start_at is not None and at < schedule.start_at:
        why, policy = f"the schedule starts at {spell_instant(schedule.start_at)}", ("start_at",)
    else:
        why, policy = f"its trigger has no such instant: {schedule.trigger.describe()}", ("trigger",)
    words = "is not planned" if at > asked.now else "was never planned"
    return Unwritten(at=at, fate="not_planned", words=words, because=(why,), policy=policy)


def _behind(asked: _Asked, *, settings: Settings) -> Unwritten:
    """An instant that is over, or that is decided already, and has no row."""
    schedule, standing, at = asked.schedule, asked.standing, asked.at
    if at <= schedule.created_at:
        return _before_its_time(asked)
    if asked.occurrence is None and at != standing.next_at:
        return _not_planned(asked)
    if at > open_from(standing):
        return _undecided(asked)
    if asked.now - at > settings.keep_history:
        kept = spell_duration(settings.keep_history)
        why = (f"history is kept for {kept}, and what became of it is forgotten",)
        return Unwritten(at=at, fate="forgotten", words="is too long ago", because=why)
    if schedule.adaptive or schedule.clamp.min or schedule.clamp.max or not is_steady(schedule, standing):
        why = ("a hint, a clamp or a cadence moved the schedule past it, so it was no occurrence",)
        policy = ("adaptive", "clamp", "cadence")
        return Unwritten(at=at, fate="displaced", words="was displaced", because=why, policy=policy)
    why = ("the trigger has this instant, and nothing is written about it",)
    return Unwritten(at=at, fate="unaccounted", words="has no record", because=why)


def _before_its_time(asked: _Asked) -> Unwritten:
    spelled = spell_instant(asked.at)
    name = ("schedule", asked.schedule.name)
    made_then = asked.at == asked.schedule.created_at
    why = f"the schedule was made at {spell_instant(asked.schedule.created_at)}"
    return Unwritten(
        at=asked.at,
        fate="not_planned",
        words="is when it was made" if made_then else "was before its time",
        because=(f"{why}, and its first occurrence is the one after that" if made_then else why,),
        remedies=(remedy("schedule backfill", name, since=spelled, until=spelled),),
    )


def _undecided(asked: _Asked) -> Unwritten:
    """Due, and nobody has looked: or nobody may, because the schedule stands still."""
    schedule, standing = asked.schedule, asked.standing
    if standing.state is not ScheduleState.ACTIVE:
        because = (f"the schedule is {standing.state.value}: {standing.reason or 'no reason was given'}",)
        resume = (remedy("schedule resume", ("schedule", schedule.name)),)
        words = f"did not run: the schedule is {standing.state.value}"
        fate = standing.state.value
        return Unwritten(at=asked.at, fate=fate, words=words, because=because, remedies=resume)
    late = spell_duration(asked.now - asked.at)
    because = (f"it came due {late} ago and no engine has looked since; is one running?",)
    words, ways = "is due and not decided yet", (who_is_there(),)
    return Unwritten(at=asked.at, fate="undecided", words=words, because=because, remedies=ways)


def _in_force(tx: Transaction, due: Due, at: datetime) -> Schedule:
    """What the schedule said at an instant."""
    revisions = tx.list_revisions(due.schedule.id, limit=MOST_REVISIONS)
    older = [schedule for schedule, written, *_ in revisions if written <= at]
    return older[0] if older else due.schedule


def _with_neighbours(found: Unwritten, asked: _Asked) -> Unwritten:
    """The same with the instants that the trigger has on either side."""
    rule, trigger = asked.schedule.calendar, asked.schedule.trigger
    if isinstance(trigger, After):
        # What follows a run depends on when it ends, and nobody knows that here.
        return found
    before = occurrence_before(trigger, asked.at, rule=rule, calendars=asked.calendars)
    after = occurrence_after(trigger, asked.at, rule=rule, calendars=asked.calendars)
    return replace(
        found,
        previous_at=before.at if before is not None else None,
        next_at=after.at if after is not None else None,
    )
