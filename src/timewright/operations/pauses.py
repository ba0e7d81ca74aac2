"""Stopping schedules and letting them go on: pause, resume, archive, delete."""

from __future__ import annotations

from datetime import datetime

from timewright.ledger.replan import archive, pause, resume
from timewright.operations.context import Context, together
from timewright.operations.drafts import detail_of
from timewright.operations.find import find_schedule
from timewright.operations.registry import Named, Write, operations
from timewright.operations.views import ScheduleDetail


class Pause(Write, frozen=True, kw_only=True):
    """Which schedule, and until when; without an end until someone resumes it."""

    schedule: Named
    until: datetime | None = None


class Ask(Write, frozen=True, kw_only=True):
    """Which schedule."""

    schedule: Named


@operations.add(
    "schedule",
    "pause",
    Pause,
    scope="write",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "until": "2026-03-11T08:00:00Z", "reason": "audit"},
    ),
)
def pause_schedule(context: Context, ask: Pause) -> ScheduleDetail:
    """Stop a schedule until an instant, or until someone resumes it; work under way goes on."""
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        schedule_id = _id(inside, ask.schedule)
        by = inside.because(ask.reason)
        inside.tell(pause(inside.store, schedule_id, by=by, now=now, until=ask.until).facts)
        return detail_of(inside, schedule_id, now=now)

    return together(context, work)


@operations.add("schedule", "resume", Ask, scope="write", examples=({"schedule": "paused-export"},))
def resume_schedule(context: Context, ask: Ask) -> ScheduleDetail:
    """Let a paused or parked schedule go on; its failures are forgiven, what the pause covered is skipped."""
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        schedule_id = _id(inside, ask.schedule)
        by = inside.because(ask.reason)
        inside.tell(resume(inside.store, schedule_id, ids=inside.ids, by=by, now=now).facts)
        return detail_of(inside, schedule_id, now=now)

    return together(context, work)


@operations.add("schedule", "archive", Ask, scope="write", examples=({"schedule": "nightly-report"},))
def archive_schedule(context: Context, ask: Ask) -> ScheduleDetail:
    """Retire a schedule for good; its history stays, and its name is free for another."""
    return _archived(context, ask)


@operations.add("schedule", "delete", Ask, scope="write", examples=({"schedule": "nightly-report"},))
def delete_schedule(context: Context, ask: Ask) -> ScheduleDetail:
    """Delete a schedule, which is to archive it: nothing that happened is forgotten."""
    return _archived(context, ask)


def _id(context: Context, wanted: str) -> str:
    return context.store.read(lambda tx: find_schedule(tx, context.namespace, wanted)).schedule.id


def _archived(context: Context, ask: Ask) -> ScheduleDetail:
    now = context.now()

    def work(inside: Context) -> ScheduleDetail:
        schedule_id = _id(inside, ask.schedule)
        inside.tell(archive(inside.store, schedule_id, by=inside.because(ask.reason), now=now).facts)
        return detail_of(inside, schedule_id, now=now)

    return together(context, work)
