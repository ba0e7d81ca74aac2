"""Approval of new schedules: hold before the first run, approve, reject."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from timewright.core.alerts.channels import Message
from timewright.core.facts import Fact, ScheduleChanged
from timewright.core.finding import command_line
from timewright.core.recurrence.triggers import After
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.governor import plan_next
from timewright.core.schedule.schedule import (
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    next_schedule_state,
)
from timewright.ledger.alerts.deliveries import deliver_messages
from timewright.ledger.dependencies.links import remove_links
from timewright.ledger.fact_builders import schedule_moved_fact
from timewright.ledger.lookups import CalendarLookup, load_calendars, lock_schedule
from timewright.ledger.replacement import cancel_unstarted
from timewright.ledger.replan import Actor, ChangeResult, schedule_audit_entry
from timewright.ledger.schedule_progress import finish_if_nothing_left
from timewright.ports import ProgressUpdate, ScheduleRecord, Store, Transaction

WAITING_REASON = "waits for approval"


def hold_for_approval(store: Store, schedule_id: str, *, by: Actor, now: datetime) -> ChangeResult:
    """Hold a new schedule until a person approves it; nothing of it is planned until then."""

    def work(tx: Transaction) -> ChangeResult:
        record = lock_schedule(tx, schedule_id)
        progress = replace(
            record.progress,
            state=ScheduleState.PENDING_APPROVAL,
            reason=WAITING_REASON,
            next_at=None,
            wake_at=None,
            source=None,
            trail=(),
        )
        _ask_for_approval(tx, record, by=by, now=now)
        return _write(tx, record, progress, "hold", by=by, now=now)

    return store.write(work)


def _ask_for_approval(tx: Transaction, record: ScheduleRecord, *, by: Actor, now: datetime) -> None:
    """Tell the channels that ask for `approval-wanted`."""
    name = record.schedule.name
    message = Message(
        type="approval-wanted",
        at=now,
        namespace=record.schedule.namespace,
        sentence=f"{name} was created by {by.name or 'an agent'} and waits for approval",
        schedule=name,
        group=record.schedule.group or "",
        remedy=command_line("approval", "list", namespace=record.schedule.namespace),
    )
    deliver_messages(tx, [message], identity=f"approval:{record.schedule.id}", now=now)


def approve(store: Store, schedule_id: str, *, by: Actor, now: datetime) -> ChangeResult:
    """Activate a schedule from now on; occurrences before the approval are not caught up."""

    def work(tx: Transaction) -> ChangeResult:
        record = lock_schedule(tx, schedule_id)
        progress = progress_after_approval(record, load_calendars(tx, [record.schedule]), now=now)
        moved = Decision(progress.next_at, progress.source or Source.MANUAL)
        fact = schedule_moved_fact(record.schedule, moved, now=now)
        return _write(tx, record, progress, "approve", by=by, now=now, further=(fact,))

    return store.write(work)


def reject(store: Store, schedule_id: str, *, by: Actor, now: datetime) -> ChangeResult:
    """Reject a schedule: it is archived without ever running."""

    def work(tx: Transaction) -> ChangeResult:
        record = lock_schedule(tx, schedule_id)
        state = next_schedule_state(record.progress.state, ScheduleEvent.REJECT)
        progress = replace(record.progress, state=state, reason=by.reason or "rejected")
        remove_links(tx, record)
        cancelled = cancel_unstarted(tx, schedule_id, now=now)
        return _write(tx, record, progress, "reject", by=by, now=now, further=tuple(cancelled))

    return store.write(work)


def progress_after_approval(
    record: ScheduleRecord, calendars: CalendarLookup, *, now: datetime
) -> ScheduleProgress:
    """The progress of a schedule after its approval: as if it were created now."""
    schedule = record.schedule
    state = next_schedule_state(record.progress.state, ScheduleEvent.APPROVE)
    progress = replace(record.progress, state=state, reason="")
    if not isinstance(schedule.trigger, After):
        # A delay counts from the creation: moving the cursor would lose it.
        progress = replace(progress, cursor=max(progress.cursor, now))
    decision = plan_next(schedule, progress, now=now, calendars=calendars.for_schedule(schedule))
    return finish_if_nothing_left(
        schedule, apply_decision(schedule, progress, decision), in_flight=record.in_flight
    )


def _write(
    tx: Transaction,
    record: ScheduleRecord,
    progress: ScheduleProgress,
    action: str,
    *,
    by: Actor,
    now: datetime,
    further: tuple[Fact, ...] = (),
) -> ChangeResult:
    schedule = record.schedule
    tx.save_progress([ProgressUpdate(schedule.id, progress)])
    before, after = record.progress.state.value, progress.state.value
    tx.add_audit([schedule_audit_entry(schedule, action, by=by, now=now, before=before, after=after)])
    fact = ScheduleChanged(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        change=action,
        actor=by.name,
        revision=schedule.revision,
    )
    return ChangeResult(schedule=schedule, progress=progress, facts=(fact, *further))
