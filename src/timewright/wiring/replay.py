"""Decides the recorded occurrences of a span again, and lists what comes out differently."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.definitions import Definition
from timewright.core.moments import SECOND, ZERO, format_instant
from timewright.core.run.run import Run, RunState
from timewright.core.run.simulation import Outages, SimulatedRun, WorkModel
from timewright.core.schedule.adjustments import Adjustment, AdjustmentKind
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import Schedule, ScheduleState, initial_progress
from timewright.errors import NotFound, TimewrightError
from timewright.ledger.lookups import load_calendars
from timewright.ledger.replan import Actor, create, revise
from timewright.ledger.schedule_progress import progress_after_clock_return
from timewright.ledger.snapshot import copy_objects, read_fleet, unleased
from timewright.operations import OperationContext, operations
from timewright.ports import RunFilter, ScheduleRecord, ScheduleWrite, Store, Transaction
from timewright.ports.objects import AdjustmentsOf
from timewright.ports.schedules import RevisionsOf, StoredRevision
from timewright.settings import Settings
from timewright.wiring.what_if import Change, WhatIf, merge_outages, put_definition, what_if

PAGE_ROWS = 1000
# A decision later than this after its instant means that no engine decided in between.
PROMPT = SECOND
MAX_EXTENSIONS = 100
MAX_WORKERS = 10_000
MAX_ROWS = 10_000_000
_INSTANT = timedelta(microseconds=1)
_HINTS = (AdjustmentKind.INTERVAL, AdjustmentKind.ONE_SHOT, AdjustmentKind.HINT_PAUSE)
_BY_HAND = (Source.MANUAL, Source.BACKFILL)


class Replay(Struct, frozen=True, kw_only=True):
    """What to decide again: a span, schedules, and what is different this time.

    `without_hints` are ids of hints as the report names them. `fields` replace fields of every schedule, and
    `definitions` whole schedules.
    """

    since: datetime
    until: datetime
    schedules: tuple[str, ...] = ()
    definitions: tuple[Definition, ...] = ()
    fields: dict[str, Any] = {}
    without_hints: tuple[str, ...] = ()


class DecisionDifference(Struct, frozen=True, kw_only=True):
    """An occurrence that is decided differently; an empty text means that it is not decided at all."""

    schedule: str
    planned_at: datetime
    recorded: str
    replayed: str


class ReplayedHint(Struct, frozen=True, kw_only=True):
    """A hint of the span, by the id that `without_hints` takes."""

    id: str
    schedule: str
    kind: AdjustmentKind
    actor: str
    reason: str
    left_out: bool


class ReplayReport(Struct, frozen=True, kw_only=True):
    """How many decisions were made again, and which differ; the outages are those that the records show."""

    since: datetime
    until: datetime
    decisions: int
    same: int
    differences: tuple[DecisionDifference, ...]
    hints: tuple[ReplayedHint, ...]
    outages: Outages


class _History(Struct, frozen=True, kw_only=True):
    """One schedule: its definitions, newest first, its recorded runs and its adjustments."""

    record: ScheduleRecord
    revisions: tuple[StoredRevision, ...]
    runs: tuple[Run, ...]
    adjustments: tuple[Adjustment, ...]

    @property
    def name(self) -> str:
        return self.record.schedule.name

    def definition_at(self, instant: datetime) -> Schedule | None:
        """The definition in force at an instant; None before it was created."""
        return next((one.schedule for one in self.revisions if one.at <= instant), None)


def replay(
    question: Replay,
    *,
    source: Store,
    namespace: str = "default",
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    progress: Callable[[float, str], None] | None = None,
) -> ReplayReport:
    """Decide what was recorded again, with the recorded edits, hints, pauses, durations and outcomes."""
    span, histories = _read_span(source, namespace, question)
    _check_names(question, histories)
    outages = merge_outages(_recorded_outages(histories, span))
    asked = WhatIf(
        since=span.since,
        until=span.until,
        outages=outages,
        changes=tuple(_changes(histories, span)),
        work=WorkModel(outcomes=_outcomes(histories, span)),
        workers=MAX_WORKERS,
        max_rows=MAX_ROWS,
    )

    def load(store: Store) -> None:
        schedules = [one.record.schedule for one in histories]
        copy_objects(source, store, namespace=namespace, schedules=schedules)
        store.write(lambda tx: _write_start(tx, histories, span))

    report = what_if(asked, load=load, namespace=namespace, settings=settings, progress=progress)
    recorded = dict(_recorded_decisions(histories, question))
    replayed = dict(_replayed_decisions(report.rows, histories, question))
    keys = sorted({*recorded, *replayed}, key=lambda key: (key[1], key[0]))
    pairs = [(key, recorded.get(key, ""), replayed.get(key, "")) for key in keys]
    differences = tuple(
        DecisionDifference(schedule=name, planned_at=at, recorded=then, replayed=now)
        for (name, at), then, now in pairs
        if then != now
    )
    return ReplayReport(
        since=question.since,
        until=question.until,
        decisions=len(keys),
        same=len(keys) - len(differences),
        differences=differences,
        hints=tuple(_hints(histories, question)),
        outages=outages,
    )


def _read_span(source: Store, namespace: str, question: Replay) -> tuple[Replay, list[_History]]:
    """Return what to simulate: it begins before the span if a hint or an outage was in force at its start."""
    span = question
    for _ in range(MAX_EXTENSIONS):
        histories = source.read(partial(_read_histories, namespace=namespace, question=span))
        start = min(span.since, *_earlier_starts(histories, span.since), span.since)
        if start == span.since:
            break
        span = replace(span, since=start)
    return span, histories


def _earlier_starts(histories: Iterable[_History], since: datetime) -> Iterator[datetime]:
    for one in histories:
        for hint in one.adjustments:
            if hint.kind in _HINTS and hint.until is not None and hint.at < since < hint.until:
                yield hint.at - SECOND
        for run in one.runs:
            if run.planned_at < since < max(run.created_at, run.started_at or run.created_at):
                yield run.planned_at - SECOND


def _read_histories(tx: Transaction, *, namespace: str, question: Replay) -> list[_History]:
    histories = []
    for record in list(read_fleet(tx, namespace)):
        schedule = record.schedule
        if question.schedules and schedule.name not in question.schedules:
            continue
        revisions = tuple(tx.select(RevisionsOf(schedule.id, limit=PAGE_ROWS)))
        if revisions[-1].at >= question.until:
            continue
        runs = tuple(_read_runs(tx, schedule.id, question))
        adjustments = tuple(reversed(tx.select(AdjustmentsOf(schedule.id))))
        histories.append(_History(record=record, revisions=revisions, runs=runs, adjustments=adjustments))
    return histories


def _read_runs(tx: Transaction, schedule_id: str, question: Replay) -> list[Run]:
    """The runs of the span and the one before it, oldest first; runs made by hand decide nothing."""
    found: list[Run] = []
    which = RunFilter(schedule_id=schedule_id, limit=PAGE_ROWS)
    while True:
        page = tx.find(which)
        for run in page.rows:
            if run.source not in _BY_HAND and not run.dedupe_scope:
                found.append(run)
            if found and found[-1].planned_at < question.since:
                return found[::-1]
        if not page.cursor:
            return found[::-1]
        which = replace(which, cursor=page.cursor)


def _check_names(question: Replay, histories: Sequence[_History]) -> None:
    known = {one.name for one in histories}
    for name in sorted(set(question.schedules) - known):
        raise NotFound(f"no schedule {name}", field="schedule", value=name, fix="timewright schedule list")
    hints = [one.id for one in _hints(histories, question)]
    for hint in sorted(set(question.without_hints) - set(hints)):
        rule, fix = "SCHEDULE@INSTANT of a hint in the span", (hints or ["a span that has hints"])[0]
        raise NotFound(f"no hint {hint} in the span", field="without_hint", value=hint, rule=rule, fix=fix)


def _write_start(tx: Transaction, histories: Sequence[_History], question: Replay) -> None:
    """Write the schedules as they were at the start of the span."""
    there = [(one, definition) for one in histories if (definition := one.definition_at(question.since))]
    calendars = load_calendars(tx, [definition for _, definition in there])
    writes, under_way = [], list[Run]()
    for one, definition in there:
        before = [run for run in one.runs if run.planned_at < question.since]
        last = before[-1] if before else None
        progress = replace(initial_progress(definition), state=ScheduleState.ACTIVE)
        if last is not None:
            ended = last.finished_at
            progress = replace(progress, last_started_at=last.started_at, last_finished_at=ended)
        record = replace(one.record, schedule=definition, progress=progress)
        cursor = question.since - _INSTANT
        if definition.created_at >= question.since:
            cursor = progress.cursor
        progress = progress_after_clock_return(record, calendars, decided=cursor)
        writes.append(ScheduleWrite(schedule=definition, progress=progress, at=question.since))
        has_started = last is not None and last.started_at is not None
        if last is not None and has_started and (last.finished_at or question.until) > question.since:
            under_way.append(replace(unleased(last), state=RunState.READY, started_at=None, finished_at=None))
    tx.put_schedules(writes)
    tx.add_runs(under_way)


def _changes(histories: Sequence[_History], question: Replay) -> Iterator[tuple[datetime, Change]]:
    """The edits and adjustments of the span, and at its start and after edits what is different this time."""
    written = {one.name: one for one in question.definitions}
    for one in histories:
        edits = [edit for edit in reversed(one.revisions) if question.since < edit.at < question.until]
        begins = question.since if one.definition_at(question.since) else edits[0].at
        if one.name in written:
            yield begins, partial(put_definition, definition=written.pop(one.name))
        else:
            yield from ((edit.at, _edit(edit.schedule)) for edit in edits)
        if question.fields:
            for at in sorted({begins, *(edit.at for edit in edits)}):
                yield at + _INSTANT, _call("schedule update", schedule=one.name, **question.fields)
        for adjustment in one.adjustments:
            is_left_out = _hint_id(one, adjustment) in question.without_hints
            if not is_left_out and adjustment.at < question.until:
                yield from _adjust(one.name, adjustment, question)
    for definition in written.values():
        yield question.since, partial(put_definition, definition=definition)


def _adjust(name: str, one: Adjustment, question: Replay) -> Iterator[tuple[datetime, Change]]:
    at = max(one.at, question.since)
    if ZERO <= one.cursor - at < PROMPT:
        # It waited for an engine that decided this instant, and came after it.
        at = one.cursor + _INSTANT
    if one.at < question.since and one.until is not None and one.until <= question.since:
        return
    match one.kind:
        case AdjustmentKind.INTERVAL if one.until is not None:
            yield at, _call("hint interval", schedule=name, interval=one.interval, ttl=one.until - at)
        case AdjustmentKind.ONE_SHOT if one.until is not None and one.planned_at is not None:
            if one.planned_at > at:
                yield at, _call("hint once", schedule=name, at=one.planned_at, ttl=one.until - at)
        case AdjustmentKind.HINT_PAUSE:
            yield at, _call("hint pause", schedule=name, until=one.until)
        case AdjustmentKind.CLEAR_HINTS:
            yield at, _call("hint clear", schedule=name)
        case AdjustmentKind.PAUSE:
            yield at, _call("schedule pause", schedule=name, until=one.until)
        case AdjustmentKind.RESUME:
            yield at, _call("schedule resume", schedule=name)
        case AdjustmentKind.SKIP if one.at >= question.since:
            yield at, _call("schedule skip", schedule=name)
        case AdjustmentKind.MOVE if one.at >= question.since:
            yield at, _call("schedule move", schedule=name, to=one.moved_to)
        case _:
            return


def _call(operation: str, **request: Any) -> Change:
    """A change by an operation; one that this fleet refuses is left out, and shows as a difference."""
    given = {
        key: format_instant(value) if isinstance(value, datetime) else value
        for key, value in request.items()
        if value is not None
    }

    def change(context: OperationContext) -> None:
        with suppress(TimewrightError):
            operations[operation](context, given)

    return change


def _edit(definition: Schedule) -> Change:
    def change(context: OperationContext) -> None:
        now, by = context.now(), Actor(name="replay")
        if context.store.read(lambda tx: tx.get_schedules([definition.id])):
            revise(context.store, definition, ids=context.ids, by=by, now=now)
        else:
            create(context.store, [definition], by=by, now=now)

    return change


def _outcomes(
    histories: Iterable[_History], question: Replay
) -> dict[tuple[str, datetime], tuple[timedelta, bool]]:
    """How long each run took and whether it failed; one under way at the start takes what was left.

    One that has not ended takes the rest of the span.
    """
    found = {}
    for one in histories:
        for run in one.runs:
            if run.started_at is not None and run.finished_at is not None:
                began = max(run.started_at, question.since)
                found[one.name, run.planned_at] = (run.finished_at - began, run.state is RunState.FAILED)
            elif run.state is RunState.LEASED:
                found[one.name, run.planned_at] = (question.until - run.planned_at, False)
    return found


def _recorded_outages(histories: Sequence[_History], question: Replay) -> Iterator[tuple[datetime, datetime]]:
    """The spans in which no engine worked: from an instant to its late decision or the start of its run."""
    runs = [run for one in histories for run in one.runs if question.since <= run.planned_at < question.until]
    decided = [
        (run.planned_at, run.created_at)
        for run in runs
        if run.created_at - run.planned_at > PROMPT and run.reason not in ("paused", "clamped")
    ]
    yield from decided
    ends = sorted({end for _, end in decided})
    for run in runs:
        if run.started_at is not None and run.started_at - run.fire_at > PROMPT:
            last = bisect_right(ends, run.started_at) - 1
            if last >= 0 and run.started_at - ends[last] <= PROMPT:
                yield run.fire_at, run.started_at


def _recorded_decisions(
    histories: Iterable[_History], question: Replay
) -> Iterator[tuple[tuple[str, datetime], str]]:
    for one in histories:
        for run in one.runs:
            if question.since <= run.planned_at < question.until:
                skipped = run.state is RunState.SKIPPED
                yield (one.name, run.planned_at), f"skipped: {run.reason}" if skipped else "run"


def _replayed_decisions(
    rows: Iterable[SimulatedRun], histories: Iterable[_History], question: Replay
) -> Iterator[tuple[tuple[str, datetime], str]]:
    """The decisions of the replay, without steps of workflows, up to where each schedule was decided."""
    decided = {one.name: one.record.progress.cursor for one in histories}
    # A schedule that was created in the span is reported by its id.
    names = {one.record.schedule.id: one.name for one in histories}
    for row in rows:
        name = names.get(row.schedule, row.schedule)
        until = decided.get(name, question.until)
        if name and row.source not in _BY_HAND and question.since <= row.planned_at <= until:
            yield (name, row.planned_at), f"skipped: {row.reason}" if row.state == "skipped" else "run"


def _hints(histories: Iterable[_History], question: Replay) -> Iterator[ReplayedHint]:
    for one in histories:
        for hint in one.adjustments:
            in_span = hint.at < question.until and (hint.until is None or hint.until > question.since)
            if hint.kind in _HINTS and in_span:
                name = _hint_id(one, hint)
                yield ReplayedHint(
                    id=name,
                    schedule=one.name,
                    kind=hint.kind,
                    actor=hint.actor,
                    reason=hint.reason,
                    left_out=name in question.without_hints,
                )


def _hint_id(history: _History, hint: Adjustment) -> str:
    return f"{history.name}@{format_instant(hint.at)}"
