"""Why an occurrence did not run: each reason in sentences, with the policy behind it and a way out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from timewright.core.calendars import Calendar, openings_of
from timewright.core.decision import Source
from timewright.core.encoding import plain
from timewright.core.moments import HOUR, spell_duration, spell_instant
from timewright.core.policies import CatchUp
from timewright.core.run import Reason, Run, RunState
from timewright.core.schedule import Schedule
from timewright.ports import Entry, Transaction

MOST_LOOKED_BACK = 50
MOST_LINES = 1000
EACH = (CatchUp.ALL, CatchUp.SPREAD)

SOURCES: Mapping[Source, str] = {
    Source.BASELINE_CRON: "its trigger says so",
    Source.BASELINE_INTERVAL: "its interval says so",
    Source.BASELINE_ONCE: "its one instant has come",
    Source.BASELINE_AFTER: "a run of the schedule it follows ended so",
    Source.AI_INTERVAL: "an interval hint was in force",
    Source.AI_ONESHOT: "a one-shot hint asked for it",
    Source.CLAMPED_MIN: "it was moved to the nearest instant its clamp allows",
    Source.CLAMPED_MAX: "it was moved to the furthest instant its clamp allows",
    Source.PAUSED: "a pause was over",
    Source.MANUAL: "someone asked for it",
    Source.BACKFILL: "someone asked for a backfill",
    Source.RETRY: "it was tried again",
}


class Remedy(Struct, frozen=True, kw_only=True):
    """What would change it: an operation with its request, and the same as a command."""

    operation: str
    request: dict[str, Any]
    command: str


class Told(Struct, frozen=True, kw_only=True):
    """Sentences, the policy fields that decided, and ways to change it."""

    because: tuple[str, ...]
    policy: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class Story(Struct, frozen=True, kw_only=True):
    """A row and what is needed to tell about it: its schedule as it was then, and the calendars it names."""

    tx: Transaction
    run: Run
    schedule: Schedule | None
    calendars: Mapping[str, Calendar]
    now: datetime
    closed: str = ""
    """Why nothing is leased from the queues of its namespace, if that is so."""


def remedy(operation: str, subject: tuple[str, str], **fields: Any) -> Remedy:
    """A way out as an operation on something, and as the command a person would type."""
    request = {subject[0]: subject[1], **fields}
    options = " ".join(_option(name, value) for name, value in fields.items())
    command = f"timewright {operation} {shlex.quote(subject[1])} {options}".rstrip()
    return Remedy(operation=operation, request=request, command=command)


def who_is_there() -> Remedy:
    """Where to look whether anybody runs what is due."""
    return Remedy(operation="instance list", request={}, command="timewright instance list")


def update(schedule: Schedule, **fields: Any) -> Remedy:
    """A change of policy as a way out."""
    return remedy("schedule update", ("schedule", schedule.name), **fields)


def policy_of(schedule: Schedule, fields: tuple[str, ...]) -> dict[str, Any]:
    """Some policies of a schedule, as plain data."""
    return {name: plain(getattr(schedule, name)) for name in fields}


def tell_skipped(story: Story) -> Told:
    """Why a row was skipped."""
    reason, schedule = story.run.reason, story.schedule
    if schedule is not None and reason in _BY_POLICY:
        return _BY_POLICY[reason](schedule)
    if schedule is not None and reason in _SKIPS:
        return _SKIPS[reason](story, schedule)
    return Told(because=(f"it was skipped: {reason or 'no reason was recorded'}",))


def last_change(tx: Transaction, namespace: str, subject: str, action: str, *, by: datetime) -> Entry | None:
    """The newest audit line about something, not after an instant, among the last thousand."""
    page = tx.find_audit(namespace=namespace, limit=MOST_LINES)
    return next((e for e in page.rows if (e.subject, e.action) == (subject, action) and e.at <= by), None)


def said_by(entry: Entry | None) -> str:
    """Who, when and why, as the end of a sentence."""
    if entry is None:
        return ""
    why = f": {entry.reason}" if entry.reason else ""
    return f" by {entry.actor} at {spell_instant(entry.at)}{why}"


def _overlap(story: Story, schedule: Schedule) -> Told:
    other = _under_way(story)
    which = "another run of it was"
    if other is not None:
        until = spell_instant(other.finished_at) if other.finished_at else "now, and still is"
        which = f"{other.id}, planned for {spell_instant(other.planned_at)}, was under way until {until}"
    return Told(
        because=(f"when it came due, {which}", "overlap: skip records the newer one and does not run it"),
        policy=("overlap", "lease"),
        remedies=(update(schedule, overlap="queue"), update(schedule, overlap="allow")),
    )


def _under_way(story: Story) -> Run | None:
    """The run of the schedule that was not finished when this row was written."""
    wanted = story.run.previous
    for _ in range(MOST_LOOKED_BACK):
        run = story.tx.get_runs([wanted]).get(wanted) if wanted else None
        if run is None:
            return None
        over = run.finished_at is not None and run.finished_at <= story.run.created_at
        if run.state is not RunState.SKIPPED and not over:
            return run
        wanted = run.previous
    return None


def _missed(story: Story, schedule: Schedule) -> Told:
    run = story.run
    late = run.created_at - run.planned_at
    because = [
        f"nobody looked until {spell_instant(run.created_at)}, {spell_duration(late)} after its time",
        f"catch_up: {schedule.catch_up.value} did not run it",
    ]
    window = schedule.catch_up_window
    if window is not None and late > window:
        because.append(f"nothing older than catch_up_window, {spell_duration(window)}, is caught up")
    elif late <= schedule.grace:
        because.append("its successor was due too, so it counts as missed and not as late")
    else:
        because.append(f"within a grace of {spell_duration(schedule.grace)} it would have run all the same")
    return Told(
        because=tuple(because),
        policy=("catch_up", "catch_up_window", "grace"),
        remedies=(
            *_catching_up(schedule, late),
            remedy("schedule backfill", ("schedule", schedule.name), **_span(run)),
        ),
    )


def _catching_up(schedule: Schedule, late: timedelta) -> tuple[Remedy, ...]:
    """The policy under which the same would be caught up another time."""
    fields: dict[str, Any] = {} if schedule.catch_up in EACH else {"catch_up": CatchUp.ALL.value}
    if schedule.catch_up_window is not None and late > schedule.catch_up_window:
        fields["catch_up_window"] = spell_duration(-(-late // HOUR) * HOUR)
    return (update(schedule, **fields),) if fields else ()


def _span(run: Run) -> dict[str, str]:
    return {"since": spell_instant(run.planned_at), "until": spell_instant(run.last_of or run.planned_at)}


def _paused(story: Story, schedule: Schedule) -> Told:
    run = story.run
    paused = last_change(story.tx, run.namespace, schedule.id, "schedule.pause", by=run.planned_at)
    hinted = last_change(story.tx, run.namespace, schedule.id, "schedule.hint", by=run.planned_at)
    who = max((e for e in (paused, hinted) if e is not None), key=lambda e: e.at, default=None)
    return Told(
        because=(f"the schedule was paused{said_by(who)}", "what lies inside a pause is never caught up"),
        remedies=(remedy("schedule backfill", ("schedule", schedule.name), **_span(run)),),
    )


def _queue_full(schedule: Schedule) -> Told:
    limit = schedule.queue_limit
    return Told(
        because=(f"{limit} of its runs were waiting already, as many as queue_limit allows",),
        policy=("overlap", "queue_limit"),
        remedies=(update(schedule, queue_limit=limit * 2),),
    )


def _superseded(schedule: Schedule) -> Told:
    return Told(
        because=("a newer occurrence took its place before it started", "overlap: replace keeps the newest"),
        policy=("overlap",),
        remedies=(update(schedule, overlap="queue"),),
    )


def _deadline(schedule: Schedule) -> Told:
    deadline = schedule.deadline
    spelled = spell_duration(deadline) if deadline is not None else "its deadline"
    return Told(
        because=(f"it could not start within {spelled} of its planned time",),
        policy=("deadline",),
        remedies=(update(schedule, deadline=spell_duration(deadline * 2)),) if deadline else (),
    )


def excluded_by(calendar: Calendar, at: datetime) -> str:
    """Which calendar excludes an instant, and what the day is called there."""
    called = calendar.name_at(at) if calendar.covers(at) else ""
    return f"calendar {calendar.name} excludes this instant" + (f": {called}" if called else "")


def _excluded(story: Story, schedule: Schedule) -> Told:
    rule = schedule.calendar
    closed_by = openings_of(rule, story.calendars).closed_by(story.run.planned_at) if rule else None
    because = "a calendar, as it was then, excludes this instant"
    if closed_by is not None:
        because = excluded_by(closed_by, story.run.planned_at)
    return Told(
        because=(because,),
        policy=("calendar",),
        remedies=(remedy("calendar get", ("calendar", closed_by.name)),) if closed_by is not None else (),
    )


def _by_hand(story: Story, schedule: Schedule) -> Told:
    run = story.run
    lines = [
        last_change(story.tx, run.namespace, schedule.id, f"schedule.{verb}", by=run.created_at)
        for verb in ("skip", "move")
    ]
    who = max((line for line in lines if line is not None), key=lambda line: line.at, default=None)
    return Told(
        because=(f"someone left it out{said_by(who)}",),
        remedies=(remedy("schedule run", ("schedule", schedule.name)),),
    )


_BY_POLICY: Mapping[str, Callable[[Schedule], Told]] = {
    Reason.QUEUE_FULL.value: _queue_full,
    Reason.SUPERSEDED.value: _superseded,
    Reason.DEADLINE.value: _deadline,
}
_SKIPS: Mapping[str, Callable[[Story, Schedule], Told]] = {
    Reason.OVERLAP.value: _overlap,
    Reason.MISSED.value: _missed,
    Reason.PAUSED.value: _paused,
    Reason.EXCLUDED.value: _excluded,
    Reason.BY_HAND.value: _by_hand,
}


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    return f"{flag} {shlex.quote('null' if value is None else str(value))}"
