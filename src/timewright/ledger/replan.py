"""What people and agents change about schedules: each change moves the next time at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.admission import resumed
from timewright.core.decision import Decision, Source
from timewright.core.facts import Fact, ScheduleChanged
from timewright.core.moments import check_stored, spell_instant
from timewright.core.schedule import Schedule, ScheduleEvent, ScheduleState, Standing, schedule_after
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.admission_pass import AdmissionPass
from timewright.ledger.budgets import check_named
from timewright.ledger.following import release
from timewright.ledger.links import link, refuse_while_asked_for, unlink
from timewright.ledger.shelf import Calendars, calendars_for
from timewright.ledger.standings import (
    Wish,
    held_back,
    opened,
    owes_a_decision,
    paused,
    revised,
    wished,
    without_hints,
)
from timewright.ledger.supersede import withdraw_all
from timewright.ledger.telling import schedule_moved, schedule_stopped
from timewright.ports import Due, Entry, Ids, Revised, Stood, Store, Transaction


class By(Struct, frozen=True, kw_only=True):
    """Who asks, through what, and why."""

    actor: str = "local"
    origin: str = "human"
    reason: str = ""

    def entry(
        self,
        action: str,
        *,
        namespace: str,
        subject: str,
        now: datetime,
        before: str = "",
        after: str = "",
    ) -> Entry:
        """A line for the audit log."""
        return Entry(
            at=now,
            namespace=namespace,
            actor=self.actor,
            origin=self.origin,
            action=action,
            subject=subject,
            before=before,
            after=after,
            reason=self.reason,
        )


class Changed(Struct, frozen=True, kw_only=True):
    """A schedule after a change, and what happened."""

    schedule: Schedule
    standing: Standing
    facts: tuple[Fact, ...] = ()


def create(store: Store, schedules: Sequence[Schedule], *, by: By, now: datetime) -> list[Changed]:
    """Keep new schedules, each with its first decision; names that are taken are refused, all or none."""

    def work(tx: Transaction) -> list[Changed]:
        check_named(tx, schedules)
        calendars = calendars_for(tx, schedules)
        made = [(schedule, opened(schedule, calendars, now=now)) for schedule in schedules]
        tx.put_schedules(
            [Revised(schedule=s, standing=st, actor=by.actor, reason=by.reason, at=now) for s, st in made]
        )
        link(tx, schedules)
        tx.add_audit([entry_of(s, "create", by=by, now=now, after=_digest(s)) for s, _ in made])
        return [
            Changed(schedule=s, standing=st, facts=(_told(s, "created", by=by, now=now),)) for s, st in made
        ]

    return store.write(work)


def revise(
    store: Store, schedule: Schedule, *, ids: Ids, by: By, now: datetime, replaces: int | None = None
) -> Changed:
    """Replace what a schedule says; what was decided stays decided, the next time is decided again.

    What has come and cannot be planned again from the new words is decided first, under the old ones.
    """

    def work(tx: Transaction) -> Changed:
        # An admission that went first is dated in its transaction: what it decided is not ahead of us.
        dated = max(now, tx.now())
        return _revise(tx, schedule, ids=ids, by=by, now=dated, replaces=replaces)

    return store.write(work)


def _revise(
    tx: Transaction, schedule: Schedule, *, ids: Ids, by: By, now: datetime, replaces: int | None
) -> Changed:
    due, told = must_find(tx, schedule.id), list[Fact]()
    if owes_a_decision(due, schedule, now=now):
        admission = AdmissionPass(tx, ids=ids, now=now)
        admission.take(due, calendars_for(tx, [due.schedule]))
        admission.write()
        due, told = must_find(tx, schedule.id), admission.facts
    last = due.schedule
    after = replace(
        schedule, revision=last.revision + 1, created_at=last.created_at, created_by=last.created_by
    )
    if after.name != last.name:
        refuse_while_asked_for(tx, due, verb="renamed")
    if (after.budgets, after.estimate) != (last.budgets, last.estimate):
        check_named(tx, [after])
    standing = revised(due, after, calendars_for(tx, [after]), now=now)
    expected = replaces if replaces is not None else last.revision
    tx.put_schedules(
        [
            Revised(
                schedule=after,
                standing=standing,
                replaces=expected,
                actor=by.actor,
                reason=by.reason,
                at=now,
            )
        ]
    )
    link(tx, [after], before=last)
    if last.needs:
        told += release(tx, [after.id], now=now)
    tx.add_audit([entry_of(after, "update", by=by, now=now, before=_digest(last), after=_digest(after))])
    facts = [*told, _told(after, "updated", by=by, now=now)]
    facts += _moves(after, due.standing, standing, now=now)
    return Changed(schedule=after, standing=standing, facts=tuple(facts))


def restore(store: Store, schedule_id: str, revision: int, *, ids: Ids, by: By, now: datetime) -> Changed:
    """Bring back what a schedule said at an earlier revision, as a new revision."""
    old = store.read(lambda tx: tx.get_revisions([(schedule_id, revision)]))
    if not old:
        raise NotFound(
            f"schedule {schedule_id} has no revision {revision}",
            field="revision",
            value=revision,
            fix="schedule revisions lists them",
        )
    return revise(store, old[schedule_id, revision], ids=ids, by=by, now=now)


def pause(store: Store, schedule_id: str, *, by: By, now: datetime, until: datetime | None = None) -> Changed:
    """Stop a schedule until an instant, or until someone resumes it; work under way goes on."""
    if until is not None and check_stored(until, field="until") <= now:
        raise InvalidInput(
            f"until {spell_instant(until)} is not ahead",
            field="until",
            value=spell_instant(until),
            rule="a pause ends after now",
            fix="a later instant, or leave it out to pause until resumed",
        )

    return _change(
        store,
        schedule_id,
        lambda due, calendars: paused(due, calendars, until=until, reason=by.reason, now=now),
        action="pause",
        by=by,
        now=now,
    )


def resume(store: Store, schedule_id: str, *, ids: Ids, by: By, now: datetime) -> Changed:
    """Let a paused or parked schedule go on; its failures are forgiven, what the pause covered is skipped."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        going_on = resumed(held_back(due.standing, now=now), now=now)
        admission = AdmissionPass(tx, ids=ids, now=now)
        standing = admission.take(replace(due, standing=going_on), calendars_for(tx, [due.schedule]))
        admission.write()
        tx.add_audit([_step(due, standing, "resume", by=by, now=now)])
        facts = (_told(due.schedule, "resumed", by=by, now=now), *admission.facts)
        return Changed(schedule=due.schedule, standing=standing, facts=facts)

    return store.write(work)


def archive(store: Store, schedule_id: str, *, by: By, now: datetime) -> Changed:
    """Retire a schedule; its history stays, what waits to start is cancelled, and it never runs again."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        state = schedule_after(due.standing.state, ScheduleEvent.ARCHIVE)
        unlink(tx, due)
        standing = replace(due.standing, state=state, reason=by.reason, next_at=None, wake_at=None)
        tx.stand([Stood(schedule_id, standing)])
        tx.add_audit([_step(due, standing, "archive", by=by, now=now)])
        facts = (_told(due.schedule, "archived", by=by, now=now), *withdraw_all(tx, schedule_id, now=now))
        return Changed(schedule=due.schedule, standing=standing, facts=facts)

    return store.write(work)


def hint(store: Store, schedule_id: str, wish: Wish, *, by: By, now: datetime) -> Changed:
    """Keep a wish; the next time may come nearer at once, and a pause moves it to its end."""
    return _change(
        store,
        schedule_id,
        lambda due, calendars: wished(due, wish, calendars, now=now),
        action="hint",
        by=by,
        now=now,
    )


def clear_hints(store: Store, schedule_id: str, *, by: By, now: datetime) -> Changed:
    """Forget every wish; the next time is decided again without them, and a pause that was wished is over."""
    return _change(
        store,
        schedule_id,
        lambda due, calendars: without_hints(due, calendars, now=now),
        action="clear_hints",
        by=by,
        now=now,
    )


def must_find(tx: Transaction, schedule_id: str) -> Due:
    """A schedule, locked; one that does not exist is refused."""
    found = tx.get_schedules([schedule_id], lock=True)
    if schedule_id not in found:
        raise NotFound(
            f"no schedule {schedule_id}",
            field="schedule_id",
            value=schedule_id,
            fix="schedule list shows the ids",
        )
    return found[schedule_id]


def entry_of(
    schedule: Schedule, action: str, *, by: By, now: datetime, before: str = "", after: str = ""
) -> Entry:
    """A line for the audit log about a schedule."""
    return by.entry(
        f"schedule.{action}",
        namespace=schedule.namespace,
        subject=schedule.id,
        now=now,
        before=before,
        after=after,
    )


def _change(
    store: Store,
    schedule_id: str,
    change: Callable[[Due, Calendars], Standing],
    *,
    action: str,
    by: By,
    now: datetime,
) -> Changed:
    """Read a schedule, change where it stands, write it with its audit line."""

    def work(tx: Transaction) -> Changed:
        due = must_find(tx, schedule_id)
        standing = change(due, calendars_for(tx, [due.schedule]))
        tx.stand([Stood(schedule_id, standing)])
        tx.add_audit([_step(due, standing, action, by=by, now=now)])
        told = _told(due.schedule, action, by=by, now=now)
        facts = (told, *_moves(due.schedule, due.standing, standing, now=now))
        return Changed(schedule=due.schedule, standing=standing, facts=facts)

    return store.write(work)


def _moves(schedule: Schedule, before: Standing, after: Standing, *, now: datetime) -> list[Fact]:
    if after.state is ScheduleState.FINISHED and before.state is not ScheduleState.FINISHED:
        return [schedule_stopped(schedule, after, now=now)]
    if after.next_at == before.next_at:
        return []
    return [schedule_moved(schedule, Decision(after.next_at, after.source or Source.MANUAL), now=now)]


def _step(due: Due, after: Standing, action: str, *, by: By, now: datetime) -> Entry:
    standing = due.standing
    # A pause that is over may still be written there, until all that was missed in it is caught up.
    is_over = standing.paused_until is not None and standing.paused_until <= now
    paused = standing.state is ScheduleState.PAUSED
    before = ScheduleState.ACTIVE if paused and is_over else standing.state
    return entry_of(due.schedule, action, by=by, now=now, before=before.value, after=after.state.value)


def _digest(schedule: Schedule) -> str:
    """Which text was meant: the text itself is kept with its revision."""
    return f"revision {schedule.revision} sha256:{hashlib.sha256(msgspec.json.encode(schedule)).hexdigest()}"


def _told(schedule: Schedule, change: str, *, by: By, now: datetime) -> Fact:
    return ScheduleChanged(
        at=now,
        namespace=schedule.namespace,
        schedule_id=schedule.id,
        change=change,
        actor=by.actor,
        revision=schedule.revision,
    )
