"""Invariants of admission: every planned instant is decided exactly once, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.asked_instants import undecided_requests
from timewright.verification.oracle.calendars import is_open
from timewright.verification.oracle.decision_times import decision_times
from timewright.verification.oracle.instant_sets import MAX_INSTANTS, MAX_LOOKAHEAD_US
from timewright.verification.oracle.revision_spans import (
    history_starts_at,
    last_instant,
    missing_instants,
    revision_spans,
)
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import format_instant, hash_fraction
from timewright.verification.rows import RunRow, ScheduleRow, SimulationEvent
from timewright.verification.view import MAX_AHEAD_US, HistoryView

TRIGGER_SOURCES = frozenset({"baseline-cron", "baseline-interval", "baseline-once", "baseline-after"})
OCCURRENCE_SOURCES = TRIGGER_SOURCES | {"ai-interval", "ai-oneshot", "clamped-min", "clamped-max", "paused"}
MANUAL_SOURCES = frozenset({"manual", "backfill", "retry"})
# What an edit must change so that instants before one that was skipped ahead are planned again.
PLAN_FIELDS = ("trigger", "start_at", "end_at", "calendar")
RUN_STATES = frozenset({"ready", "held", "leased", "succeeded", "failed", "parked", "skipped", "cancelled"})


@invariant("I1", "decided once", unit="occurrences")
def one_row_for_one_instant(view: HistoryView, coverage: Coverage) -> Violations:
    """One instant of one schedule has one row."""
    for schedule_id, rows in view.occurrences.items():
        coverage.count += len(rows)
        before: RunRow | None = None
        for row in rows:
            if before is not None and before.planned_at == row.planned_at:
                at = format_instant(row.planned_at)
                yield f"{_name(view, schedule_id)} has more than one row for {at}", (before, row)
            before = row


@invariant("I2", "planned by the trigger", unit="occurrences")
def every_row_was_planned(view: HistoryView, coverage: Coverage) -> Violations:
    """The instant of every occurrence is planned by the revision it was decided under."""
    for schedule_id, rows in view.occurrences.items():
        times = decision_times(view, schedule_id)
        for run in rows:
            policy = view.policy(run)
            if policy is None:
                continue
            coverage.count += 1
            error = _planning_error(view, run, policy)
            if not error and times is not None and not times.explains(run, policy):
                error = "follows from nothing that is recorded"
            if error:
                yield f"{_name(view, schedule_id)}: {format_instant(run.planned_at)} {error}", (run,)


@invariant("I3", "nothing left out", unit="instants")
def every_instant_is_decided(view: HistoryView, coverage: Coverage) -> Violations:
    """Every planned instant up to the last decision has a row or is counted by a gap row."""
    for schedule in view.history.schedules:
        rows = view.occurrences.get(schedule.id, [])
        last = max((last_instant(row) for row in rows), default=0)
        for stretch in revision_spans(view, schedule):
            until = min(stretch.until, last)
            missing = missing_instants(view, stretch, after=stretch.after, until=until)
            covered = sum(max(row.dropped, 1) for row in rows if stretch.after < row.planned_at <= until)
            coverage.count += covered + len(missing)
            for instant in missing:
                yield f"{schedule.name}: nothing is recorded for {format_instant(instant)}", (schedule,)
        for instant in _lost_skips(view, schedule, rows):
            yield (
                f"{schedule.name}: {format_instant(instant)} was skipped by hand, but has no row",
                (schedule,),
            )
        for instant in undecided_requests(view, schedule):
            yield f"{schedule.name}: nothing is recorded for {format_instant(instant)}, as asked", (schedule,)
        times = decision_times(view, schedule.id)
        for before, after in times.long_gaps() if times is not None else ():
            gap = f"between {format_instant(before)} and {format_instant(after)}"
            yield f"{schedule.name}: nothing is recorded {gap}, though something was due", (schedule,)


@invariant("I4", "gap rows count right", unit="gap rows")
def gap_rows_count_their_instants(view: HistoryView, coverage: Coverage) -> Violations:
    """A gap row counts every planned instant in its span, and spans no other row.

    Exception: after a skip by hand of a later instant, an edit plans the instants in the span again.
    """
    for schedule_id, rows in view.occurrences.items():
        gap: RunRow | None = None
        for row in rows:
            if gap is not None and row.planned_at <= last_instant(gap) and row.planned_at != gap.planned_at:
                message = f"{_name(view, schedule_id)}: a gap row spans an instant that has its own row"
                yield message, (gap, row)
            if row.last_of is not None:
                coverage.count += 1
                error = _count_error(view, row)
                if error:
                    yield f"{_name(view, schedule_id)}: {error}", (row,)
            if gap is None or last_instant(row) > last_instant(gap):
                gap = row if row.last_of is not None and not _was_skipped_ahead(view, row) else gap


@invariant("I5", "never early", unit="runs")
def nothing_is_early(view: HistoryView, coverage: Coverage) -> Violations:
    """Nothing is admitted before its planned instant, or leased before its jittered start."""
    for run in _occurrences(view):
        policy = view.policy(run)
        if policy is None or run.state == "skipped":
            continue
        coverage.count += 1
        if run.created_at < run.planned_at - policy.early_jitter:
            yield (
                f"admitted at {format_instant(run.created_at)}, before {format_instant(run.planned_at)}",
                (run,),
            )
        elif run.fire_at < run.planned_at - policy.early_jitter:
            yield (
                f"may fire at {format_instant(run.fire_at)}, before {format_instant(run.planned_at)}",
                (run,),
            )
        else:
            first, earliest = view.first_lease(run), _earliest(view, run, policy)
            # A run that a person reset before its first lease starts at once.
            was_reset = first is not None and any(line.at <= first for line in view.resets(run))
            if first is not None and earliest is not None and first < earliest and not was_reset:
                yield (
                    f"leased at {format_instant(first)}, before jitter allows: {format_instant(earliest)}",
                    (run,),
                )


@invariant("I6", "runs are complete", unit="runs")
def every_run_has_its_schedule_and_revision(view: HistoryView, coverage: Coverage) -> Violations:
    """Every run of a schedule has its schedule and revision, and every skip has a reason."""
    for run in view.history.runs:
        coverage.count += 1
        error = _run_error(view, run)
        if error:
            yield error, (run,)


@invariant("I7", "cursor matches decisions", unit="schedules")
def the_cursor_marks_the_last_decision(view: HistoryView, coverage: Coverage) -> Violations:
    """Every planned instant up to the cursor is decided, and none after it."""
    for schedule in view.history.schedules:
        rows = view.occurrences.get(schedule.id, [])
        coverage.count += 1
        for row in rows:
            if last_instant(row) > schedule.cursor and not _was_skipped_ahead(view, row):
                at = format_instant(last_instant(row))
                yield f"{schedule.name}: {at} is decided, but its cursor is before it", (schedule, row)
        times = decision_times(view, schedule.id)
        for cursor in times.stray_cursors() if times is not None else ():
            at = format_instant(cursor)
            yield f"{schedule.name}: its cursor was at {at}, but nothing was decided there", (schedule,)
        last = max((last_instant(row) for row in rows), default=0)
        for stretch in revision_spans(view, schedule):
            for instant in missing_instants(
                view, stretch, after=max(stretch.after, last), until=stretch.until
            ):
                yield (
                    f"{schedule.name}: the cursor passed {format_instant(instant)} without a decision",
                    (schedule,),
                )


@invariant("I8", "cursor never falls", unit="cursors")
def the_cursor_only_rises(view: HistoryView, coverage: Coverage) -> Violations:
    """A cursor never falls, and is never before a decided instant.

    Exception: if a user skips a future instant and then edits the schedule, the instants before it are
    planned again. The cursor falls to the edit, and the skipped instant keeps its row so that it still does
    not run.
    """
    for schedule in view.history.schedules:
        coverage.count += 1
        rows = [row for row in view.occurrences.get(schedule.id, []) if not _was_skipped_ahead(view, row)]
        last = max(rows, key=last_instant, default=None)
        if last is not None and last_instant(last) > schedule.cursor:
            at = format_instant(schedule.cursor)
            yield f"{schedule.name}: its cursor fell to {at}", (schedule, last)
    highest: dict[str, int] = {}
    for event in view.events.get("cursor", ()):
        coverage.count += 1
        if _was_replanned(view, event, highest.get(event.subject, 0)):
            highest[event.subject] = event.value
        if event.value < highest.get(event.subject, event.value):
            yield f"the cursor of {event.subject} fell to {format_instant(event.value)}", (event,)
        highest[event.subject] = max(highest.get(event.subject, event.value), event.value)


@invariant("I49", "nothing is dated after the clock", unit="schedules")
def nothing_is_dated_after_the_clock(view: HistoryView, coverage: Coverage) -> Violations:
    """No schedule is decided further ahead than a day after the clock, except by hand.

    A wrong clock whose reading was used leaves such a cursor; until then the schedule is silent.
    """
    for schedule in view.history.schedules:
        coverage.count += 1
        skipped = view.skipped_by_hand.get(schedule.id, set())
        # A schedule that starts later is decided up to its start from the beginning.
        policy = view.policies.get((schedule.id, schedule.revision))
        start = policy.start_at if policy is not None and policy.start_at is not None else 0
        limit = max(view.now + MAX_AHEAD_US, start)
        if schedule.cursor > limit and schedule.cursor not in skipped:
            at = format_instant(schedule.cursor)
            yield f"{schedule.name}: it is decided up to {at}, which the clock has not reached", (schedule,)


def _lost_skips(view: HistoryView, schedule: ScheduleRow, rows: list[RunRow]) -> Iterator[int]:
    """Instants that a person skipped or moved and that have no row, unless it may be pruned."""
    floor = history_starts_at(view, schedule)
    if any(pause.origin == "clock" for pause in view.history.pauses):
        return  # What was skipped at a time that the clock has taken back is deleted.
    decided = {row.planned_at for row in rows}
    for row in view.adjustments.get(schedule.id, ()):
        if row.kind in ("skip", "move") and row.at > floor and row.planned_at is not None:
            is_folded = any(one.planned_at <= row.planned_at <= last_instant(one) for one in rows)
            if row.planned_at not in decided and not is_folded:
                yield row.planned_at


def _was_skipped_ahead(view: HistoryView, row: RunRow) -> bool:
    """Whether an instant was skipped by hand before it came, and the schedule was edited after that."""
    edits = [
        after.at
        for before, after in pairwise(view.revisions.get(row.schedule_id, ()))
        if any(before.body.get(name) != after.body.get(name) for name in PLAN_FIELDS)
    ]
    by_hand = row.state == "skipped" and row.planned_at in view.skipped_by_hand.get(row.schedule_id, set())
    # A skip by hand also records what the clamp moved to the skipped instant.
    by_hand = by_hand or (row.reason == "clamped" and row.created_at < last_instant(row))
    return by_hand and any(row.created_at <= at < last_instant(row) for at in edits)


def _was_replanned(view: HistoryView, event: SimulationEvent, highest: int) -> bool:
    """Whether a cursor at a skipped instant fell to the instant of an edit, or to the schedule's start.

    From there it passes instants of the new plan that are decided, because of a skip by hand before the edit.
    """
    skipped = view.skipped_by_hand.get(event.subject, set())
    if event.value >= highest or highest not in skipped:
        return False
    rows = view.occurrences.get(event.subject, ())
    for revision in view.revisions.get(event.subject, ()):
        policy = view.policies[event.subject, revision.revision]
        start = policy.start_at if policy is not None else None
        begins = max(revision.at, start - 1 if start is not None else 0)
        decided = [row for row in rows if row.created_at <= revision.at]
        # The row of what was skipped by hand may be pruned.
        passed = event.value in skipped
        passed = passed or any(row.planned_at <= event.value <= last_instant(row) for row in decided)
        if event.value == begins or (event.value > begins and passed):
            return True
    return False


def _occurrences(view: HistoryView) -> Iterator[RunRow]:
    for rows in view.occurrences.values():
        yield from rows


def _name(view: HistoryView, schedule_id: str) -> str:
    row = view.schedules.get(schedule_id)
    return row.name if row is not None else schedule_id


def _planning_error(view: HistoryView, run: RunRow, policy: SchedulePolicy) -> str:
    if run.source not in OCCURRENCE_SOURCES:
        return f"has the source {run.source or 'nothing'}, which no occurrence has"
    plan = view.planned_instants(policy)
    moves = (
        policy.aligned_to_now
        or policy.cadence == "ladder"
        or policy.trigger.get("kind") in ("after", "manual")
    )
    decided_otherwise = run.source not in TRIGGER_SOURCES and (policy.is_governed or run.source == "paused")
    if plan is None or moves or decided_otherwise:
        return ""
    if policy.calendar is not None:
        calendars = view.calendars_at(run.namespace, policy.calendar, run.created_at)
        if calendars is None:
            return ""
        opens = is_open(policy.calendar, calendars, run.planned_at)
        if run.state != "skipped" and not opens:
            return "is closed by a calendar, but ran"
        if policy.rolls_by_calendar and opens:
            return ""
    return "" if plan.has(run.planned_at) else "is not in the plan"


def _count_error(view: HistoryView, row: RunRow) -> str:
    policy = view.policy(row)
    plan = (
        view.planned_instants(policy)
        if policy is not None and not policy.rolls_by_calendar and _counts_trigger(policy, row)
        else None
    )
    assert row.last_of is not None
    if row.state != "skipped" or row.last_of < row.planned_at or row.dropped < 1:
        return "a gap row is not skipped, ends before it begins, or counts nothing"
    if plan is None:
        return ""
    holds = plan.count(row.planned_at - 1, row.last_of, limit=MAX_INSTANTS)
    if holds > MAX_INSTANTS or holds == row.dropped:
        return ""
    return f"a gap row counts {row.dropped} instants, but {holds} are planned in its span"


def _counts_trigger(policy: SchedulePolicy, row: RunRow) -> bool:
    """Whether a gap row counts instants of the trigger only; a clamp moves others between them."""
    return not policy.is_governed or (policy.follows_trigger and row.reason == "clamped")


def _earliest(view: HistoryView, run: RunRow, policy: SchedulePolicy) -> int | None:
    """The earliest start by the jitter hash; None if something else also decides the start."""
    plan = view.planned_instants(policy)
    if (
        not policy.jitter
        or policy.catch_up == "spread"
        or policy.is_governed
        or policy.rolls_by_calendar
        or plan is None
    ):
        return run.planned_at - policy.early_jitter if not policy.is_governed else None
    following = plan.first_after(run.planned_at, until=run.planned_at + MAX_LOOKAHEAD_US)
    width = policy.jitter if following is None else min(policy.jitter, following - run.planned_at)
    seed = policy.schedule_id if policy.stable_offset else f"{policy.schedule_id}:{run.planned_at}"
    amount = hash_fraction(seed) * 2 - 1 if policy.early_jitter else hash_fraction(seed)
    return run.planned_at + int(width * amount)


def _run_error(view: HistoryView, run: RunRow) -> str:
    if run.state not in RUN_STATES:
        return f"run {run.id} is in a state that does not exist: {run.state}"
    if not run.schedule_id:
        return "" if run.dedupe_scope else f"run {run.id} is an occurrence without a schedule"
    if run.schedule_id not in view.schedules:
        return f"run {run.id} belongs to a schedule that does not exist"
    if (run.schedule_id, run.revision) not in view.policies:
        return f"run {run.id} was decided under revision {run.revision}, which does not exist"
    if not run.dedupe_scope and run.source in MANUAL_SOURCES:
        return f"run {run.id} is an occurrence, but was created by hand"
    if run.state == "skipped" and not run.reason:
        return f"run {run.id} was skipped without a reason"
    if run.state != "skipped" and run.dropped:
        return f"run {run.id} counts {run.dropped} instants, but is not skipped"
    return ""
