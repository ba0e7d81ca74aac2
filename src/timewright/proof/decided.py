"""Decided exactly once: every planned instant has one row, and no row is without its instant."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.calendars import is_open
from timewright.proof.checking import Seen, invariant
from timewright.proof.plans import FARTHEST, MOST_INSTANTS
from timewright.proof.policy import Policy
from timewright.proof.rows import Note, RunRow, ScheduleRow
from timewright.proof.spans import share, spelled
from timewright.proof.stretches import end_of, missing, stretches_of
from timewright.proof.view import View

Broken = Iterator[tuple[str, tuple[Struct, ...]]]

BY_TRIGGER = frozenset({"baseline-cron", "baseline-interval", "baseline-once", "baseline-after"})
SOURCES = BY_TRIGGER | {"ai-interval", "ai-oneshot", "clamped-min", "clamped-max", "paused"}
BY_HAND = frozenset({"manual", "backfill", "retry"})
STATES = frozenset({"ready", "held", "leased", "succeeded", "failed", "parked", "skipped", "cancelled"})


@invariant("I1", "decided once", counts="occurrences")
def one_row_for_one_instant(view: View, seen: Seen) -> Broken:
    """One instant of one schedule has one row."""
    for schedule_id, rows in view.occurrences.items():
        seen.count += len(rows)
        before: RunRow | None = None
        for row in rows:
            if before is not None and before.planned_at == row.planned_at:
                at = spelled(row.planned_at)
                yield f"{_name(view, schedule_id)} has more than one row for {at}", (before, row)
            before = row


@invariant("I2", "planned by the trigger", counts="occurrences")
def every_row_was_planned(view: View, seen: Seen) -> Broken:
    """The instant of every occurrence is in the plan of the revision it was decided under."""
    for run in _occurrences(view):
        policy = view.policy(run)
        if policy is None:
            continue
        seen.count += 1
        wrong = _why_unplanned(view, run, policy)
        if wrong:
            yield f"{_name(view, run.schedule_id)}: {spelled(run.planned_at)} {wrong}", (run,)


@invariant("I3", "nothing left out", counts="instants")
def every_instant_is_decided(view: View, seen: Seen) -> Broken:
    """Every planned instant up to the last decision has a row, or a place in one row that counts many."""
    for schedule in view.history.schedules:
        rows = view.occurrences.get(schedule.id, [])
        last = max((end_of(row) for row in rows), default=0)
        for stretch in stretches_of(view, schedule):
            until = min(stretch.until, last)
            holes = missing(view, stretch, after=stretch.after, until=until)
            covered = sum(max(row.dropped, 1) for row in rows if stretch.after < row.planned_at <= until)
            seen.count += covered + len(holes)
            for hole in holes:
                yield f"{schedule.name}: nothing is recorded for {spelled(hole)}", (schedule,)


@invariant("I4", "gaps count right", counts="gaps")
def gaps_count_what_they_hold(view: View, seen: Seen) -> Broken:
    """A row that counts many instants spans no other row, and counts every instant in its span."""
    for schedule_id, rows in view.occurrences.items():
        reach: RunRow | None = None
        for row in rows:
            if reach is not None and row.planned_at <= end_of(reach) and row.planned_at != reach.planned_at:
                said = f"{_name(view, schedule_id)}: a gap holds an instant with a row of its own"
                yield said, (reach, row)
            if row.last_of is not None:
                seen.count += 1
                wrong = _why_miscounted(view, row)
                if wrong:
                    yield f"{_name(view, schedule_id)}: {wrong}", (row,)
            if reach is None or end_of(row) > end_of(reach):
                reach = row if row.last_of is not None else reach


@invariant("I5", "never early", counts="runs")
def nothing_is_early(view: View, seen: Seen) -> Broken:
    """Nothing is admitted before its planned instant, or leased before its jitter is over."""
    for run in _occurrences(view):
        policy = view.policy(run)
        if policy is None or run.state == "skipped":
            continue
        seen.count += 1
        if run.created_at < run.planned_at - policy.early:
            yield f"admitted at {spelled(run.created_at)}, before {spelled(run.planned_at)}", (run,)
        elif run.fire_at < run.planned_at - policy.early:
            yield f"may fire at {spelled(run.fire_at)}, before {spelled(run.planned_at)}", (run,)
        else:
            first, earliest = view.first_lease(run), _earliest(view, run, policy)
            if first is not None and earliest is not None and first < earliest:
                yield f"leased at {spelled(first)}, before its jitter ended at {spelled(earliest)}", (run,)


@invariant("I6", "one run for each", counts="runs")
def rows_and_runs_belong_together(view: View, seen: Seen) -> Broken:
    """Every run of a schedule has its occurrence and its revision, and what does not run says why."""
    for run in view.history.runs:
        seen.count += 1
        wrong = _why_homeless(view, run)
        if wrong:
            yield wrong, (run,)


@invariant("I7", "the cursor is true", counts="schedules")
def the_cursor_is_true(view: View, seen: Seen) -> Broken:
    """Every planned instant up to the cursor is decided, and none beyond it."""
    for schedule in view.history.schedules:
        rows = view.occurrences.get(schedule.id, [])
        seen.count += 1
        for row in rows:
            if end_of(row) > schedule.cursor and not _was_left_out(view, row):
                at = spelled(end_of(row))
                yield f"{schedule.name}: {at} is decided, and its cursor stands before it", (schedule, row)
        last = max((end_of(row) for row in rows), default=0)
        for stretch in stretches_of(view, schedule):
            for hole in missing(view, stretch, after=max(stretch.after, last), until=stretch.until):
                yield f"{schedule.name}: the cursor passed {spelled(hole)} without a decision", (schedule,)


@invariant("I8", "the cursor only rises", counts="cursors")
def the_cursor_only_rises(view: View, seen: Seen) -> Broken:
    """A cursor never falls, and never stands before an instant that is already decided.

    Whoever left out an instant ahead and then changed the plan has the instants before it planned anew: the
    cursor falls to the edit, and what was left out keeps its row, so that it does not run after all.
    """
    for schedule in view.history.schedules:
        seen.count += 1
        rows = [row for row in view.occurrences.get(schedule.id, []) if not _was_left_out(view, row)]
        last = max(rows, key=end_of, default=None)
        if last is not None and end_of(last) > schedule.cursor:
            at = spelled(schedule.cursor)
            yield f"{schedule.name}: its cursor went back to {at}", (schedule, last)
    highest: dict[str, int] = {}
    for note in view.notes.get("cursor", ()):
        seen.count += 1
        if _was_planned_anew(view, note, highest.get(note.subject, 0)):
            highest[note.subject] = note.value
        if note.value < highest.get(note.subject, note.value):
            yield f"the cursor of {note.subject} fell to {spelled(note.value)}", (note,)
        highest[note.subject] = max(highest.get(note.subject, note.value), note.value)


def _was_left_out(view: View, row: RunRow) -> bool:
    """Whether an instant was left out by hand while it was ahead, and another plan was made after that."""
    edits = [revision.at for revision in view.revisions.get(row.schedule_id, ())]
    by_hand = row.state == "skipped" and row.planned_at in view.left_out.get(row.schedule_id, set())
    return by_hand and any(row.created_at <= at < row.planned_at for at in edits)


def _was_planned_anew(view: View, note: Note, highest: int) -> bool:
    """Whether a cursor at an instant left out by hand fell to the instant of an edit, or to its start."""
    if note.value >= highest or highest not in view.left_out.get(note.subject, set()):
        return False
    for revision in view.revisions.get(note.subject, ()):
        policy = view.policies[note.subject, revision.revision]
        start = policy.start_at if policy is not None else None
        if note.value == max(revision.at, start - 1 if start is not None else 0):
            return True
    return False


def _occurrences(view: View) -> Iterator[RunRow]:
    for rows in view.occurrences.values():
        yield from rows


def _name(view: View, schedule_id: str) -> str:
    row = view.schedules.get(schedule_id)
    return row.name if row is not None else schedule_id


def _why_unplanned(view: View, run: RunRow, policy: Policy) -> str:
    if run.source not in SOURCES:
        return f"is an occurrence with the source {run.source or 'nothing'}"
    plan = view.plan(policy)
    moves = policy.from_now or policy.cadence == "ladder" or policy.trigger.get("kind") in ("after", "manual")
    decided_otherwise = run.source not in BY_TRIGGER and (policy.governed or run.source == "paused")
    if plan is None or moves or decided_otherwise:
        return ""
    if policy.calendar is not None:
        calendars = view.calendars_at(run.namespace, policy.calendar, run.created_at)
        if calendars is None:
            return ""
        opens = is_open(policy.calendar, calendars, run.planned_at)
        if run.state != "skipped" and not opens:
            return "is closed by a calendar, and ran"
        if policy.rolls and opens:
            return ""
    return "" if plan.has(run.planned_at) else "is not in the plan"


def _why_miscounted(view: View, row: RunRow) -> str:
    policy = view.policy(row)
    plan = view.plan(policy) if policy is not None and not policy.rolls and not policy.governed else None
    assert row.last_of is not None
    if row.state != "skipped" or row.last_of < row.planned_at or row.dropped < 1:
        return "a row that counts many is no skip, ends before it begins, or counts nothing"
    if plan is None:
        return ""
    holds = plan.count(row.planned_at - 1, row.last_of, most=MOST_INSTANTS)
    if holds > MOST_INSTANTS or holds == row.dropped:
        return ""
    return f"a row says it counts {row.dropped} instants, and {holds} are planned in its span"


def _earliest(view: View, run: RunRow, policy: Policy) -> int | None:
    """When the hash lets an occurrence fire; nothing where its fire time is not of its jitter alone."""
    plan = view.plan(policy)
    if not policy.jitter or policy.catch_up == "spread" or policy.governed or policy.rolls or plan is None:
        return run.planned_at - policy.early if not policy.governed else None
    following = plan.first_after(run.planned_at, until=run.planned_at + FARTHEST)
    room = policy.jitter if following is None else min(policy.jitter, following - run.planned_at)
    seed = policy.schedule_id if policy.stable else f"{policy.schedule_id}:{run.planned_at}"
    amount = share(seed) * 2 - 1 if policy.early else share(seed)
    return run.planned_at + int(room * amount)


def _why_homeless(view: View, run: RunRow) -> str:
    if run.state not in STATES:
        return f"run {run.id} is in a state that does not exist: {run.state}"
    if not run.schedule_id:
        return "" if run.lane else f"run {run.id} belongs to no schedule, and stands for an occurrence"
    if run.schedule_id not in view.schedules:
        return f"run {run.id} belongs to a schedule that is not there"
    if (run.schedule_id, run.revision) not in view.policies:
        return f"run {run.id} was decided under revision {run.revision}, which is not there"
    if not run.lane and run.source in BY_HAND:
        return f"run {run.id} stands for an occurrence, and was made by hand"
    if run.state == "skipped" and not run.reason:
        return f"run {run.id} was skipped without a reason"
    if run.state != "skipped" and run.dropped:
        return f"run {run.id} counts {run.dropped} instants, and is no skip"
    return ""


def next_planned(view: View, schedule: ScheduleRow, policy: Policy) -> int | None:
    """What the oracle says comes next after the cursor, within a year and a bit."""
    plan = view.plan(policy)
    if plan is None:
        return None
    return plan.first_after(schedule.cursor, until=schedule.cursor + FARTHEST)
