"""Changes that people and agents make to schedules; each one replans the next time at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import check_storable, format_instant
from timewright.core.schedule.adjustments import Adjustment, AdjustmentKind
from timewright.core.schedule.decision import Source
from timewright.core.schedule.governor import counts_from_last_start, is_in_streak
from timewright.core.schedule.hints import IntervalHint
from timewright.core.schedule.pauses import resume_progress
from timewright.core.schedule.schedule import (
    Schedule,
    ScheduleEvent,
    ScheduleProgress,
    ScheduleState,
    next_schedule_state,
)
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.admission_batch import AdmissionBatch
from timewright.ledger.budgets.charges import check_budget_names
from timewright.ledger.dependencies.follow_ups import release_waiting
from timewright.ledger.dependencies.links import check_no_dependents, remove_links, write_links
from timewright.ledger.fact_builders import changed_fact, replanned_facts
from timewright.ledger.lookups import CalendarLookup, load_calendars, lock_schedule
from timewright.ledger.pauses import lock_to_decide
from timewright.ledger.queues.limits import save_own_limits
from timewright.ledger.replacement import cancel_unstarted
from timewright.ledger.schedule_progress import (
    HintRequest,
    adjustment_by_hint,
    as_paused,
    describe_hint,
    finish_if_nothing_left,
    has_due_instant,
    has_undecided_instant,
    keep_undecided,
    pass_decided,
    progress_when_created,
    progress_when_paused,
    progress_when_revised,
    progress_with_hint,
    progress_without_hints,
)
from timewright.ports import (
    AuditEntry,
    Ids,
    ProgressUpdate,
    ScheduleRecord,
    ScheduleWrite,
    Store,
    Transaction,
)


class Actor(Struct, frozen=True, kw_only=True):
    """Who makes a change, through which kind of interface, and why."""

    name: str = "local"
    origin: str = "human"
    reason: str = ""

    def audit_entry(
        self,
        action: str,
        *,
        namespace: str,
        subject: str,
        now: datetime,
        before: str = "",
        after: str = "",
    ) -> AuditEntry:
        """An entry for the audit log."""
        return AuditEntry(
            at=now,
            namespace=namespace,
            actor=self.name,
            origin=self.origin,
            action=action,
            subject=subject,
            before=before,
            after=after,
            reason=self.reason,
        )

    def adjustment(
        self, record: ScheduleRecord, kind: AdjustmentKind, *, now: datetime, **fields: Any
    ) -> Adjustment:
        """A row that says how the schedule was adjusted; its reason is the actor's unless given."""
        made: dict[str, Any] = {"actor": self.name, "origin": self.origin, "reason": self.reason}
        made |= {"namespace": record.schedule.namespace, "cursor": record.progress.cursor}
        return Adjustment(schedule_id=record.schedule.id, kind=kind, at=now, **(made | fields))


class ChangeResult(Struct, frozen=True, kw_only=True):
    """A schedule after a change, and the facts of the change."""

    schedule: Schedule
    progress: ScheduleProgress
    facts: tuple[Fact, ...] = ()


def create(store: Store, schedules: Sequence[Schedule], *, by: Actor, now: datetime) -> list[ChangeResult]:
    """Create schedules, all or none, each with its first decision; a name that exists is an error."""

    def work(tx: Transaction) -> list[ChangeResult]:
        check_budget_names(tx, schedules)
        calendars = load_calendars(tx, schedules)
        made = [(schedule, progress_when_created(schedule, calendars, now=now)) for schedule in schedules]
        tx.put_schedules(
            [
                ScheduleWrite(schedule=s, progress=st, actor=by.name, reason=by.reason, at=now)
                for s, st in made
            ]
        )
        write_links(tx, schedules)
        save_own_limits(tx, schedules, by=by, now=now)
        tx.add_audit([schedule_audit_entry(s, "create", by=by, now=now, after=_digest(s)) for s, _ in made])
        return [
            ChangeResult(schedule=s, progress=st, facts=(changed_fact(s, "created", by.name, now=now),))
            for s, st in made
        ]

    return store.write(work)


def revise(
    store: Store, schedule: Schedule, *, ids: Ids, by: Actor, now: datetime, replaces: int | None = None
) -> ChangeResult:
    """Replace the definition of a schedule; decisions stay, and the next time is planned again.

    An instant that is due and that the new definition cannot plan is decided first, under the old one.
    """

    def work(tx: Transaction) -> ChangeResult:
        # An admission that committed first may be dated after `now`: its decisions must lie in the past.
        dated = max(now, tx.now())
        return _revise(tx, schedule, ids=ids, by=by, now=dated, replaces=replaces)

    return store.write(work)


def _revise(
    tx: Transaction, schedule: Schedule, *, ids: Ids, by: Actor, now: datetime, replaces: int | None
) -> ChangeResult:
    record, facts = _lock_decided(
        tx, schedule.id, ids=ids, now=now, if_due=lambda one: has_undecided_instant(one, schedule, now=now)
    )
    last = record.schedule
    after = replace(
        schedule, revision=last.revision + 1, created_at=last.created_at, created_by=last.created_by
    )
    if after.name != last.name:
        check_no_dependents(tx, record, verb="renamed")
    if (after.budgets, after.estimate) != (last.budgets, last.estimate):
        check_budget_names(tx, [after])
    calendars = load_calendars(tx, [after])
    progress = progress_when_revised(record, after, calendars, now=now)
    if progress.cursor < record.progress.cursor:
        # Instants ahead were skipped by hand: they keep their rows and do not become due again.
        progress = pass_decided(tx, after, progress, calendars)
        progress = finish_if_nothing_left(after, progress, in_flight=record.in_flight)
    expected = replaces if replaces is not None else last.revision
    tx.put_schedules(
        [
            ScheduleWrite(
                schedule=after,
                progress=progress,
                replaces=expected,
                actor=by.name,
                reason=by.reason,
                at=now,
            )
        ]
    )
    write_links(tx, [after], before=last)
    if (after.max_running, after.limits) != (last.max_running, last.limits):
        save_own_limits(tx, [after], by=by, now=now, had=last.max_running)
    if last.needs:
        facts += release_waiting(tx, [after.id], now=now)
    tx.add_audit(
        [schedule_audit_entry(after, "update", by=by, now=now, before=_digest(last), after=_digest(after))]
    )
    was_failing, is_failing = is_in_streak(last, record.progress), is_in_streak(after, progress)
    tx.add_adjustments([by.adjustment(record, AdjustmentKind.EDIT, now=now)])
    if was_failing is not is_failing:
        kind = AdjustmentKind.FAILING if is_failing else AdjustmentKind.RECOVERED
        tx.add_adjustments([by.adjustment(record, kind, now=now, cursor=progress.cursor)])
    elif (cursor := progress.replaced_after) is not None and cursor < progress.cursor:
        # What is still open after a streak is the new plan's; a streak since then ends and begins again.
        kinds = [AdjustmentKind.RECOVERED] * (1 + is_failing) + [AdjustmentKind.FAILING] * is_failing
        tx.add_adjustments([by.adjustment(record, kind, now=now, cursor=cursor) for kind in kinds])
    facts = [*facts, changed_fact(after, "updated", by.name, now=now)]
    facts += replanned_facts(after, record.progress, progress, now=now)
    return ChangeResult(schedule=after, progress=progress, facts=tuple(facts))


def restore(
    store: Store, schedule_id: str, revision: int, *, ids: Ids, by: Actor, now: datetime
) -> ChangeResult:
    """Restore the definition of an earlier revision, as a new revision."""
    key = (schedule_id, revision)
    old, now_stored = store.read(lambda tx: (tx.get_revisions([key]), tx.get_schedules([schedule_id])))
    if not old:
        why = f"schedule {schedule_id} has no revision {revision}"
        raise NotFound(why, field="revision", value=revision, fix="see `schedule revisions`")
    owner = now_stored[schedule_id].schedule.owner
    return revise(store, replace(old[key], owner=owner), ids=ids, by=by, now=now)


def pause(
    store: Store, schedule_id: str, *, ids: Ids, by: Actor, now: datetime, until: datetime | None = None
) -> ChangeResult:
    """Pause a schedule until an instant, or until it is resumed; runs in flight continue."""
    if until is not None and check_storable(until, field="until") <= now:
        fix = "use a later instant, or leave it out to pause until resumed"
        text = format_instant(until)
        why = f"until {text} is not in the future"
        raise InvalidInput(why, field="until", value=text, rule="a pause ends after now", fix=fix)
    return _change(
        store,
        schedule_id,
        lambda record, _: progress_when_paused(record, until=until, reason=by.reason, now=now),
        AdjustmentKind.PAUSE,
        ids=ids,
        by=by,
        now=now,
        until=until,
    )


def resume(store: Store, schedule_id: str, *, ids: Ids, by: Actor, now: datetime) -> ChangeResult:
    """Resume a paused or parked schedule: its failure count is cleared, paused occurrences are skipped."""

    def work(tx: Transaction) -> ChangeResult:
        record = lock_schedule(tx, schedule_id)
        going_on = resume_progress(as_paused(record.schedule, record.progress, now=now), now=now)
        admission = AdmissionBatch(tx, ids=ids, now=now)
        progress = admission.decide(replace(record, progress=going_on), load_calendars(tx, [record.schedule]))
        admission.write()
        tx.add_audit([_state_entry(record, progress, "resume", by=by, now=now)])
        tx.add_adjustments([by.adjustment(record, AdjustmentKind.RESUME, now=now)])
        facts = (changed_fact(record.schedule, "resumed", by.name, now=now), *admission.facts)
        return ChangeResult(schedule=record.schedule, progress=progress, facts=facts)

    return store.write(work)


def archive(
    store: Store, schedule_id: str, *, by: Actor, now: datetime, finish: bool = False
) -> ChangeResult:
    """End a schedule: it never runs again, waiting runs are cancelled. A finished one keeps its links."""
    event = ScheduleEvent.FINISH if finish else ScheduleEvent.ARCHIVE

    def work(tx: Transaction) -> ChangeResult:
        record = lock_schedule(tx, schedule_id)
        state = next_schedule_state(record.progress.state, event)
        if not finish:
            remove_links(tx, record)
        progress = replace(record.progress, state=state, reason=by.reason, next_at=None, wake_at=None)
        tx.save_progress([ProgressUpdate(schedule_id, progress)])
        tx.add_audit([_state_entry(record, progress, event.value, by=by, now=now)])
        changed = changed_fact(record.schedule, state.value, by.name, now=now)
        facts = (changed, *cancel_unstarted(tx, schedule_id, now=now))
        return ChangeResult(schedule=record.schedule, progress=progress, facts=facts)

    return store.write(work)


def hint(
    store: Store, schedule_id: str, hint_request: HintRequest, *, ids: Ids, by: Actor, now: datetime
) -> ChangeResult:
    """Store a hint: it may bring the next time forward at once; a pause moves the next time to its end.

    Instants that came due before an interval hint are decided first, because it replaces the trigger's; so
    are those of a pause that is over, because another one would continue it, and all with `align: now`.
    """

    def decides_first(record: ScheduleRecord) -> bool:
        replaces = isinstance(hint_request, IntervalHint) or record.progress.source is Source.PAUSED
        return (replaces and has_due_instant(record, now=now)) or _replaces_due(record, now=now)

    def work(tx: Transaction) -> ChangeResult:
        record, decided = _lock_decided(tx, schedule_id, ids=ids, now=now, if_due=decides_first)
        progress = progress_with_hint(record, hint_request, load_calendars(tx, [record.schedule]), now=now)
        progress = keep_undecided(tx, record, progress, now=now)
        written = describe_hint(hint_request)
        adjusts = adjustment_by_hint(hint_request)
        changed = _write_change(tx, record, progress, "hint", by=by, now=now, after=written, adjusts=adjusts)
        return replace(changed, facts=(*decided, *changed.facts))

    return store.write(work)


def clear_hints(store: Store, schedule_id: str, *, ids: Ids, by: Actor, now: datetime) -> ChangeResult:
    """Remove all hints and plan the next time without them; a hinted pause ends now."""
    return _change(
        store,
        schedule_id,
        lambda record, calendars: progress_without_hints(record, calendars, now=now),
        AdjustmentKind.CLEAR_HINTS,
        ids=ids,
        by=by,
        now=now,
    )


def schedule_audit_entry(
    schedule: Schedule, action: str, *, by: Actor, now: datetime, before: str = "", after: str = ""
) -> AuditEntry:
    """An entry for the audit log about a schedule."""
    return by.audit_entry(
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
    change: Callable[[ScheduleRecord, CalendarLookup], ScheduleProgress],
    kind: AdjustmentKind,
    *,
    ids: Ids,
    by: Actor,
    now: datetime,
    **fields: Any,
) -> ChangeResult:
    """Lock a schedule, change its progress, and write it with an audit entry and the adjustment."""

    def work(tx: Transaction) -> ChangeResult:
        record, decided = _lock_decided(
            tx, schedule_id, ids=ids, now=now, if_due=lambda one: _replaces_due(one, now=now)
        )
        progress = change(record, load_calendars(tx, [record.schedule]))
        adjusts = {"kind": kind, **fields}
        changed = _write_change(tx, record, progress, kind.value, by=by, now=now, adjusts=adjusts)
        return replace(changed, facts=(*decided, *changed.facts))

    return store.write(work)


def _write_change(
    tx: Transaction,
    record: ScheduleRecord,
    progress: ScheduleProgress,
    action: str,
    *,
    by: Actor,
    now: datetime,
    adjusts: Mapping[str, Any],
    after: str = "",
) -> ChangeResult:
    """Write the changed progress of a schedule with an audit entry; `after` replaces its new state."""
    schedule = record.schedule
    tx.add_adjustments([by.adjustment(record, now=now, **adjusts)])
    tx.save_progress([ProgressUpdate(schedule.id, progress)])
    entry = _state_entry(record, progress, action, by=by, now=now)
    tx.add_audit([replace(entry, after=after or entry.after)])
    changed = changed_fact(schedule, action, by.name, now=now)
    facts = (changed, *replanned_facts(schedule, record.progress, progress, now=now))
    return ChangeResult(schedule=schedule, progress=progress, facts=facts)


def _replaces_due(record: ScheduleRecord, *, now: datetime) -> bool:
    """Whether any change replaces what is due: with `align: now`, nothing else is planned."""
    return counts_from_last_start(record.schedule) and has_due_instant(record, now=now)


def _lock_decided(
    tx: Transaction, schedule_id: str, *, ids: Ids, now: datetime, if_due: Callable[[ScheduleRecord], bool]
) -> tuple[ScheduleRecord, list[Fact]]:
    """Lock a schedule, and decide `if_due` what is due before a change; return it with the facts."""
    record = lock_to_decide(tx, schedule_id, now=now)
    if not if_due(record):
        return record, []
    admission = AdmissionBatch(tx, ids=ids, now=now)
    admission.decide(record, load_calendars(tx, [record.schedule]), before_edit=True)
    admission.write()
    return lock_schedule(tx, schedule_id), admission.facts


def _state_entry(
    record: ScheduleRecord, after: ScheduleProgress, action: str, *, by: Actor, now: datetime
) -> AuditEntry:
    progress = record.progress
    # A pause that has ended may still be stored, until its occurrences are recorded.
    is_over = progress.paused_until is not None and progress.paused_until <= now
    paused = progress.state is ScheduleState.PAUSED
    before = ScheduleState.ACTIVE if paused and is_over else progress.state
    return schedule_audit_entry(
        record.schedule, action, by=by, now=now, before=before.value, after=after.state.value
    )


def _digest(schedule: Schedule) -> str:
    """Identify a revision by its hash."""
    return f"revision {schedule.revision} sha256:{hashlib.sha256(msgspec.json.encode(schedule)).hexdigest()}"
