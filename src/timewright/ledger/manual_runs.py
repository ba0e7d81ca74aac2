"""Manual runs: run now, enqueue, and skip or move the next occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact
from timewright.core.moments import check_storable, format_instant
from timewright.core.policies.limits import LimitUse
from timewright.core.recurrence.triggers import After
from timewright.core.run.admission import Drop, Fire, Replace, Skip, Verdict, displaced_drops
from timewright.core.run.build import build_schedule_run, build_standalone_run
from timewright.core.run.catch_up import ChosenOccurrence, apply_overlap
from timewright.core.run.following import follows_upstream
from timewright.core.run.run import Reason, Run, RunState
from timewright.core.schedule.adjustments import AdjustmentKind
from timewright.core.schedule.decision import Decision, Source
from timewright.core.schedule.due import displaced_by_decision
from timewright.core.schedule.governor import baseline_source, plan_next, restart_interval
from timewright.core.schedule.schedule import (
    ScheduleProgress,
    ScheduleState,
    apply_decision,
    only_advances,
)
from timewright.errors import Conflict, InvalidInput, NotAllowed, OutcomeUnknown
from timewright.ledger.dependencies.follow_ups import use_first_follow_up
from timewright.ledger.fact_builders import new_run_facts, schedule_moved_fact, schedule_stopped_fact
from timewright.ledger.lookups import load_calendars, lock_schedule
from timewright.ledger.pauses import lock_to_decide
from timewright.ledger.queues.limits import LimitResolver
from timewright.ledger.replacement import cancel_for_replacement
from timewright.ledger.replan import Actor, ChangeResult, schedule_audit_entry
from timewright.ledger.schedule_progress import finish_if_nothing_left, pass_decided
from timewright.ports import Ids, ProgressUpdate, ScheduleRecord, Store, Transaction

_NOT_RUNNABLE = (ScheduleState.ARCHIVED, ScheduleState.PENDING_APPROVAL)


class CreatedRuns(Struct, frozen=True, kw_only=True):
    """Runs that were created, and the facts about them."""

    runs: tuple[Run, ...]
    facts: tuple[Fact, ...] = ()


class ManualRun(Struct, frozen=True, kw_only=True):
    """A run to create by hand: now, or `at` a later instant."""

    schedule_id: str
    at: datetime | None = None
    force: bool = False
    client_key: str = ""
    payload: Any = None


def run_now(
    store: Store,
    schedule_id: str,
    *,
    ids: Ids,
    by: Actor,
    now: datetime,
    force: bool = False,
    client_key: str = "",
    payload: Any = None,
    at: datetime | None = None,
) -> CreatedRuns:
    """Create one run by hand; see `run_many`."""
    wanted = ManualRun(schedule_id=schedule_id, at=at, force=force, client_key=client_key, payload=payload)
    return run_many(store, [wanted], ids=ids, by=by, now=now)


def run_many(store: Store, wanted: Sequence[ManualRun], *, ids: Ids, by: Actor, now: datetime) -> CreatedRuns:
    """Create runs by hand, all or none; each obeys overlap unless forced, as if they came one by one.

    The same client key returns the same run. A run for a later instant (`at`) ignores overlap: it does not
    wait for other runs. Each schedule is locked, and its row is not written.
    """

    def work(tx: Transaction) -> CreatedRuns:
        groups: dict[str, list[int]] = {}
        for number, one in enumerate(wanted):
            groups.setdefault(one.schedule_id, []).append(number)
        runs: dict[int, Run] = {}
        facts: list[Fact] = []
        for schedule_id in sorted(groups):
            numbers, record = groups[schedule_id], lock_schedule(tx, schedule_id)
            by_key: dict[str, int] = {}
            for number in numbers:
                key = wanted[number].client_key
                existing = _find_by_client_key(tx, schedule_id, key)
                if existing is not None:
                    runs[number] = existing
                elif key:
                    by_key.setdefault(key, number)
            new = [n for n in numbers if n not in runs and by_key.get(wanted[n].client_key, n) == n]
            made = _run_many_of(tx, record, [wanted[number] for number in new], ids=ids, by=by, now=now)
            runs |= dict(zip(new, made.runs, strict=True))
            runs |= {n: runs[by_key[wanted[n].client_key]] for n in numbers if n not in runs}
            facts += made.facts
        return CreatedRuns(runs=tuple(runs[number] for number in range(len(wanted))), facts=tuple(facts))

    return store.write(work)


def _run_many_of(
    tx: Transaction,
    record: ScheduleRecord,
    wanted: Sequence[ManualRun],
    *,
    ids: Ids,
    by: Actor,
    now: datetime,
) -> CreatedRuns:
    """Create the runs of one schedule, which is locked."""
    if not wanted:
        return CreatedRuns(runs=())
    check_runnable(record)
    for one in wanted:
        if one.at is not None:
            _check_future(one.at, field="at", rule="an extra run needs a future instant", now=now)
    verdicts = _verdicts(record, wanted, now=now)
    facts: list[Fact] = []
    runs: list[Run] = []
    can_start = True
    if any(isinstance(verdict, Replace) for verdict in verdicts):
        replacement = cancel_for_replacement(tx, record.schedule, now=now)
        can_start = replacement.can_start
        facts += replacement.facts
    previous = ""
    for one, verdict in zip(wanted, verdicts, strict=True):
        run = build_manual_run(record, verdict, ids=ids, by=by, now=now, previous=previous)
        run = replace(run, exclusive=run.exclusive and not one.force and one.at is None, payload=one.payload)
        runs.append(replace(run, state=RunState.READY) if isinstance(verdict, Replace) and can_start else run)
        previous = run.id
        if one.client_key:
            tx.put_meta(_client_key_name(record.schedule.id, one.client_key), run.id)
    tx.add_runs(LimitResolver(tx).resolve_all(runs, record.schedule))
    after = runs[0].id if len(runs) == 1 else f"{len(runs)} runs from {runs[0].id} to {runs[-1].id}"
    tx.add_audit([schedule_audit_entry(record.schedule, "run", by=by, now=now, after=after)])
    facts += [fact for run in runs for fact in new_run_facts(run, now=now)]
    return CreatedRuns(runs=tuple(runs), facts=tuple(facts))


def skip_next(store: Store, schedule_id: str, *, ids: Ids, by: Actor, now: datetime) -> ChangeResult:
    """Skip the next occurrence: its row is written now as skipped, and the next time is planned."""

    def work(tx: Transaction) -> ChangeResult:
        record = lock_to_decide(tx, schedule_id, now=now)
        (*displaced, run), progress = _skip_occurrence(tx, record, ids=ids, by=by, now=now)
        add_schedule_runs(tx, record, [*displaced, run], progress)
        tx.add_audit(
            [
                schedule_audit_entry(
                    record.schedule, "skip", by=by, now=now, after=format_instant(run.planned_at)
                )
            ]
        )
        skipped = by.adjustment(record, AdjustmentKind.SKIP, now=now, planned_at=run.planned_at)
        tx.add_adjustments([skipped])
        new = [fact for one in (*displaced, run) for fact in new_run_facts(one, now=now)]
        facts = (*new, _next_fact(record, progress, now=now))
        return ChangeResult(schedule=record.schedule, progress=progress, facts=facts)

    return store.write(work)


def move_next(
    store: Store, schedule_id: str, *, to: datetime, ids: Ids, by: Actor, now: datetime
) -> CreatedRuns:
    """Move the next occurrence: it is skipped, and a manual run is created for the new instant.

    The moved run ignores overlap: it does not wait for other runs.
    """
    _check_future(to, field="to", rule="an occurrence is moved to a future instant", now=now)

    def work(tx: Transaction) -> CreatedRuns:
        record = lock_to_decide(tx, schedule_id, now=now)
        (*displaced, skipped), progress = _skip_occurrence(tx, record, ids=ids, by=by, now=now)
        fire = Fire(planned_at=to, fire_at=to, source=Source.MANUAL)
        run = build_manual_run(record, fire, ids=ids, by=by, now=now)
        run = replace(run, exclusive=False)
        add_schedule_runs(tx, record, [*displaced, skipped], progress)
        tx.add_runs(LimitResolver(tx).resolve_all([run], record.schedule))
        moved = f"{format_instant(skipped.planned_at)} to {format_instant(to)}"
        tx.add_audit([schedule_audit_entry(record.schedule, "move", by=by, now=now, after=moved)])
        fields = {"planned_at": skipped.planned_at, "moved_to": to}
        tx.add_adjustments([by.adjustment(record, AdjustmentKind.MOVE, now=now, **fields)])
        new = [fact for one in (*displaced, skipped, run) for fact in new_run_facts(one, now=now)]
        facts = (*new, _next_fact(record, progress, now=now))
        return CreatedRuns(runs=(skipped, run), facts=facts)

    return store.write(work)


def enqueue(
    store: Store,
    *,
    namespace: str,
    queue: str,
    payloads: Sequence[Any],
    ids: Ids,
    by: Actor,
    now: datetime,
    priority: int = 100,
    not_before: datetime | None = None,
    limits: Sequence[LimitUse] = (),
) -> CreatedRuns:
    """Add entries to a queue; each is a run without a schedule that an external worker leases.

    They are under the limits of the queue and under `limits`.
    """
    runs = [
        build_standalone_run(
            run_id=(run_id := ids.new("run", now=now)),
            namespace=namespace,
            dedupe_scope=run_id,
            planned_at=now,
            fire_at=not_before or now,
            queue=queue,
            priority=priority,
            created_at=now,
            made_by=by.name,
            payload=payload,
        )
        for payload in payloads
    ]

    def work(tx: Transaction) -> None:
        resolver = LimitResolver(tx)
        uses = (*limits, *resolver.of_queue(namespace, queue))
        tx.add_runs([resolver.resolve(run, uses) for run in runs])

    try:
        store.write(work)
    except OutcomeUnknown:
        # The ids were chosen before the commit, so the store can tell whether it succeeded or still will.
        if runs and not store.read(lambda tx: tx.get_runs([runs[0].id])):
            with suppress(Conflict):
                store.write(work)
    return CreatedRuns(
        runs=tuple(runs), facts=tuple(fact for run in runs for fact in new_run_facts(run, now=now))
    )


def _check_future(at: datetime, *, field: str, rule: str, now: datetime) -> None:
    if check_storable(at, field=field) <= now:
        raise InvalidInput(
            f"{field} {format_instant(at)} is not in the future",
            field=field,
            value=format_instant(at),
            rule=rule,
            fix="use a later instant, or `schedule run` to run now",
        )


def _client_key_name(schedule_id: str, client_key: str) -> str:
    return f"client:{schedule_id}:{client_key}"


def _find_by_client_key(tx: Transaction, schedule_id: str, client_key: str) -> Run | None:
    """The run that was created with this client key, while its row is kept."""
    run_id = tx.get_meta(_client_key_name(schedule_id, client_key)) if client_key else None
    return tx.get_runs([run_id]).get(run_id) if run_id else None


def check_runnable(record: ScheduleRecord) -> None:
    """Raise if the schedule may not have runs."""
    if record.progress.state in _NOT_RUNNABLE:
        raise NotAllowed(
            f"schedule {record.schedule.name} is {record.progress.state}",
            field="state",
            value=record.progress.state.value,
            rule="a schedule that is archived or waits for approval does not run",
            fix="see `schedule get` for its state and reason",
        )


def _verdicts(record: ScheduleRecord, wanted: Sequence[ManualRun], *, now: datetime) -> list[Verdict]:
    obeys = [one for one in wanted if not one.force and one.at is None]
    chosen = [ChosenOccurrence(now, now)] * len(obeys)
    decided = iter(apply_overlap(record.schedule, chosen, in_flight=record.in_flight))
    verdicts: list[Verdict] = []
    for one in wanted:
        at = one.at or now
        found = Fire if one.force or one.at is not None else next(decided)
        if isinstance(found, Reason):
            verdicts.append(Skip(planned_at=at, reason=found, source=Source.MANUAL))
        else:
            verdicts.append(found(planned_at=at, fire_at=at, source=Source.MANUAL))
    return verdicts


def build_manual_run(
    record: ScheduleRecord, verdict: Verdict, *, ids: Ids, by: Actor, now: datetime, previous: str = ""
) -> Run:
    """Build a run with its own dedupe scope, so that it never counts as an occurrence."""
    run_id = ids.new("run", now=max(now, verdict.planned_at))
    run = build_schedule_run(record.schedule, verdict, run_id=run_id, now=now, previous=previous)
    return replace(run, dedupe_scope=run.id, made_by=by.name)


def add_schedule_runs(
    tx: Transaction, record: ScheduleRecord, runs: Sequence[Run], progress: ScheduleProgress
) -> None:
    """Write consecutive occurrences, and the progress of their schedule; each must be new."""
    new = tx.add_runs(LimitResolver(tx).resolve_all(runs, record.schedule))
    if any(run.id not in new for run in runs):
        raise Conflict(
            f"an occurrence of {record.schedule.name} already has a run or was skipped",
            field="planned_at",
            value=format_instant(runs[0].planned_at),
            rule="each occurrence is run or skipped once",
            fix=f"schedule get {record.schedule.name} shows the next occurrence; then try again",
        )
    advances = only_advances(record.progress, progress)
    tx.save_progress([ProgressUpdate(record.schedule.id, progress, runs[-1].id, advances)])


def _skip_occurrence(
    tx: Transaction, record: ScheduleRecord, *, ids: Ids, by: Actor, now: datetime
) -> tuple[list[Run], ScheduleProgress]:
    """The rows up to the next occurrence, which is skipped, and the progress of the schedule without it.

    Instants that the clamp moved to it have a row of their own. If the schedule follows another, the upstream
    end is closed too; otherwise it would run at once.
    """
    schedule = record.schedule
    calendars = load_calendars(tx, [schedule])
    progress = pass_decided(tx, schedule, record.progress, calendars)
    at = progress.next_at
    planned = progress.state is ScheduleState.ACTIVE and progress.source is not Source.PAUSED
    if not planned or at is None or at <= now:
        raise NotAllowed(
            f"schedule {schedule.name} has no next time that can be skipped",
            field="state",
            value=progress.state.value,
            rule="the schedule is active, and its next time is in the future",
            fix="see `schedule get` for its state and next time",
        )
    source = progress.source or Source.MANUAL
    skip = Skip(planned_at=at, reason=Reason.BY_HAND, source=source)
    moved = displaced_by_decision(schedule, progress, calendars=calendars.for_schedule(schedule))
    verdicts: list[Drop | Skip] = [*displaced_drops(moved, source=baseline_source(schedule.trigger)), skip]
    rows: list[Run] = []
    for verdict in verdicts:
        # The id contains the planned instant, so that runs sort by it; of a row for several, the last one, so
        # that it is not pruned before them.
        last = verdict.last_of if isinstance(verdict, Drop) else verdict.planned_at
        run_id = ids.new("run", now=last)
        previous = rows[-1].id if rows else record.last_run
        row = build_schedule_run(schedule, verdict, run_id=run_id, now=now, previous=previous)
        rows.append(replace(row, made_by=by.name))
    run = rows[-1]
    cursor, hints = max(progress.cursor, at), progress.hints.without_used(until=at)
    progress = restart_interval(schedule, replace(progress, cursor=cursor, hints=hints), at=at)
    if follows_upstream(schedule.trigger):
        decision = Decision(use_first_follow_up(tx, record, run), source)
    elif isinstance(schedule.trigger, After):
        decision = Decision(schedule.trigger.next_after(at), source)
    else:
        decision = plan_next(schedule, progress, now=at, calendars=calendars.for_schedule(schedule))
    progress = finish_if_nothing_left(
        schedule, apply_decision(schedule, progress, decision), in_flight=record.in_flight
    )
    return rows, progress


def _next_fact(record: ScheduleRecord, progress: ScheduleProgress, *, now: datetime) -> Fact:
    if progress.state is not record.progress.state:
        return schedule_stopped_fact(record.schedule, progress, now=now)
    decision = Decision(progress.next_at, progress.source or Source.MANUAL)
    return schedule_moved_fact(record.schedule, decision, now=now)
