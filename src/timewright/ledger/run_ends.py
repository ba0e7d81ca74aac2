"""Applies ended runs to their schedules, releases held runs, and notifies downstream schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.facts import Fact, RunFreed
from timewright.core.policies.backoff import Steady
from timewright.core.policies.policies import Align
from timewright.core.recurrence.triggers import After, Cron, Every, Manual
from timewright.core.run.admission import InFlightCounts
from timewright.core.run.lifecycle import RunEvent, next_run_state
from timewright.core.run.run import Outcome, Reason, Run, RunState, Succeeded
from timewright.core.run.schedule_end import settle_schedule
from timewright.core.schedule.adjustments import Adjustment, AdjustmentKind
from timewright.core.schedule.decision import Decision
from timewright.core.schedule.due import undecided_after
from timewright.core.schedule.governor import is_in_streak
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.ledger.backfills.records import continue_backfills, is_backfill_run
from timewright.ledger.dependencies.follow_ups import notify_downstream
from timewright.ledger.fact_builders import run_fields, schedule_moved_fact, schedule_stopped_fact
from timewright.ledger.lookups import CalendarLookup, load_calendars, lock_readable_schedules
from timewright.ports import ProgressUpdate, RunChange, ScheduleRecord, Transaction
from timewright.ports.rows import ReleasableRuns

MAX_RELEASED_RUNS = 100

FinishedRun = tuple[Run, Schedule | None]

_ENDLESS = (Cron, Every, Manual)


class AttemptResult(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one lease; `run` is the run as it was leased, with its fence.

    `check` is the answer of a check that let the work start; `is_check` says that the outcome is that of a
    check that did not.
    """

    run: Run
    outcome: Outcome
    started_at: datetime | None = None
    check: Outcome | None = None
    is_check: bool = False


def lock_schedules(
    tx: Transaction, outcomes: Iterable[tuple[Schedule | None, Outcome, Run]]
) -> dict[str, ScheduleRecord]:
    """Lock the schedules whose progress these outcomes may change; call it before locking runs.

    The end of a backfill's run hands out its next one, which the lock of its schedule makes one at a time.
    """
    # A cache: most runs of a batch belong to the same few schedules.
    is_simple: dict[tuple[int, bool], bool] = {}
    affected: list[str] = []
    for schedule, outcome, run in outcomes:
        if schedule is None:
            continue
        key = id(schedule), run.is_manual
        if key not in is_simple:
            is_simple[key] = _is_simple(schedule, run)
        is_settled_alone = is_simple[key] and isinstance(outcome, Succeeded)
        if not is_settled_alone or is_backfill_run(run) or schedule.uses_state:
            affected.append(schedule.id)
    return lock_readable_schedules(tx, affected)


def apply_finished_runs(
    tx: Transaction,
    ended: Sequence[FinishedRun],
    *,
    now: datetime,
    locked: Mapping[str, ScheduleRecord] | None = None,
) -> list[Fact]:
    """Apply finished runs to their schedules, release held runs behind them, and notify downstream.

    For most schedules a success changes nothing unless it ends a failure streak; the others are in `locked`,
    or are locked now.
    """
    scheduled = [(run, schedule) for run, schedule in ended if schedule is not None]
    if not scheduled:
        return []
    simple: list[Run] = []
    affecting: list[Run] = []
    # A schedule with a failure in this batch takes all its results in order: the last one counts.
    unsuccessful = {schedule.id for run, schedule in scheduled if run.state is not RunState.SUCCEEDED}
    for run, schedule in scheduled:
        is_unlocked = locked is not None and schedule.id not in locked
        # A quiet run counts as a success.
        is_simple = schedule.id not in unsuccessful and _is_simple(schedule, run)
        if run.state is RunState.SUCCEEDED and (is_unlocked or is_simple):
            simple.append(run)
        else:
            affecting.append(run)
    effects = tx.read_run_end_effects({run.schedule_id for run in simple})
    # The end of a streak is decided by the present definition, which may have a cadence by now.
    affecting += [run for run in simple if run.schedule_id in effects.failing]
    missing = {run.schedule_id for run in affecting} - (locked or {}).keys()
    locked = {**(locked or {}), **lock_readable_schedules(tx, sorted(missing))}
    facts = _settle_schedules(tx, affecting, locked, now=now)
    if effects.has_held_runs:
        ids = list({run.schedule_id for run, _ in scheduled})
        facts += release_held(tx, schedule_ids=ids, limit=len(ids), now=now)
    facts += continue_backfills(tx, [run for run, _ in scheduled], now=now)
    if effects.has_links:
        news = [run for run, _ in scheduled if run.reason != Reason.QUIET]
        facts += notify_downstream(tx, news, now=now)
    return facts


def release_held(
    tx: Transaction,
    *,
    now: datetime,
    limit: int = MAX_RELEASED_RUNS,
    schedule_ids: Sequence[str] | None = None,
) -> list[Fact]:
    """Make the first held run of each schedule ready if no other run of it is live.

    It fires from now on: until now it waited for its predecessor and was not late.
    """
    first = tx.select(ReleasableRuns(limit=limit, schedule_ids=schedule_ids))
    released = tx.change_runs([_released(run, now=now) for run in first])
    return [RunFreed(**run_fields(run, now=now)) for run in first if run.id in released]


def _released(run: Run, *, now: datetime) -> RunChange:
    after = replace(run, state=next_run_state(run.state, RunEvent.FREE), fire_at=max(run.fire_at, now))
    return RunChange(after, run.state, run.fence)


def _settle_schedules(
    tx: Transaction, runs: Sequence[Run], locked: Mapping[str, ScheduleRecord], *, now: datetime
) -> list[Fact]:
    affected = [run for run in runs if run.schedule_id in locked]
    if not affected:
        return []
    records = tx.get_schedules({run.schedule_id for run in affected})
    calendars = load_calendars(tx, [record.schedule for record in locked.values()])
    facts: list[Fact] = []
    updated: dict[str, ScheduleProgress] = {}
    adjustments: list[Adjustment] = []
    for run in affected:
        record = locked[run.schedule_id]
        before = updated.get(run.schedule_id, record.progress)
        idle = records[run.schedule_id].in_flight == InFlightCounts()
        after, new_facts = _after(run, record, before, idle=idle, calendars=calendars, now=now)
        updated[run.schedule_id] = after
        was_failing = is_in_streak(record.schedule, before)
        if was_failing is not is_in_streak(record.schedule, after):
            adjustments.append(_streak_change(run, record, after, began=not was_failing, now=now))
        facts += new_facts
    changed = {i: progress for i, progress in updated.items() if progress != locked[i].progress}
    tx.save_progress([ProgressUpdate(schedule_id, progress) for schedule_id, progress in changed.items()])
    tx.add_adjustments(adjustments)
    return facts


def _streak_change(
    run: Run, record: ScheduleRecord, progress: ScheduleProgress, *, began: bool, now: datetime
) -> Adjustment:
    """The row that says from when on a cadence decides, or from which cursor on the trigger does again."""
    return Adjustment(
        schedule_id=record.schedule.id,
        namespace=record.schedule.namespace,
        kind=AdjustmentKind.FAILING if began else AdjustmentKind.RECOVERED,
        at=now,
        cursor=progress.cursor if began else _recovered_after(run, progress),
        planned_at=run.planned_at,
        actor="engine",
        origin="engine",
        reason=run.reason,
    )


def _recovered_after(run: Run, progress: ScheduleProgress) -> datetime:
    """The instant after which the trigger decides again, because the run ended a streak."""
    if run.dedupe_scope:
        # A success by hand ends the streak, but the decided instant stays.
        return undecided_after(progress)
    return progress.replaced_after or progress.cursor


def _after(
    run: Run,
    record: ScheduleRecord,
    before: ScheduleProgress,
    *,
    idle: bool,
    calendars: CalendarLookup,
    now: datetime,
) -> tuple[ScheduleProgress, list[Fact]]:
    """The progress of a schedule after one of its runs; a run that never started keeps the next time."""
    if run.state in (RunState.CANCELLED, RunState.SKIPPED) and not run.started_at and before.next_at:
        return before, []
    schedule = record.schedule
    try:
        progress, decision = settle_schedule(
            schedule, before, run, now=now, idle=idle, calendars=calendars.for_schedule(schedule)
        )
    except Exception as error:  # noqa: BLE001 - one schedule's error stops that schedule and no other
        progress, decision = parked_progress(before, str(error)), None
    if run.is_manual and not isinstance(schedule.trigger, After):
        # The end of a manual run counts only where it changed something, so that most write no shared row.
        unchanged = replace(progress, last_finished_at=before.last_finished_at) == before
        progress = before if unchanged else progress
    return progress, _schedule_facts(schedule, before, progress, decision, now=now)


def parked_progress(progress: ScheduleProgress, reason: str) -> ScheduleProgress:
    """The progress of a schedule that cannot be decided: parked until a person resumes it."""
    return replace(progress, state=ScheduleState.PARKED, reason=reason[:2000], next_at=None, wake_at=None)


def _schedule_facts(
    schedule: Schedule,
    before: ScheduleProgress,
    after: ScheduleProgress,
    decision: Decision | None,
    *,
    now: datetime,
) -> list[Fact]:
    if after.state is not before.state:
        return [schedule_stopped_fact(schedule, after, now=now)]
    if decision is None:
        return []
    return [schedule_moved_fact(schedule, decision, now=now)]


def _is_simple(schedule: Schedule, run: Run) -> bool:
    """Whether a success of a run changes nothing about the schedule except its failure streak."""
    is_endless = (
        isinstance(schedule.trigger, _ENDLESS)
        and schedule.end_at is None
        and schedule.max_runs is None
        and schedule.calendar is None
        and not (schedule.watch is not None and schedule.watch.once)
    )
    keeps_next = run.is_manual or (
        schedule.align is Align.GRID and isinstance(schedule.cadence, Steady) and not schedule.adaptive
    )
    return is_endless and keeps_next
