"""Summaries and details of schedules and runs: the answer types that many operations share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.budgets.budgets import Charge
from timewright.core.recurrence.triggers import AnyTrigger, Manual, zone_of
from timewright.core.run.run import Attempt, Run, RunState, run_idempotency_key
from timewright.core.schedule.decision import Candidate, Decision, Source
from timewright.core.schedule.forecast import Preview, forecast, forecast_on_time
from timewright.core.schedule.governor import is_trigger_only
from timewright.core.schedule.hints import NO_HINTS
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.zones import local_time
from timewright.ledger.lookups import load_calendars
from timewright.ledger.pauses import describe_pauses
from timewright.ledger.records.notes import run_note
from timewright.ledger.workflow_runs.records import workflow_label
from timewright.operations.explain.dependencies import Downstream, Upstream, downstreams, upstreams
from timewright.operations.explain.idle import add_manual_runs_and_notes, without_skipped
from timewright.operations.identity_cache import cache_by_identity
from timewright.operations.lookup import names_by_id
from timewright.operations.registry import answer_from
from timewright.ports import ExternalId, ScheduleRecord, Transaction
from timewright.ports.attempt_output import RunProgress
from timewright.ports.overview import ManualRuns, RecentRun
from timewright.ports.schedules import ScheduleListRow, ScheduleSnapshot

NEXT_SHOWN = 5


class ScheduleSummary(Struct, frozen=True, kw_only=True):
    """A schedule in a list."""

    id: str
    name: str
    group: str | None
    state: ScheduleState
    reason: str
    trigger: str
    target: str
    next_at: datetime | None
    zone: str
    """The zone of its wall-clock times; empty if it has none."""
    next_local: str
    """The next time in that zone."""
    source: Source | None
    paused_until: datetime | None
    last_run_at: datetime | None
    """When its newest run started, by its trigger or by hand."""
    last_state: str
    """The state of that run."""
    failures: int
    runs: int
    """How many runs its trigger made, and how many manual runs are kept."""
    revision: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    paused_by: str = ""
    """Who paused it, as in "ada: audit", and which pause of a group or another scope holds for it, as in
    "group reports by ada: audit".
    """


class ScheduleDetail(Struct, frozen=True, kw_only=True):
    """A schedule with its definition, its progress and its next occurrences."""

    schedule: Schedule
    progress: ScheduleProgress
    trigger: str
    decision: str
    in_flight: int
    held: int
    next: tuple[Preview, ...]
    upstream: tuple[Upstream, ...] = ()
    downstream: tuple[Downstream, ...] = ()
    paused_by: str = ""
    """Who paused it, and which pause of a group or another scope holds for it."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes; set in the answer to a write."""
    read_as: str = ""
    """How the phrase of the trigger, or the end of a pause, was read; set in the answer to a write.

    Empty if there was none: what a cron expression or an interval means, `trigger` says.
    """


class RunSummary(Struct, frozen=True, kw_only=True):
    """A run in a list; a queue entry has no schedule.

    `started_at` is the start of the last attempt, also while the run waits for the next one.

    `attempts` counts charged attempts, those that failed or timed out, since the last retry or reset: it is 0
    after a success at once. `fence` counts every lease and never decreases.
    `progress` is how much of the work is done while it runs, from 0 to 1, as far as it reports that.
    """

    id: str
    schedule: str
    schedule_id: str
    planned_at: datetime
    fire_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: RunState
    reason: str
    source: Source
    attempts: int
    losses: int
    fence: int
    queue: str
    priority: int
    holder: str
    lease_until: datetime | None
    cancel_at: datetime | None
    missed: int
    dropped: int
    last_of: datetime | None
    outcome_label: str
    error: str
    first_started_at: datetime | None
    progress: float | None = None
    progress_note: str = ""
    workflow: str = ""  # and step, of a run without a schedule, as in `nightly › load[7]`


# Skipped occurrences after the last start are passed over, up to this many.
LAST_RUNS_READ = 10
_ADDED_FIELDS = ("schedule", "first_started_at", "workflow", "progress", "progress_note")
_RUN_FIELDS = tuple(name for name in RunSummary.__struct_fields__ if name not in _ADDED_FIELDS)
_get_run_fields = attrgetter(*_RUN_FIELDS)


class RunCharge(Struct, frozen=True, kw_only=True):
    """What one lease of a run used of a budget, or has reserved while it is active."""

    budget: str
    fence: int
    used: str
    held: str


class RunDetail(Struct, frozen=True, kw_only=True):
    """A run with its idempotency key, the decision behind it, and every ended lease as an attempt.

    The `fence` tells attempts apart: `number` begins at 1 again after a retry or a reset, and does not rise
    after an attempt that was not charged.
    """

    run: RunSummary
    key: str
    dedupe_scope: str
    lease_id: str
    revision: int
    created_at: datetime
    backfill_of: str
    parent: str
    payload: Any
    trail: tuple[Candidate, ...]
    attempts: tuple[Attempt, ...]
    charges: tuple[RunCharge, ...] = ()
    note: str = ""
    external_ids: tuple[ExternalId, ...] = ()
    """What an external executor calls the run, by attempt."""
    checkpoint: Any = None
    warnings: tuple[str, ...] = ()
    """In the answer of `schedule run`: why the run was skipped, and what to do."""


def build_schedule_detail(
    tx: Transaction, snapshot: ScheduleSnapshot, *, now: datetime, is_new: bool = False
) -> ScheduleDetail:
    """Return a schedule with its next occurrences, as admission would decide them, and its dependencies."""
    record = snapshot.record
    plan = _planned(record)
    if snapshot.has_skips:
        detail = _detail(*without_skipped(tx, record, now=now, count=NEXT_SHOWN))
    elif plan is not None and now < plan[0]:
        detail = plan[1]
    else:
        calendars = load_calendars(tx, [record.schedule]).for_schedule(record.schedule)
        ahead = forecast(record.schedule, record.progress, now=now, count=NEXT_SHOWN, calendars=calendars)
        detail = _detail(record, ahead)
    ahead = detail.next
    if snapshot.has_manual_runs or snapshot.has_notes:
        ahead = add_manual_runs_and_notes(tx, record.schedule, ahead, now=now, count=NEXT_SHOWN)
    before = upstreams(tx, record.schedule)
    after = downstreams(tx, record.schedule) if snapshot.has_downstream else ()
    (paused,) = describe_pauses(tx, [record], now=now)
    if ahead is not detail.next or before or after or paused:
        detail = replace(detail, next=ahead, upstream=before, downstream=after, paused_by=paused)
    schedule_id = record.schedule.id
    last = None if is_new else _last_started(tx, [schedule_id]).get(schedule_id)
    manual = 0 if is_new else tx.count(ManualRuns([schedule_id])).get(schedule_id, 0)
    if last is None and not manual:
        return detail
    progress = replace(detail.progress, runs=detail.progress.runs + manual)
    if last is not None:
        # The stored instants are only those that the next decision needs.
        ended = last.finished_at or progress.last_finished_at
        progress = replace(progress, last_started_at=last.started_at, last_finished_at=ended)
    return replace(detail, progress=progress)


def is_on_plan(record: ScheduleRecord, *, now: datetime) -> bool:
    """Return whether the cached detail is valid now: nothing is late, paused or moved."""
    plan = _planned(record)
    return plan is not None and now < plan[0]


@cache_by_identity
def _planned(record: ScheduleRecord) -> tuple[datetime, ScheduleDetail] | None:
    """Return the next instant and the detail that holds until then, if the trigger alone decides it."""
    until = planned_until(record)
    if until is None:
        return None
    schedule, progress = record.schedule, record.progress
    ahead = forecast_on_time(schedule, progress, count=NEXT_SHOWN)
    if ahead is None:
        ahead = forecast(schedule, progress, now=progress.cursor, count=NEXT_SHOWN)
    return until, _detail(record, ahead)


def planned_until(record: ScheduleRecord) -> datetime | None:
    """Return the next instant if the trigger alone decides it; None if hints, calendars or pauses may."""
    schedule, progress = record.schedule, record.progress
    ordinary = (
        progress.state is ScheduleState.ACTIVE
        and progress.next_at is not None
        and progress.next_at == progress.wake_at
        and progress.paused_at is None
        and progress.paused_until is None
        and progress.hints is NO_HINTS
        and schedule.calendar is None
        and not schedule.jitter
        and is_trigger_only(schedule, progress)
    )
    if ordinary and schedule.trigger.next_after(progress.cursor) == progress.next_at:
        return progress.next_at
    return None


def _detail(record: ScheduleRecord, ahead: tuple[Preview, ...]) -> ScheduleDetail:
    schedule, progress = record.schedule, record.progress
    return ScheduleDetail(
        schedule=schedule,
        progress=progress,
        trigger=_describe(schedule.trigger, schedule.run_at_start),
        decision=_decision(schedule, progress),
        in_flight=record.in_flight.live,
        held=record.in_flight.held,
        next=ahead,
    )


def _last_started(tx: Transaction, schedule_ids: Sequence[str]) -> dict[str, RecentRun]:
    """The run of each schedule that started last; skipped occurrences did not start."""
    recent = tx.recent_runs(schedule_ids, limit_each=LAST_RUNS_READ)
    return {
        schedule_id: max(started, key=lambda run: run.started_at or run.planned_at)
        for schedule_id, runs in recent.items()
        if (started := [run for run in runs if run.started_at is not None])
    }


def add_last_runs(tx: Transaction, rows: Sequence[ScheduleSummary]) -> tuple[ScheduleSummary, ...]:
    """Add when each schedule last started, the state of that run, and how many manual runs it has."""
    ids = [row.id for row in rows]
    last, manual = _last_started(tx, ids), tx.count(ManualRuns(ids))
    counted = [replace(row, runs=row.runs + manual.get(row.id, 0)) for row in rows]
    return tuple(
        replace(row, last_run_at=one.started_at, last_state=one.state) if (one := last.get(row.id)) else row
        for row in counted
    )


@cache_by_identity
def summarize_schedule(shown: ScheduleListRow | ScheduleRecord) -> ScheduleSummary:
    """A schedule in a list."""
    schedule, progress = shown.schedule, shown.progress
    zone = zone_of(schedule.trigger) or ""
    return answer_from(
        ScheduleSummary,
        schedule,
        progress,
        trigger=_describe(schedule.trigger, schedule.run_at_start),
        target=str(type(schedule.target).__struct_config__.tag),
        zone=zone,
        next_local=local_time(progress.next_at, zone),
        last_run_at=None,
        last_state="",
    )


def summarize_run(
    run: Run, *, schedule: str, first_started_at: datetime | None = None, progress: RunProgress | None = None
) -> RunSummary:
    """Return a run as a list shows it; a run that was started once has its first start itself."""
    fields = dict(zip(_RUN_FIELDS, _get_run_fields(run), strict=True))
    if progress is not None and run.state is RunState.LEASED and progress.fence == run.fence:
        fields |= {"progress": progress.fraction, "progress_note": progress.note}
    label = "" if schedule or run.queue else workflow_label(run.payload)
    started = first_started_at or run.started_at
    return RunSummary(schedule=schedule, first_started_at=started, workflow=label, **fields)


def summarize_runs(tx: Transaction, runs: Sequence[Run]) -> tuple[RunSummary, ...]:
    """Return runs as a list shows them, with the names of their schedules and their first starts."""
    names, starts = schedule_names_of(tx, runs), first_starts_of(tx, runs)
    running = [run.id for run in runs if run.state is RunState.LEASED]
    progress = tx.get_run_rows(RunProgress, running) if running else {}

    def summarize(run: Run) -> RunSummary:
        name, (reported,) = names.get(run.schedule_id, ""), progress.get(run.id, (None,))
        return summarize_run(run, schedule=name, first_started_at=starts.get(run.id), progress=reported)

    return tuple(map(summarize, runs))


def first_starts_of(tx: Transaction, runs: Iterable[Run]) -> Mapping[str, datetime]:
    """Return the first starts of the runs that were leased more than once."""
    leased_again = [run.id for run in runs if run.fence > 1]
    attempts = tx.get_run_rows(Attempt, leased_again) if leased_again else {}
    starts = {
        run_id: [one.started_at for one in ended if one.started_at] for run_id, ended in attempts.items()
    }
    return {run_id: min(instants) for run_id, instants in starts.items() if instants}


def build_run_detail(tx: Transaction, run: Run) -> RunDetail:
    """Return a run with its attempts, charges and note; only one that was leased has rows of leases."""
    leased = [run.id] if run.fence else []
    (reported,) = tx.get_run_rows(RunProgress, leased).get(run.id, (None,)) if leased else (None,)
    return answer_from(
        RunDetail,
        run,
        run=summarize_runs(tx, [run])[0],
        key=run_idempotency_key(run),
        attempts=tx.get_run_rows(Attempt, leased).get(run.id, ()) if leased else (),
        charges=_list_charges(tx, run) if leased else (),
        note=run_note(tx, run),
        checkpoint=reported.checkpoint if reported is not None else None,
        external_ids=tx.get_run_rows(ExternalId, leased).get(run.id, ()) if leased else (),
    )


def _list_charges(tx: Transaction, run: Run) -> tuple[RunCharge, ...]:
    """Return the charges of a run to existing budgets."""
    catalog = tx.read_budgets(needed=lambda: False)
    budgets = {budget.account_name: budget for budget in catalog.budgets.get(run.namespace, ())}
    if not budgets:
        return ()
    return tuple(
        RunCharge(
            budget=budgets[one.budget].name,
            fence=one.fence,
            used=budgets[one.budget].format_amount(one.used),
            held=budgets[one.budget].format_amount(one.held) if one.held else "",
        )
        for one in tx.get_run_rows(Charge, [run.id]).get(run.id, ())
        if one.budget in budgets
    )


def schedule_names_of(tx: Transaction, runs: Iterable[Run]) -> Mapping[str, str]:
    """Return the current names of the runs' schedules, by schedule id."""
    return names_by_id(tx, {run.schedule_id for run in runs if run.schedule_id})


@lru_cache(maxsize=4096)
def _describe(trigger: AnyTrigger, run_at_start: bool = False) -> str:
    """Return the trigger's description; cached, because every list needs it."""
    if run_at_start:
        return "at start" if isinstance(trigger, Manual) else f"{trigger.describe()}, and at start"
    return trigger.describe()


def _decision(schedule: Schedule, progress: ScheduleProgress) -> str:
    if progress.next_at is None and progress.source is Source.BASELINE_AFTER:
        return f"runs {_describe(schedule.trigger)}; no such run has ended since"
    if progress.source is None:
        return progress.reason or "no next time is decided yet"
    return Decision(progress.next_at, progress.source, progress.trail).explain()
