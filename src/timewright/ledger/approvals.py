"""What waits for a person: a schedule that is held before its first run, let go, or turned away."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from timewright.core.decision import Decision, Source
from timewright.core.facts import Fact, ScheduleChanged
from timewright.core.governor import plan_next
from timewright.core.schedule import ScheduleEvent, ScheduleState, Standing, decided, schedule_after
from timewright.core.triggers import After
from timewright.ledger.links import unlink
from timewright.ledger.replan import By, Changed, entry_of, must_find
from timewright.ledger.shelf import Calendars, calendars_for
from timewright.ledger.standings import finished_if_over
from timewright.ledger.supersede import withdraw_all
from timewright.ledger.telling import schedule_moved
from timewright.ports import Due, Stood, Store, Transaction

WAITS = "waits for approval"


def hold_for_approval(store: Store, schedule_id: str, *, by: By, now: datetime) -> Changed:
    """Let a new schedule wait until a person has looked at it; nothing of it is planned."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        standing = replace(
            due.standing,
            state=ScheduleState.PENDING_APPROVAL,
            reason=WAITS,
            next_at=None,
            wake_at=None,
            source=None,
            trail=(),
        )
        return _kept(tx, due, standing, "hold", by=by, now=now)

    return store.write(work)


def approve(store: Store, schedule_id: str, *, by: By, now: datetime) -> Changed:
    """Let a schedule begin from now on; what it would have done while it waited is not made up for."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        standing = approved(due, calendars_for(tx, [due.schedule]), now=now)
        moved = Decision(standing.next_at, standing.source or Source.MANUAL)
        told = schedule_moved(due.schedule, moved, now=now)
        return _kept(tx, due, standing, "approve", by=by, now=now, also=(told,))

    return store.write(work)


def reject(store: Store, schedule_id: str, *, by: By, now: datetime) -> Changed:
    """Turn a schedule away: it is archived before it ever ran."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        state = schedule_after(due.standing.state, ScheduleEvent.REJECT)
        standing = replace(due.standing, state=state, reason=by.reason or "rejected")
        unlink(tx, due)
        gone = withdraw_all(tx, schedule_id, now=now)
        return _kept(tx, due, standing, "reject", by=by, now=now, also=tuple(gone))

    return store.write(work)


def approved(due: Due, calendars: Calendars, *, now: datetime) -> Standing:
    """Where a schedule stands once it is approved: as one that was made now."""
    schedule = due.schedule
    state = schedule_after(due.standing.state, ScheduleEvent.APPROVE)
    standing = replace(due.standing, state=state, reason="")
    if not isinstance(schedule.trigger, After):
        # A delay counts from its creation, and would be lost behind the cursor.
        standing = replace(standing, cursor=max(standing.cursor, now))
    decision = plan_next(schedule, standing, now=now, calendars=calendars.of(schedule))
    return finished_if_over(schedule, decided(schedule, standing, decision), flight=due.flight)


def _kept(
    tx: Transaction,
    due: Due,
    standing: Standing,
    action: str,
    *,
    by: By,
    now: datetime,
    also: tuple[Fact, ...] = (),
) -> Changed:
    schedule = due.schedule
    tx.stand([Stood(schedule.id, standing)])
    before, after = due.standing.state.value, standing.state.value
    tx.add_audit([entry_of(schedule, action, by=by, now=now, before=before, after=after)])
    told = ScheduleChanged(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        change=action,
        actor=by.actor,
        revision=schedule.revision,
    )
    return Changed(schedule=schedule, standing=standing, facts=(told, *also))
