"""Why: of any instant of a schedule or any run, what became of it or will, and what would change that."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.decision import Candidate, Source
from timewright.core.moments import check_stored, spell_instant
from timewright.core.run import Attempt, Run, RunState
from timewright.core.schedule import Schedule
from timewright.core.triggers import ZONED, AnyOf
from timewright.core.zones import zone
from timewright.ledger.notes import notes_of
from timewright.ledger.shelf import calendars_for, terms_for
from timewright.operations.context import Context
from timewright.operations.deferrals import tell_ahead
from timewright.operations.dependencies import tell_links, tell_unmet
from timewright.operations.examples import FAILED_RUN
from timewright.operations.fates import tell_run
from timewright.operations.find import find_run, find_schedule
from timewright.operations.foresight import unwritten
from timewright.operations.reasons import Remedy, Story, policy_of, tell_skipped
from timewright.operations.registry import Named, Request, operations
from timewright.operations.standstill import Unwritten
from timewright.operations.views import RunRow, run_row
from timewright.operations.workflow_steps import called, tell_workflow
from timewright.ports import Due, RunFilter, Transaction

_WORDS = {
    RunState.READY: "waits to start",
    RunState.HELD: "waits its turn",
    RunState.LEASED: "is under way",
    RunState.SUCCEEDED: "ran and succeeded",
    RunState.FAILED: "ran and failed",
    RunState.PARKED: "is parked and waits for a person",
    RunState.SKIPPED: "did not run",
    RunState.CANCELLED: "was cancelled",
}


class Explain(Request, frozen=True, kw_only=True):
    """Which occurrence: the one at an instant, the last one, or else the next."""

    schedule: Named
    at: datetime | None = None
    last: bool = False


class ExplainRun(Request, frozen=True, kw_only=True):
    """Which run."""

    run: Named


class Explanation(Struct, frozen=True, kw_only=True):
    """What became of an occurrence or will, in a sentence; why; by which policy; and what would change it.

    `fate` is the state of its run, or for an instant without one: `planned`, `not_planned`, `paused`,
    `excluded`, `undecided`, `displaced`, `forgotten`, `pending_approval`, `over` or `unaccounted`.
    """

    schedule: str
    at: datetime | None
    local: str
    fate: str
    reason: str
    summary: str
    because: tuple[str, ...]
    policy: dict[str, Any]
    remedies: tuple[Remedy, ...]
    source: Source | None = None
    trail: tuple[Candidate, ...] = ()
    run: RunRow | None = None
    attempts: tuple[Attempt, ...] = ()
    previous_at: datetime | None = None
    next_at: datetime | None = None
    note: str = ""


@operations.add(
    "schedule",
    "explain",
    Explain,
    scope="read",
    examples=(
        {"schedule": "nightly-report"},
        {"schedule": "nightly-report", "last": True},
        {"schedule": "nightly-report", "at": "2026-03-10T03:00:00Z"},
    ),
)
def explain_schedule(context: Context, ask: Explain) -> Explanation:
    """Say why an occurrence ran, did not, or will: at an instant, the last, or the next."""
    now, closed = context.now(), _closed(context)

    def work(tx: Transaction) -> Explanation:
        due = find_schedule(tx, context.namespace, ask.schedule)
        if ask.at is not None:
            check_stored(ask.at, field="at")
        run = _row(tx, due, ask)
        if run is not None:
            told = _written(tx, run, due.schedule, closed=closed, now=now)
            return replace(told, at=ask.at) if ask.at is not None else told
        foreseen = unwritten(tx, due, ask.at, settings=context.settings, now=now)
        waits = tell_ahead(tx, due.schedule, foreseen.at, now=now)
        words = "will come due, and wait" if waits and foreseen.fate == "planned" else foreseen.words
        foreseen = replace(foreseen, words=words, because=(*foreseen.because, *waits))
        return _noted(tx, due.schedule, _foreseen(due, foreseen, last=ask.last))

    return context.store.read(work)


@operations.add("run", "explain", ExplainRun, scope="read", examples=({"run": FAILED_RUN},))
def explain_run(context: Context, ask: ExplainRun) -> Explanation:
    """Say why a run came to be, and why it ended, waits, or never started."""
    now, closed = context.now(), _closed(context)

    def work(tx: Transaction) -> Explanation:
        run = find_run(tx, context.namespace, ask.run)
        due = tx.get_schedules([run.schedule_id]).get(run.schedule_id) if run.schedule_id else None
        return _written(tx, run, due.schedule if due is not None else None, closed=closed, now=now)

    return context.store.read(work)


def _row(tx: Transaction, due: Due, ask: Explain) -> Run | None:
    """The row that tells of the occurrence, if it has one."""
    if ask.at is not None:
        return tx.find_occurrence(due.schedule.id, ask.at)
    if ask.last:
        page = tx.find_runs(RunFilter(schedule_id=due.schedule.id, limit=1))
        return page.rows[0] if page.rows else None
    return None


def _closed(context: Context) -> str:
    file = context.policies()
    return file.refusal.message if file is not None and file.refusal is not None else ""


def _written(tx: Transaction, run: Run, today: Schedule | None, *, closed: str, now: datetime) -> Explanation:
    """What a row tells, under the words its schedule had when it was admitted."""
    then = terms_for(tx, [run])[run.id].schedule
    schedule = replace(then, name=today.name) if then is not None and today is not None else then
    calendars = calendars_for(tx, [schedule]).of(schedule) if schedule is not None else {}
    story = Story(tx=tx, run=run, schedule=schedule, calendars=calendars, now=now, closed=closed)
    skipped = run.state is RunState.SKIPPED
    why = (tell_unmet(story) or tell_skipped(story)) if skipped else tell_run(story)
    name = today.name if today is not None else ""
    told = Explanation(
        schedule=name,
        at=run.planned_at,
        local=_local(schedule, run.planned_at),
        fate=run.state.value,
        reason=run.reason,
        summary=_summary(run, name or called(run)),
        because=(*tell_workflow(tx, run), *why.because, *tell_links(tx, run)),
        policy=policy_of(schedule, why.policy) if schedule is not None else {},
        remedies=why.remedies,
        source=run.source,
        trail=run.trail,
        run=run_row(run, schedule=name),
        attempts=tx.get_attempts([run.id]).get(run.id, ()),
    )
    return _noted(tx, schedule, told) if schedule is not None else told


def _noted(tx: Transaction, schedule: Schedule, told: Explanation) -> Explanation:
    """The same with the note that stands beside the occurrence."""
    if told.at is None:
        return told
    note = notes_of(tx, schedule.id, [told.at], namespace=schedule.namespace).get(told.at)
    return replace(told, note=note.text) if note is not None else told


def _summary(run: Run, name: str) -> str:
    why = f": {run.reason}" if run.reason else ""
    if run.last_of is not None:
        span = f"{spell_instant(run.planned_at)} to {spell_instant(run.last_of)}"
        return f"{name}: {run.dropped} occurrences from {span} did not run{why}"
    return f"{name}: the run planned for {spell_instant(run.planned_at)} {_WORDS[run.state]}{why}"


def _foreseen(due: Due, found: Unwritten, *, last: bool) -> Explanation:
    """What is known of an instant that has no row."""
    because = ("it has never run", *found.because) if last else found.because
    when = f" {spell_instant(found.at)}" if found.at is not None else ""
    decided = found.at is not None and found.at == due.standing.next_at
    return Explanation(
        schedule=due.schedule.name,
        at=found.at,
        local=_local(due.schedule, found.at),
        fate=found.fate,
        reason=found.reason,
        summary=f"{due.schedule.name}:{when} {found.words}",
        because=because,
        policy=policy_of(due.schedule, found.policy),
        remedies=found.remedies,
        source=due.standing.source if decided else None,
        trail=due.standing.trail if decided else (),
        previous_at=found.previous_at,
        next_at=found.next_at,
    )


def _local(schedule: Schedule | None, at: datetime | None) -> str:
    """The instant as people in the schedule's zone read it."""
    if schedule is None or at is None:
        return ""
    trigger = schedule.trigger
    parts = trigger.triggers if isinstance(trigger, AnyOf) else (trigger,)
    zones = [one.zone for one in parts if isinstance(one, ZONED)]
    return at.astimezone(zone(zones[0] if zones else "UTC")).isoformat()
