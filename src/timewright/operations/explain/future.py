"""Explain an instant that has no run: in the future, not decided yet, or never planned."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar, Occurrence, occurrence_after, occurrence_before
from timewright.core.moments import format_duration, format_instant
from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import Overlap
from timewright.core.recurrence.triggers import After
from timewright.core.run.catch_up import InFlightCounts
from timewright.core.run.run import Run, RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.due import undecided_after
from timewright.core.schedule.forecast import forecast
from timewright.core.schedule.governor import is_trigger_only, pause_end
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import load_pauses
from timewright.operations.explain.dependencies import explain_needs, whole_seconds
from timewright.operations.explain.idle import (
    UnrecordedOccurrence,
    explain_no_next_time,
    explain_timed_pause,
    pause_sentence,
)
from timewright.operations.explain.reasons import (
    SOURCE_REASONS,
    exclusion_reason,
    list_instances_remedy,
    pause_end_text,
    remedy,
    resume_remedy,
)
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.rows import LiveRuns
from timewright.ports.schedules import RevisionsOf
from timewright.settings import Settings

MAX_REVISIONS = 1000
MAX_PREVIEWS = 1000
WILL_RUN = "will run"

_MICROSECOND = timedelta(microseconds=1)
_NOW = {
    RunState.READY: "waits to start",
    RunState.HELD: "waits for an earlier run",
    RunState.LEASED: "is running",
}


class _Instant(Struct, frozen=True, kw_only=True):
    """An instant of a schedule, with the revision in force then and its calendars."""

    tx: Transaction
    schedule: Schedule
    progress: ScheduleProgress
    calendars: Mapping[str, Calendar]
    at: datetime
    now: datetime

    @property
    def record(self) -> ScheduleRecord:
        """The schedule and its progress, without its runs."""
        return ScheduleRecord(self.schedule, self.progress, InFlightCounts())

    @property
    def occurrence(self) -> Occurrence | None:
        """The occurrence of the trigger at exactly this instant, if there is one."""
        found = occurrence_after(
            self.schedule.trigger,
            self.at - _MICROSECOND,
            rule=self.schedule.calendar,
            calendars=self.calendars,
        )
        nested = self.schedule.window.contains(self.at)
        return found if found is not None and found.at == self.at and nested else None


def explain_unrecorded(
    tx: Transaction, record: ScheduleRecord, at: datetime | None, *, settings: Settings, now: datetime
) -> UnrecordedOccurrence:
    """Explain an instant that has no run; the default is the next occurrence."""
    paused = _explain_scoped_pause(tx, record, at, now=now)
    if paused is not None:
        return paused
    if at is None and record.progress.next_at is None:
        return _with_scoped_pause(tx, record, explain_no_next_time(tx, record, now=now), now=now)
    if at is None and record.progress.source is Source.PAUSED:
        return _with_scoped_pause(tx, record, explain_timed_pause(tx, record, now=now), now=now)
    at = at or record.progress.next_at
    assert at is not None
    schedule = record.schedule if at > now else _in_force(tx, record, at)
    instant = _Instant(
        tx=tx,
        schedule=replace(schedule, name=record.schedule.name),
        progress=record.progress,
        calendars=load_calendars(tx, [schedule]).for_schedule(schedule),
        at=at,
        now=now,
    )
    found = (
        _explain_future(instant)
        if at > max(now, record.progress.cursor)
        else _explain_past(instant, settings=settings)
    )
    return _with_neighbours(found, instant)


def _explain_scoped_pause(
    tx: Transaction, record: ScheduleRecord, at: datetime | None, *, now: datetime
) -> UnrecordedOccurrence | None:
    """Explain that a pause of a group or another scope holds, if one does at the instant."""
    schedule = record.schedule
    pause = load_pauses(tx, now=now).active_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
    when = at or record.progress.next_at
    if pause is None or when is None or record.progress.state is not ScheduleState.ACTIVE:
        return None
    # What came due before the pause and was not decided waits for its end too.
    waits = when == record.progress.next_at and when <= now
    if (when < pause.at and not waits) or (pause.until is not None and when >= pause.until):
        return None
    until = pause_end_text(pause)
    outcome = "are skipped" if pause.due == "skip" else "wait: catch_up decides when it ends"
    why = f" ({pause.reason})" if pause.reason else ""
    return UnrecordedOccurrence(
        at=when,
        status="paused",
        summary=f"nothing starts: {pause.describe()} is paused until {until}",
        reason="paused",
        because=(
            f"{pause.actor} paused it at {format_instant(pause.at)}{why}",
            f"occurrences that come due in it {outcome}",
        ),
        remedies=(resume_remedy(pause),),
    )


def _with_scoped_pause(
    tx: Transaction, record: ScheduleRecord, found: UnrecordedOccurrence, *, now: datetime
) -> UnrecordedOccurrence:
    """Add the pause of a group or another scope that holds a paused schedule too."""
    schedule = record.schedule
    pause = load_pauses(tx, now=now).active_for(schedule.namespace, queue=schedule.queue, schedule=schedule)
    if pause is None or record.progress.state is not ScheduleState.PAUSED:
        return found
    why = f"{pause.describe()} is paused too, until {pause_end_text(pause)}"
    return replace(found, because=(*found.because, why), remedies=(*found.remedies, resume_remedy(pause)))


def _explain_future(instant: _Instant) -> UnrecordedOccurrence:
    """Explain an instant in the future."""
    schedule, progress, at = instant.schedule, instant.progress, instant.at
    if progress.state is not ScheduleState.ACTIVE and progress.paused_until is None:
        idle = explain_no_next_time(instant.tx, instant.record, now=instant.now)
        return replace(idle, at=at, summary=idle.summary.replace("nothing is planned:", "will not run:"))
    if at == progress.next_at and progress.source is not Source.PAUSED:
        return _next(instant)
    if not is_trigger_only(schedule, progress):
        return _depends_on_events(instant)
    found = instant.occurrence
    until = pause_end(progress, now=instant.now)
    if found is None:
        return _not_planned(instant)
    if until is not None and at < until:
        return _inside_pause(instant, until)
    if found.excluded:
        return _excluded(instant, found)
    if schedule.max_runs is not None and not _within_max_runs(instant):
        why = (f"max_runs is {schedule.max_runs}, which is reached by then",)
        return UnrecordedOccurrence(
            at=at, status="ended", summary="will not run", because=why, policy=("max_runs",)
        )
    return _will_run(instant, f"it is an instant of its trigger: {schedule.trigger.describe()}")


def _inside_pause(instant: _Instant, until: datetime) -> UnrecordedOccurrence:
    return UnrecordedOccurrence(
        at=instant.at,
        status="paused",
        summary="will be skipped: paused",
        reason="paused",
        because=(
            pause_sentence(instant.tx, instant.record, now=instant.now),
            f"it is paused until {format_instant(until)}",
            "occurrences within a pause are not caught up",
        ),
        remedies=(remedy("schedule resume", ("schedule", instant.schedule.name)),),
    )


def _next(instant: _Instant) -> UnrecordedOccurrence:
    """Explain the next occurrence."""
    source = instant.progress.source
    because = [f"it is next because {SOURCE_REASONS[source]}" if source is not None else "it is next"]
    for rejected in instant.progress.trail:
        when = format_instant(rejected.at) if rejected.at is not None else "no further time"
        because.append(f"instead of {when} ({rejected.source.value}): {rejected.why}")
    if instant.progress.failures and not isinstance(instant.schedule.cadence, Steady):
        streak = f"{instant.progress.failures} consecutive runs failed"
        because.append(f"{streak}: its cadence lengthens the interval until one succeeds")
    found = instant.occurrence
    if found is not None and found.excluded:
        return _excluded(instant, found)
    return _will_run(instant, *because)


def _will_run(instant: _Instant, *because: str) -> UnrecordedOccurrence:
    schedule = instant.schedule
    sentences = list(because)
    if schedule.jitter:
        sentences.append(f"jitter may move its start by up to {format_duration(schedule.jitter)}")
    if schedule.start_at is not None and schedule.start_at > instant.now:
        sentences.append(f"it does not run before its start_at, {format_instant(schedule.start_at)}")
    active = _active_run(instant)
    if schedule.overlap is not Overlap.ALLOW:
        which = "an earlier run is still active then"
        if active is not None:
            which = f"{active.id}, which {_NOW[active.state]} now, has not ended by then"
        sentences.append(f"if {which}, overlap: {schedule.overlap.value} decides")
    sentences += explain_needs(instant.tx, schedule, at=instant.at, now=instant.now)
    remedies = [remedy("schedule skip", ("schedule", schedule.name))]
    if active is not None:
        remedies.insert(0, remedy("run explain", ("run", active.id)))
    return UnrecordedOccurrence(
        at=instant.at,
        status="planned",
        summary=WILL_RUN,
        because=tuple(sentences),
        policy=("overlap", "jitter", "catch_up"),
        remedies=tuple(remedies) if instant.at == instant.progress.next_at else (),
    )


def _active_run(instant: _Instant) -> Run | None:
    """Return the run that is still active, if the instant is the next occurrence."""
    if instant.at != instant.progress.next_at:
        return None
    return next(iter(instant.tx.select(LiveRuns([instant.schedule.id]))), None)


def _excluded(instant: _Instant, found: Occurrence) -> UnrecordedOccurrence:
    return UnrecordedOccurrence(
        at=instant.at,
        status="excluded",
        summary="will be skipped: excluded",
        reason="excluded",
        because=(exclusion_reason(instant.calendars[found.excluded], instant.at),),
        policy=("calendar",),
        remedies=(remedy("calendar get", ("calendar", found.excluded)),),
    )


def _depends_on_events(instant: _Instant) -> UnrecordedOccurrence:
    """Explain an instant of a schedule whose times depend on hints, clamps, cadence or ends of runs."""
    following = instant.progress.next_at
    if following is not None and instant.at < following:
        return _not_planned(instant)
    because = (
        "its times depend on hints, clamps, failures or the ends of runs, so only the next one is decided",
    )
    policy = ("cadence", "clamp")
    return UnrecordedOccurrence(
        at=instant.at, status="undecided", summary="is not decided yet", because=because, policy=policy
    )


def _within_max_runs(instant: _Instant) -> bool:
    """Return whether max_runs still allows a run at the instant, if nothing changes until then."""
    previews = forecast(
        instant.schedule,
        instant.progress,
        now=instant.now,
        count=MAX_PREVIEWS,
        until=instant.at,
        calendars=instant.calendars,
    )
    return any(one.planned_at == instant.at for one in previews) or len(previews) == MAX_PREVIEWS


def _not_planned(instant: _Instant) -> UnrecordedOccurrence:
    schedule, at = instant.schedule, instant.at
    if schedule.end_at is not None and at > schedule.end_at:
        why, policy = f"the schedule ends at {format_instant(schedule.end_at)}", ("end_at",)
    elif schedule.start_at is not None and at < schedule.start_at:
        why, policy = f"the schedule starts at {format_instant(schedule.start_at)}", ("start_at",)
    else:
        why, policy = f"it is not an instant of its trigger: {schedule.trigger.describe()}", ("trigger",)
    words = "is not planned" if at > instant.now else "was never planned"
    return UnrecordedOccurrence(at=at, status="not_planned", summary=words, because=(why,), policy=policy)


def _explain_past(instant: _Instant, *, settings: Settings) -> UnrecordedOccurrence:
    """Explain an instant in the past, or one that is already decided, without a run."""
    schedule, progress, at = instant.schedule, instant.progress, instant.at
    if at <= schedule.created_at:
        return _before_creation(instant)
    if instant.occurrence is None and at != progress.next_at:
        return _not_planned(instant)
    if at > undecided_after(progress):
        return _undecided(instant)
    if instant.now - at > settings.keep_history:
        retention = format_duration(settings.keep_history)
        why = (f"history is kept for {retention}, and its records have been deleted",)
        return UnrecordedOccurrence(at=at, status="forgotten", summary="is too long ago", because=why)
    if (
        schedule.adaptive
        or schedule.clamp.min
        or schedule.clamp.max
        or not is_trigger_only(schedule, progress)
    ):
        why = ("a hint, a clamp or a cadence moved the schedule past it, so it was not an occurrence",)
        policy = ("adaptive", "clamp", "cadence")
        return UnrecordedOccurrence(
            at=at, status="displaced", summary="was displaced", because=why, policy=policy
        )
    why = ("it is an instant of the trigger, but there is no record of it",)
    return UnrecordedOccurrence(at=at, status="unaccounted", summary="has no record", because=why)


def _before_creation(instant: _Instant) -> UnrecordedOccurrence:
    at_text = format_instant(instant.at)
    name = ("schedule", instant.schedule.name)
    is_creation = instant.at == instant.schedule.created_at
    why = f"the schedule was created at {format_instant(instant.schedule.created_at)}"
    because = [f"{why}, and its first occurrence comes after that" if is_creation else why]
    found = instant.occurrence
    if found is None:
        because.append(f"it is not an instant of its trigger: {instant.schedule.trigger.describe()}")
    backfill = remedy("schedule backfill", name, since=at_text, until=at_text)
    return UnrecordedOccurrence(
        at=instant.at,
        status="not_planned",
        summary="is when the schedule was created" if is_creation else "was before the schedule existed",
        because=tuple(because),
        remedies=(backfill,) if found is not None and not found.excluded else (),
    )


def _undecided(instant: _Instant) -> UnrecordedOccurrence:
    """Explain an instant that is due and not decided: no engine runs, or the schedule is not active."""
    schedule, progress = instant.schedule, instant.progress
    if progress.state is not ScheduleState.ACTIVE:
        because = (f"the schedule is {progress.state.value}: {progress.reason or 'no reason was given'}",)
        if progress.state is ScheduleState.PAUSED:
            because = (pause_sentence(instant.tx, instant.record, now=instant.now),)
        resume = (remedy("schedule resume", ("schedule", schedule.name)),)
        words = f"did not run: the schedule is {progress.state.value}"
        status = progress.state.value
        return UnrecordedOccurrence(
            at=instant.at, status=status, summary=words, because=because, remedies=resume
        )
    late = format_duration(whole_seconds(instant.now - instant.at))
    because = (f"it has been due for {late} and no engine has handled it; check that one is running",)
    words, remedies = "is due and not decided yet", (list_instances_remedy(),)
    return UnrecordedOccurrence(
        at=instant.at, status="undecided", summary=words, because=because, remedies=remedies
    )


def _in_force(tx: Transaction, record: ScheduleRecord, at: datetime) -> Schedule:
    """Return the revision of the schedule in force at an instant."""
    revisions = tx.select(RevisionsOf(record.schedule.id, limit=MAX_REVISIONS))
    older = [one.schedule for one in revisions if one.at <= at]
    return older[0] if older else record.schedule


def _with_neighbours(found: UnrecordedOccurrence, instant: _Instant) -> UnrecordedOccurrence:
    """Add the instants of the trigger before and after it, between the schedule's creation and its end."""
    rule, trigger, window = instant.schedule.calendar, instant.schedule.trigger, instant.schedule.window
    if isinstance(trigger, After):
        # The next time depends on when another run ends, which is unknown here.
        return found
    before = occurrence_before(trigger, instant.at, rule=rule, calendars=instant.calendars)
    after = occurrence_after(trigger, instant.at, rule=rule, calendars=instant.calendars)
    return replace(
        found,
        previous_at=before.at
        if before is not None and before.at >= instant.schedule.created_at and window.contains(before.at)
        else None,
        next_at=after.at if after is not None and window.contains(after.at) else None,
    )
