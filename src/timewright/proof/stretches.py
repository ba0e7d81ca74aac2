"""Which instants a schedule had to decide: each revision from where it took over to where it ended."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from timewright.proof.calendars import is_open
from timewright.proof.plans import FARTHEST, MOST_INSTANTS, Instants
from timewright.proof.policy import Policy
from timewright.proof.rows import RevisionRow, RunRow, ScheduleRow
from timewright.proof.spans import instant, made_at
from timewright.proof.view import View

# Why a run that was admitted, and counted, did not start after all.
AFTER_ALL = ("deadline", "superseded")


class Stretch(Struct, frozen=True):
    """What one revision had to decide: every instant of its plan after one instant and not after another."""

    schedule: ScheduleRow
    policy: Policy
    plan: Instants
    after: int
    until: int


def stretches_of(view: View, schedule: ScheduleRow) -> Iterator[Stretch]:
    """The stretches of a schedule, oldest first; those that something besides the trigger decided are not."""
    revisions = view.revisions.get(schedule.id, [])
    rows = view.occurrences.get(schedule.id, [])
    floor = known_from(view, schedule)
    after: int | None = None
    for i, revision in enumerate(revisions):
        policy = view.policies[schedule.id, revision.revision]
        if policy is None:
            after = None
            continue
        if after is None:
            after = _opening(policy) if i == 0 else revision.at
        following = revisions[i + 1] if i + 1 < len(revisions) else None
        own = [row for row in rows if row.revision == revision.revision]
        last = max((end_of(row) for row in own if not _is_ahead(view, row, following)), default=after)
        plan = view.plan(policy)
        if plan is None or policy.governed:
            after = following.at if following is not None else None
            continue
        until = takes_over = _end(schedule, policy, rows)
        if following is not None:
            begins = max(after, last, floor)
            takes_over = _handover(view, plan, following, last=begins)
            # Up to the cursor everything is decided, wherever the schedule stopped for good.
            until = min(takes_over, schedule.cursor)
            if _had_its_runs(policy, [row for row in rows if row.created_at <= following.at], floor):
                until, takes_over = min(until, last), max(takes_over, following.at)
        begins = max(after, floor + policy.early)
        if until > begins:
            yield Stretch(schedule, policy, plan, begins, until)
        after = takes_over


def end_of(row: RunRow) -> int:
    """The last instant that a row stands for."""
    return row.last_of if row.last_of is not None else row.planned_at


def missing(view: View, stretch: Stretch, *, after: int, until: int) -> list[int]:
    """The instants of a stretch, between two, that have no row and no place in one."""
    rows = view.occurrences.get(stretch.schedule.id, [])
    planned = {row.planned_at for row in rows} | view.left_out.get(stretch.schedule.id, set())
    spans = sorted((row.planned_at, row.last_of) for row in rows if row.last_of is not None)
    found: list[int] = []
    begins = max(after, stretch.after)
    ends = min(until, stretch.until)
    for first, last in [*spans, (ends + 1, ends + 1)]:
        if first - 1 > begins:
            instants = stretch.plan.between(begins, min(first - 1, ends), most=MOST_INSTANTS)
            found += [at for at in instants if at not in planned and is_required(view, stretch, at)]
        begins = max(begins, last)
        if begins >= ends:
            break
    return found


def is_required(view: View, stretch: Stretch, at: int) -> bool:
    """Whether an instant needs a row where it is; calendars that roll move what they exclude."""
    if not stretch.policy.rolls:
        return True
    rule = stretch.policy.calendar or {}
    calendars = view.calendars_at(stretch.schedule.namespace, rule, at)
    return calendars is not None and is_open(rule, calendars, at)


def _opening(policy: Policy) -> int:
    """Nothing up to a schedule's creation is to be decided, except the one instant that it asked for."""
    after = policy.created_at
    if policy.start_at is not None:
        after = max(after, policy.start_at - 1)
    if policy.trigger.get("kind") == "once":
        after = min(after, instant(policy.trigger["at"]) - 1)
    return after


def known_from(view: View, schedule: ScheduleRow) -> int:
    """Rows up to here may have been pruned, or were not asked for, or nothing was to be decided yet."""
    pruned = made_at(view.history.meta.get("pruned_to", "")) or 0
    approved = [line.at for line in view.audit.get(schedule.id, ()) if line.action == "schedule.approve"]
    return max([pruned + 1000 if pruned else 0, view.since, *approved])


def _end(schedule: ScheduleRow, policy: Policy, rows: list[RunRow]) -> int:
    """Where the last revision's duty ends: at the cursor, or at its last run where it may have no more."""
    if policy.max_runs is not None and schedule.runs >= policy.max_runs:
        return max((row.planned_at for row in rows if row.state != "skipped"), default=0)
    return schedule.cursor


def _is_ahead(view: View, row: RunRow, following: RevisionRow | None) -> bool:
    """Whether someone had left out, by hand, an instant that was still ahead at the next edit."""
    left_out = view.left_out.get(row.schedule_id, set())
    return following is not None and row.planned_at > following.at and row.planned_at in left_out


def _had_its_runs(policy: Policy, rows: list[RunRow], floor: int) -> bool:
    """Whether a revision may have had all the runs it allows; what was pruned may be among them."""
    emitted = sum(row.state != "skipped" or row.reason in AFTER_ALL for row in rows)
    return policy.max_runs is not None and (emitted >= policy.max_runs or floor > 0)


def _handover(view: View, plan: Instants, following: RevisionRow, *, last: int) -> int:
    """Where a revision gives way: before the first instant it had left open, or at the edit."""
    at = following.at
    open_one = plan.first_after(last, until=last + FARTHEST)
    if open_one is None:
        return max(at, last)
    if view.is_held_back(following.schedule_id, at):
        return max(last, open_one - 1)
    return max(last, min(at, open_one - 1))
