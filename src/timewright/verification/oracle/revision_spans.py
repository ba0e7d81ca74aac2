"""The instants that each revision of a schedule had to decide: from its takeover to its replacement."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from timewright.verification.oracle.calendars import is_open
from timewright.verification.oracle.instant_sets import MAX_INSTANTS, MAX_LOOKAHEAD_US, InstantSet
from timewright.verification.oracle.schedule_policy import SchedulePolicy
from timewright.verification.oracle.times import id_created_at, parse_instant
from timewright.verification.rows import AdjustmentRow, RevisionRow, RunRow, ScheduleRow
from timewright.verification.view import NEVER, HistoryView

# Reasons for which an admitted, counted run was skipped afterwards.
LATE_SKIP_REASONS = ("deadline", "superseded")


class RevisionSpan(Struct, frozen=True):
    """The range that one revision had to decide: planned instants after `after` up to `until`."""

    schedule: ScheduleRow
    policy: SchedulePolicy
    plan: InstantSet
    after: int
    until: int
    replaced: tuple[tuple[int, int], ...] = ()


def revision_spans(view: HistoryView, schedule: ScheduleRow) -> Iterator[RevisionSpan]:
    """The spans of a schedule, oldest first; revisions whose runs decide the instants are left out."""
    revisions = view.revisions.get(schedule.id, [])
    rows = view.occurrences.get(schedule.id, [])
    floor = history_starts_at(view, schedule)
    after: int | None = None
    for i, revision in enumerate(revisions):
        policy = view.policies[schedule.id, revision.revision]
        if policy is None:
            after = None
            continue
        if after is None:
            after = _first_start(policy) if i == 0 else revision.at
        following = revisions[i + 1] if i + 1 < len(revisions) else None
        own = [row for row in rows if row.revision == revision.revision]
        last = max((last_instant(row) for row in own if not _is_ahead(view, row, following)), default=after)
        plan = view.planned_instants(policy)
        replaced = replaced_spans(view, schedule, policy) if plan is not None else None
        if plan is None or replaced is None:
            after = None
            if following is not None:
                # What was admitted before its instant, within the jitter, is decided: the next plan follows.
                after = max(following.at, min(last, following.at + policy.early_jitter))
            continue
        until = takes_over = _last_end(schedule, policy, rows)
        edit = _edit_of(view, following) if following is not None else None
        if following is not None:
            decided = min(edit.cursor, following.at) if edit is not None else 0
            begins = max(after, last, floor, decided)
            if not _may_be_replaced(policy, replaced, after=after, at=following.at):
                begins = max(begins, min(_decided_by_passes(policy, own), following.at))
            takes_over = _handover(view, plan, following, edit, last=begins)
            # Everything up to the cursor is decided, also if the schedule has ended since.
            until = min(takes_over, schedule.cursor)
            if _may_have_used_runs(policy, [row for row in rows if row.created_at <= following.at], floor):
                until, takes_over = min(until, last), max(takes_over, following.at)
        begins = max(after, floor + policy.early_jitter)
        if until > begins:
            yield RevisionSpan(schedule, policy, plan, begins, until, replaced)
        earlier = [row for row in rows if following is not None and row.created_at <= following.at]
        if following is not None and any(_is_ahead(view, row, following) for row in earlier):
            # The cursor was ahead of the edit, so it falls to the edit and not to the instant before it.
            is_known = edit is not None and edit.cursor > following.at + policy.early_jitter
            takes_over = following.at if is_known else max(takes_over, following.at)
        if following is not None and _may_be_replaced(policy, replaced, after=takes_over, at=following.at):
            # What replaced undecided instants ends with the edit, and the next revision begins there.
            takes_over = max(takes_over, following.at)
        after = takes_over


def last_instant(row: RunRow) -> int:
    """The last instant that a row covers."""
    return row.last_of if row.last_of is not None else row.planned_at


def missing_instants(view: HistoryView, span: RevisionSpan, *, after: int, until: int) -> list[int]:
    """The instants of a span between two others that have no row and no gap row."""
    rows = view.occurrences.get(span.schedule.id, [])
    planned = {row.planned_at for row in rows} | view.skipped_by_hand.get(span.schedule.id, set())
    spans = sorted((row.planned_at, row.last_of) for row in rows if row.last_of is not None)
    found: list[int] = []
    begins = max(after, span.after)
    ends = min(until, span.until)
    for first, last in [*spans, (ends + 1, ends + 1)]:
        if first - 1 > begins:
            instants = span.plan.between(begins, min(first - 1, ends), limit=MAX_INSTANTS)
            found += [at for at in instants if at not in planned and needs_row(view, span, at)]
        begins = max(begins, last)
        if begins >= ends:
            break
    return found


def needs_row(view: HistoryView, span: RevisionSpan, at: int) -> bool:
    """Whether an instant needs its own row; calendars that roll move excluded instants."""
    if any(began <= at < ended for began, ended in span.replaced):
        return False
    if not span.policy.rolls_by_calendar:
        return True
    rule = span.policy.calendar or {}
    calendars = view.calendars_at(span.schedule.namespace, rule, at)
    return calendars is not None and is_open(rule, calendars, at)


def replaced_spans(
    view: HistoryView, schedule: ScheduleRow, policy: SchedulePolicy
) -> tuple[tuple[int, int], ...] | None:
    """When a hint or a cadence replaced the trigger's instants; None if that cannot be known."""
    if not policy.follows_trigger or (policy.clamp_min and policy.cadence != "none"):
        return None
    spans: list[tuple[int, int]] = []
    if policy.adaptive:
        spans += view.interval_hints.get(schedule.id, ())
    # A person who skips an instant of a hint or of a cadence passes the trigger's instants before it.
    is_failing = is_hinted = False
    for row in view.adjustments.get(schedule.id, ()):
        if row.kind in ("failing", "recovered", "resume"):
            is_failing = row.kind == "failing" and policy.cadence != "none"
        is_hinted |= row.kind == "interval" and policy.adaptive
        if row.kind in ("skip", "move") and row.planned_at is not None and (is_hinted or is_failing):
            spans.append((row.at, row.planned_at))
    if policy.cadence != "none":
        spans += view.streaks.get(schedule.id, ())
    return tuple(spans)


def _first_start(policy: SchedulePolicy) -> int:
    """Where the first revision begins: at the creation, except for a `once` trigger in the past."""
    after = policy.created_at
    if policy.start_at is not None:
        after = max(after, policy.start_at - 1)
    if policy.trigger.get("kind") == "once":
        after = min(after, parse_instant(policy.trigger["at"]) - 1)
    return after


def history_starts_at(view: HistoryView, schedule: ScheduleRow) -> int:
    """The start of complete history: older rows may be pruned, unread or from before an approval."""
    pruned = id_created_at(view.history.meta.get("pruned_to", "")) or 0
    approved = [line.at for line in view.audit.get(schedule.id, ()) if line.action == "schedule.approve"]
    return max([pruned + 1000 if pruned else 0, view.since, *approved])


def _last_end(schedule: ScheduleRow, policy: SchedulePolicy, rows: list[RunRow]) -> int:
    """Where the last revision ends: at the cursor, or at the last run if `max_runs` is reached.

    The last one is that admitted last: a success may have opened instants before an earlier run.
    """
    if policy.max_runs is not None and schedule.runs >= policy.max_runs:
        admitted = [(row.created_at, row.planned_at) for row in rows if row.state != "skipped"]
        return max(admitted, default=(0, 0))[1]
    return schedule.cursor


def _edit_of(view: HistoryView, following: RevisionRow) -> AdjustmentRow | None:
    """The row of the edit that made a revision; its cursor says up to where the one before had decided."""
    revisions = view.revisions[following.schedule_id]
    edits = [row for row in view.adjustments.get(following.schedule_id, ()) if row.kind == "edit"]
    found = edits[following.revision - 2] if len(edits) == len(revisions) - 1 else None
    return found if found is not None and found.at == following.at else None


def _is_ahead(view: HistoryView, row: RunRow, following: RevisionRow | None) -> bool:
    """Whether a row is an instant skipped by hand that was still in the future at the next edit."""
    left_out = view.skipped_by_hand.get(row.schedule_id, set())
    return following is not None and row.planned_at > following.at and row.planned_at in left_out


def _decided_by_passes(policy: SchedulePolicy, rows: list[RunRow]) -> int:
    """Up to when every instant was decided, because an admission decides all that is due.

    Exceptions: what is carried to the next pass can still run, and a long scan is continued in another pass.
    """
    carries = policy.catch_up in ("all", "spread")
    if carries and policy.catch_up_window is None:
        return 0
    open_for = (policy.catch_up_window or 0) + 1 if carries else 0
    incomplete = {row.created_at for row in rows if row.dropped}
    passes = {row.created_at for row in rows if row.reason != "by_hand" and row.planned_at <= row.created_at}
    return max(passes - incomplete, default=0) - open_for


def _may_be_replaced(
    policy: SchedulePolicy, replaced: tuple[tuple[int, int], ...], *, after: int, at: int
) -> bool:
    """Whether a clamp, a hint or a cadence may have replaced undecided instants between two others."""
    is_clamped = policy.clamp_min or policy.clamp_max
    return bool(is_clamped) or any(began <= at and ended > after for began, ended in replaced)


def _may_have_used_runs(policy: SchedulePolicy, rows: list[RunRow], floor: int) -> bool:
    """Whether a revision may have used its `max_runs`; pruned runs may be among them."""
    emitted = sum(row.state != "skipped" or row.reason in LATE_SKIP_REASONS for row in rows)
    return policy.max_runs is not None and (emitted >= policy.max_runs or floor > 0)


def _handover(
    view: HistoryView, plan: InstantSet, following: RevisionRow, edit: AdjustmentRow | None, *, last: int
) -> int:
    """Where a revision hands over: just before its first undecided instant, or at the edit."""
    at, skipped = following.at, view.skipped_by_hand.get(following.schedule_id, set())
    if view.may_be_suspended(following, edit):
        if edit is not None:
            # Nothing is decided until it goes on, and then by the new plan.
            return max(last, edit.cursor)
        at = NEVER
    undecided = plan.first_after(last, until=last + MAX_LOOKAHEAD_US)
    while undecided is not None and undecided in skipped:
        undecided = plan.first_after(undecided, until=last + MAX_LOOKAHEAD_US)
    if undecided is None:
        return max(following.at, last)
    return max(last, min(at, undecided - 1))
